"""One training process that runs jobs in turn; started by support/layouts.py."""

import argparse
import dataclasses
import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import colossalai
import numpy as np
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
        with poisoned(policy) if (step, rank) == (job.poisoned_step, 0) else nullcontext():
            result = train_step(policy, shard, batch.denominators, step)
        sums = dataclasses.asdict(result.sums) if layout.reports(rank) else None
        norm = result.gradient_norm
        results.append({"sums": sums, "norm": norm, "skipped": result.skipped})
    if job.score is not None:
        write_scores(policy, job)
    exporter.snapshot(len(job.steps))
    if layout.exports(rank):
        exporter.save(job.directory / f"stage-{layout.stage(rank)}.safetensors")
    if job.save:
        save_state(policy, job.directory, len(job.steps))
    (job.directory / f"result-{rank}.json").write_text(json.dumps(results))
    if job.steps:  # the optimizer allocates its moments in the first
        (job.directory / f"memory-{rank}.json").write_text(json.dumps(allocated(policy)))


def allocated(policy: Policy) -> dict[str, int]:
    """Bytes of the tensors that this rank holds between two steps."""
    weights = {id(p): p for p in policy.module.parameters()}
    updated = [p for group in policy.optimizer.optim.param_groups for p in group["params"]]
    moments = [
        policy.optimizer.optim.state[p][name] for p in updated for name in ("exp_avg", "exp_avg_sq")
    ]
    return {
        "weights": sum(p.nbytes for p in weights.values()),
        "masters": sum(p.nbytes for p in updated if id(p) not in weights),
        "moments": sum(moment.nbytes for moment in moments),
    }


@contextmanager
def poisoned(policy: Policy) -> Iterator[None]:
    """One element of one gradient is NaN."""

    def poison(gradient: torch.Tensor) -> torch.Tensor:
        found = gradient.clone()
        found.view(-1)[0] = float("nan")
        return found

    parameter = next(p for p in policy.module.parameters() if p.requires_grad)
    hook = parameter.register_hook(poison)
    yield
    hook.remove()


def write_scores(policy: Policy, job) -> None:
    """Log-probabilities [B, L - 1] of each token after the first, and the buffers' precisions."""
    ids = torch.from_numpy(job.score)
    found = {}
    for name, model in (("policy", policy.model), ("reference", policy.reference)):
        if policy.options.layout.pipeline_parallel == 1:
            with torch.no_grad():
                logits = policy.logits(model, ids)[:, :-1].float()
            logprobs = logits.log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2)
            found[name] = logprobs.numpy()
        module = model.unwrap() if hasattr(model, "unwrap") else model
        dtypes = {str(b.dtype) for n, b in module.named_buffers() if "inv_freq" in n}
        found[f"{name}_buffers"] = np.array(sorted(dtypes))
    np.savez(job.directory / f"scores-{policy.options.rank}.npz", **found)


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
