"""Training processes of the layout tests: what they are asked to do, and how they are started."""

import json
import math
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from grpo_trainer.algorithm.batching import build_step
from grpo_trainer.consumer.parallel_dims import ParallelDims
from grpo_trainer.consumer.records import PolicyOptions
from grpo_trainer.planning import read_architecture
from grpo_trainer.planning.consumers import TrainingLayout, consumer_memory
from grpo_trainer.spec import Dtype, GRPOJob, resolve_algorithm
from support.jobs import LayoutJob
from support.models import random_group

WORKER = Path(__file__).parents[1] / "trainer" / "layout_worker.py"
STEPS = 3
DEFAULTS = resolve_algorithm(GRPOJob().spec)


def options(model: Path, dims: ParallelDims = ParallelDims(1), **changes) -> PolicyOptions:  # noqa: B008
    base = PolicyOptions(
        dims=dims,
        rank=0,
        model_path=str(model),
        reference_path=None,
        dtype=Dtype.FLOAT32,
        gradient_checkpointing=False,
        trust_remote_code=False,
        algorithm=replace(DEFAULTS, kl_coefficient=0.0, learning_rate=1e-3),
        temperature=0.8,
        top_k=None,
        top_p=1.0,
        microbatch=4,
        total_steps=10,
        seed=0,
        device="cpu",
    )
    return replace(base, **changes)


def steps(
    options: PolicyOptions, first: int = 0, last: int = STEPS, tokens: int | None = None
) -> tuple:
    rng = np.random.default_rng(0)
    built = []
    for step in range(last):
        groups = [random_group(rng) for _ in range(6)]
        batch = build_step(
            groups,
            data_parallel=options.dims.data_parallel,
            microbatch=options.microbatch,
            microbatch_tokens=tokens,
            algorithm=options.algorithm,
            pad_token_id=0,
        )
        built.append((step, batch))
    return tuple(built[first:])


def run(jobs: list[LayoutJob], world: int, python: Path = Path(sys.executable)) -> None:
    """Run the jobs in `world` fresh processes."""
    path = jobs[0].directory / "jobs.pickle"
    path.write_bytes(pickle.dumps(jobs))
    tests = str(Path(__file__).parents[1])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": tests}
    command = [str(python), "-W", "ignore", str(WORKER), str(path)]
    processes = [
        subprocess.Popen(
            [*command, str(rank)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        outputs = [process.communicate(timeout=30 + 120 * len(jobs))[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output[-3000:]


def job(tmp: Path, name: str, options: PolicyOptions, **more) -> LayoutJob:
    directory = tmp / name.replace(" ", "-")
    directory.mkdir()
    chosen = more.pop("steps") if "steps" in more else steps(options)
    return LayoutJob(options, chosen, directory, **more)


def memory(directory: Path) -> dict[str, int]:
    """Bytes of the rank that holds the most, by what they hold."""
    ranks = [json.loads(path.read_text()) for path in directory.glob("memory-*.json")]
    return {part: max(rank[part] for rank in ranks) for part in ranks[0]}


def memory_forecast(model: Path, dims: ParallelDims, dtype: Dtype) -> dict[str, int]:
    """The same by the forecast."""
    layout = TrainingLayout(
        processes=dims.world,
        tensor_parallel=dims.tensor_parallel,
        pipeline_parallel=dims.pipeline_parallel,
        zero_stage=dims.zero_stage,
        weight_bytes=4 if dtype is Dtype.FLOAT32 else 2,
        gradient_checkpointing=False,
        reference=False,
        microbatch_tokens=1,
        sharded=dims.sharded_parameters,
    )
    found = consumer_memory(read_architecture(model, str(model)), layout)
    return {part: getattr(found, part) for part in ("weights", "masters", "moments")}


def weights(directory: Path) -> dict[str, torch.Tensor]:
    merged: dict[str, torch.Tensor] = {}
    for path in sorted(directory.glob("stage-*.safetensors")):
        merged |= load_file(path)
    return merged


def departure(path: Path, truth: Path, model: Path) -> float:
    """How far a path's end is from the true one, as a part of the way from the model.

    Not element by element: where a gradient is hardly more than rounding, Adam makes a step of it.
    """
    ends, true_ends = weights(path), weights(truth)
    assert ends.keys() == true_ends.keys()
    start = AutoModelForCausalLM.from_pretrained(model).state_dict()
    apart = (torch.dist(ends[name], end) for name, end in true_ends.items())
    way = (torch.dist(start[name], end) for name, end in true_ends.items())
    return math.hypot(*map(float, apart)) / math.hypot(*map(float, way))
