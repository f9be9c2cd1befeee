"""One training process that runs jobs in turn; started by test_consumer_layouts.py."""

import argparse
import dataclasses
import json
import pickle
from pathlib import Path

import colossalai
import torch

from grpo_trainer.consumer.accelerator import install_cpu_accelerator
from grpo_trainer.consumer.export import WeightExporter
from grpo_trainer.consumer.policy import Policy
from grpo_trainer.consumer.state import load_state, save_state
from grpo_trainer.consumer.training import train_step


def run(job, rank: int) -> None:
    layout = job.options.layout
    policy = Policy(dataclasses.replace(job.options, rank=rank))
    exporter = WeightExporter(policy)
    if job.load is not None:
        load_state(policy, job.load)
    results = []
    for step, batch in job.steps:
        shard = batch.shards[layout.data_index(rank)]
        result = train_step(policy, shard, batch.denominators, step)
        sums = dataclasses.asdict(result.sums) if layout.reports(rank) else None
        results.append({"sums": sums, "norm": result.gradient_norm})
    exporter.snapshot(len(job.steps))
    if layout.exports(rank):
        exporter.save(job.directory / f"stage-{layout.stage(rank)}.safetensors")
    if job.save:
        save_state(policy, job.directory, len(job.steps))
    (job.directory / f"result-{rank}.json").write_text(json.dumps(results))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("jobs", type=Path)
    parser.add_argument("rank", type=int)
    parser.add_argument("world", type=int)
    parser.add_argument("port", type=int)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    install_cpu_accelerator()
    colossalai.launch(arguments.rank, arguments.world, "127.0.0.1", arguments.port, verbose=False)
    for job in pickle.loads(arguments.jobs.read_bytes()):
        run(job, arguments.rank)


main()
