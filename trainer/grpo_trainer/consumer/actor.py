"""The Ray actor around one training process. The driver makes it remote."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from grpo_trainer.algorithm.batching import MicroBatch
from grpo_trainer.algorithm.totals import Denominators
from grpo_trainer.stacks import thread_stacks
from grpo_trainer.transport.plan import Stage

from .records import DeltaReference, PolicyOptions, Rendezvous, StepResult

PUBLISH_SECONDS = 300.0
"""How long the next snapshot waits until the last one was published."""
TRACED_STEPS = 3


PUBLISH = "publish"
WATCH = "watch"


class Consumer:
    """One rank of the training processes.

    Training calls run one after the other in one thread; publishing has a thread of its own, so
    that it overlaps the next step.
    """

    def __init__(self) -> None:
        self._traces = 0
        self._sent = threading.Event()
        self._sent.set()
        self._copying = threading.Lock()
        self._sender: Any = None

    def address(self, port: int | None) -> Rendezvous:
        """An address of this node for the processes to meet at."""
        host = ray.util.get_node_ip_address()
        if port is not None:
            return Rendezvous(host, port)
        with socket.socket() as free:
            free.bind(("", 0))
            return Rendezvous(host, free.getsockname()[1])

    def start(self, options: PolicyOptions, meeting: Rendezvous, state: str | None) -> int:
        """Join the others, build the policy and restore its state; returns this process's id."""
        # Imported here: the actor must answer `address` before seconds of imports.
        from .backend import open_backend
        from .export import WeightExporter

        self._options = options
        self._backend = open_backend(options, meeting)
        if state is not None:
            self._backend.load(Path(state))
        self._exporter = WeightExporter(self._backend, options.rank)
        return os.getpid()

    def snapshot(self, version: int) -> None:
        """Copy the weights to the host as the given version."""
        self._wait_until_sent()
        with self._copying:
            self._exporter.snapshot(version)
            self._sent.clear()

    def train(
        self,
        shard: Sequence[MicroBatch],
        denominators: Denominators,
        step: int,
        with_log_ratios: bool,
    ) -> StepResult:
        """One optimizer step, then the snapshot of version step + 1."""
        from .training import train_step

        began = time.perf_counter()
        with self._traced(step):
            result = train_step(
                self._backend,
                self._options,
                shard,
                denominators,
                step,
                with_log_ratios=with_log_ratios,
            )
        seconds = time.perf_counter() - began
        self.snapshot(step + 1)
        return replace(result, seconds=seconds)

    def logprobs(self, shard: Sequence[MicroBatch]) -> list[Any]:
        """[B, L] of each micro-batch under the current weights; none on ranks without logits."""
        return [found.cpu().numpy() for found in self._backend.logprobs(shard)]

    @contextmanager
    def _traced(self, step: int) -> Iterator[None]:
        """Write a trace that browsers open (chrome://tracing, Perfetto), of the first steps."""
        directory = self._options.trace_directory
        if directory is None or self._traces == TRACED_STEPS:
            yield
            return
        from torch.profiler import profile

        with profile() as trace:
            yield
        self._traces += 1
        file = Path(directory) / f"consumer-{self._options.rank}-step-{step + 1}.trace.json"
        trace.export_chrome_trace(str(file))

    @ray.method(concurrency_group=PUBLISH)
    def publish(self, version: int) -> list[Any]:
        """Put a version into the object store; a list keeps Ray from resolving the reference.

        Nothing is in it when a later version was written over this one.
        """
        with self._copying:
            if self._exporter.version != version:
                return []
            try:
                return [ray.put(self._exporter.bundle())]
            finally:
                self._sent.set()

    @ray.method(concurrency_group=PUBLISH)
    def publish_delta(self, version: int) -> list[DeltaReference]:
        """Put what has changed since the last call into the object store.

        Nothing is in the list when the version is to be published in full. The snapshot stays.
        """
        assert self._exporter.version == version and not self._sent.is_set()
        delta = self._exporter.delta()
        if delta is None:
            return []
        whole = self._exporter.buffer.nbytes
        return [DeltaReference(delta.base, delta.size, whole, ray.put(delta))]

    @ray.method(concurrency_group=PUBLISH)
    def release_snapshot(self) -> None:
        """The snapshot was sent: the next one may be written over it."""
        self._sent.set()

    @ray.method(concurrency_group=PUBLISH)
    def open_group(self, size: int, backend: str) -> Stage:
        """Begin a group of so many members for broadcasts of this stage's weights."""
        from grpo_trainer.transport.group import WeightSender

        self._sender = None  # first of all, lest two hold the same sockets
        host = ray.util.get_node_ip_address()
        self._sender = WeightSender(host, size, backend, self._backend.device)
        return Stage(host, self._sender.port, self._exporter.entries)

    @ray.method(concurrency_group=PUBLISH)
    def join_group(self) -> str:
        """Wait for the other members; returns what went wrong, or nothing."""
        return _fault_of(self._sender.join)

    @ray.method(concurrency_group=PUBLISH)
    def send(self, version: int) -> str:
        """Broadcast the snapshot; returns what went wrong, or nothing."""
        assert self._exporter.version == version and not self._sent.is_set()
        exporter = self._exporter
        return _fault_of(self._sender.send, version, exporter.entries, exporter.buffer)

    @ray.method(concurrency_group=WATCH)
    def abort_broadcast(self, version: int) -> None:
        """End the wait for receivers of a version."""
        if self._sender is not None:
            self._sender.abort_broadcast(version)

    @ray.method(concurrency_group=WATCH)
    def stacks(self) -> str:
        """Where its threads stand, also while one of them hangs."""
        return thread_stacks()

    def _wait_until_sent(self) -> None:
        options = self._options
        if options.dims.exports(options.rank) and not self._sent.wait(PUBLISH_SECONDS):
            raise TimeoutError(f"weights of version {self._exporter.version} were never published")

    def save(self, model_file: str | None, state_directory: str, step: int) -> list[str]:
        """Write this rank's part of a checkpoint; returns the names of the tensors written."""
        wait = self._backend.save(Path(state_directory), step)
        names = self._exporter.save(Path(model_file)) if model_file is not None else []
        wait()
        return names


def _fault_of(function: Callable[..., None], *arguments: Any) -> str:
    """What a peer's end makes of a call here: no fault of this process, and so no exception."""
    try:
        function(*arguments)
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}"
    return ""
