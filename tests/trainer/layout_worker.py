"""One training process that runs jobs in turn; started by support/layouts.py."""

import argparse
import dataclasses
import faulthandler
import json
import pickle
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import torch
from torch.distributed.tensor import DTensor

from grpo_trainer.algorithm.batching import MicroBatch
from grpo_trainer.consumer.backend import TrainingBackend, open_backend
from grpo_trainer.consumer.export import WeightExporter
from grpo_trainer.consumer.records import Rendezvous
from grpo_trainer.consumer.training import train_step

JOB_SECONDS = 120.0
"""A job takes a second or two; one that hangs says where."""


def port_of(directory: Path, rank: int) -> int:
    """The port of the first rank's choice, which it makes when it is about to listen: one that is
    chosen much earlier may be another process's by then."""
    file = directory / "port"
    if rank == 0:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        (directory / "port.part").write_text(str(port))
        (directory / "port.part").rename(file)
    while not file.exists():
        time.sleep(0.01)
    return int(file.read_text())


def run(job, rank: int, meeting: Rendezvous) -> None:
    dims = job.options.dims
    options = dataclasses.replace(job.options, rank=rank)
    backend = open_backend(options, meeting)
    exporter = WeightExporter(backend, rank)
    if job.load is not None:
        backend.load(job.load)
    results = []
    for step, batch in job.steps:
        shard = batch.shards[dims.data_index(rank)]
        with poisoned(backend) if (step, rank) == (job.poisoned_step, 0) else nullcontext():
            result = train_step(backend, options, shard, batch.denominators, step)
        sums = dataclasses.asdict(result.sums) if dims.reports(rank) else None
        norm = result.gradient_norm
        results.append({"sums": sums, "norm": norm, "skipped": result.skipped})
    if job.score is not None:
        write_scores(backend, job, rank)
    exporter.snapshot(len(job.steps))
    if dims.exports(rank):
        exporter.save(job.directory / f"stage-{dims.stage(rank)}.safetensors")
    if job.save:
        backend.save(job.directory, len(job.steps))()
    (job.directory / f"result-{rank}.json").write_text(json.dumps(results))
    if job.steps:  # the optimizer allocates its moments in the first
        (job.directory / f"memory-{rank}.json").write_text(json.dumps(allocated(backend)))
    backend.close()


def allocated(backend: TrainingBackend) -> dict[str, int]:
    """Bytes of the tensors that this rank holds between two steps."""
    optimizer = backend.policy.optimizer.optim if hasattr(backend, "policy") else backend.optimizer
    weights = {id(p): p for p in backend.module.parameters()}
    updated = [p for group in optimizer.param_groups for p in group["params"]]
    moments = [optimizer.state[p][name] for p in updated for name in ("exp_avg", "exp_avg_sq")]
    return {
        "weights": sum(local(p).nbytes for p in weights.values()),
        "masters": sum(local(p).nbytes for p in updated if id(p) not in weights),
        "moments": sum(local(moment).nbytes for moment in moments),
    }


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that is on this rank."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@contextmanager
def poisoned(backend: TrainingBackend) -> Iterator[None]:
    """The gradient of one embedding has an element that is NaN."""

    def poison(gradient: torch.Tensor) -> torch.Tensor:
        found = gradient.clone()
        found.view(-1)[0] = float("nan")
        return found

    def poison_output(_module, _inputs, output: torch.Tensor) -> None:
        output.register_hook(poison)

    # Not of a parameter: those of FSDP receive their gradients without autograd.
    hook = backend.module.get_input_embeddings().register_forward_hook(poison_output)
    yield
    hook.remove()


def write_scores(backend: TrainingBackend, job, rank: int) -> None:
    """Log-probabilities [B, L - 1] of each token after the first, and the buffers' precisions."""
    mask = np.ones(job.score.shape, dtype=np.bool_)
    mask[:, 0] = False
    lengths = np.full(len(mask), mask.shape[1])
    zeros = np.zeros(mask.shape, dtype=np.float32)
    batch = MicroBatch(job.score, lengths, mask, zeros, zeros[:, 0])
    found = {}
    for name, reference in (("policy", False), ("reference", True)):
        for logprobs in backend.logprobs([batch], reference=reference):
            found[name] = logprobs[:, 1:].numpy()
        module = reference_module(backend) if reference else backend.module
        dtypes = {str(b.dtype) for n, b in module.named_buffers() if "inv_freq" in n}
        found[f"{name}_buffers"] = np.array(sorted(dtypes))
    np.savez(job.directory / f"scores-{rank}.npz", **found)


def reference_module(backend: TrainingBackend) -> torch.nn.Module:
    fsdp = hasattr(backend, "reference_module")
    return backend.reference_module if fsdp else backend.policy.reference.module


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("jobs", type=Path)
    parser.add_argument("rank", type=int)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for job in pickle.loads(arguments.jobs.read_bytes()):
        faulthandler.dump_traceback_later(JOB_SECONDS, exit=True)
        run(job, arguments.rank, Rendezvous("127.0.0.1", port_of(job.directory, arguments.rank)))
    faulthandler.cancel_dump_traceback_later()


main()
