"""The two ends of a broadcast of weights, over gloo between CPUs and NCCL between GPUs.

A broadcast begins with a handshake: receivers report that they are ready, then the sender starts or
aborts it. So a missing receiver costs one deadline, and nothing is written before all are ready.
Groups are created directly, beside `torch.distributed`'s own, which belongs to trainer and engine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import BroadcastOptions, PrefixStore, TCPStore

from grpo_trainer.weights import TensorEntry

from .plan import BUCKET_BYTES, GroupMember, buckets, span

MEMBER_SECONDS = 60.0
"""Deadline to form a group, and for one bucket to reach all members."""
READY_SECONDS = 60.0
"""Deadline for all receivers to pause generation."""

_START, _ABORT = "start", "abort"


class BroadcastAbortedError(RuntimeError):
    """A broadcast did not start: nothing was written."""


class WeightsLostError(RuntimeError):
    """A broadcast was interrupted: the weights are of two versions."""


class WeightSender:
    """Rank 0 of a stage's group."""

    def __init__(self, host: str, size: int, backend: str, device: torch.device) -> None:
        self._size, self._backend, self._device = size, backend, device
        timeout = timedelta(seconds=MEMBER_SECONDS)
        self._host = host
        self._store = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=timeout)
        self._group: _Group | None = None
        # On the default stream the buckets would wait for the training that they should overlap.
        self._stream: Any = None
        if backend == "nccl":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @property
    def port(self) -> int:
        return int(self._store.port)

    def join(self) -> None:
        """Wait until all receivers are in the group; raises RuntimeError after MEMBER_SECONDS."""
        self._group = _Group(self._store, 0, self._size, self._backend)

    def send(self, number: int, entries: Sequence[TensorEntry], buffer: Tensor) -> None:
        """Send a stage's buffer to all; raises RuntimeError if a receiver did not get it."""
        assert self._group is not None, "call join first"
        self._handshake(number)
        with torch.cuda.stream(self._stream):
            for bucket in buckets(entries):
                part = buffer[span(bucket)]
                self._group.broadcast(part.to(self._device) if self._backend == "nccl" else part)

    def abort_broadcast(self, number: int) -> None:
        """End the wait for receivers; callable from any thread, also during `send`."""
        # A store serves one call at a time, and `send` blocks in this one.
        store = _client(self._host, self.port)
        store.set(_aborted(number), "")
        for rank in range(1, self._size):
            store.set(_ready(number, rank), "")

    def _handshake(self, number: int) -> None:
        ready = [_ready(number, rank) for rank in range(1, self._size)]
        try:
            self._store.wait(ready, timedelta(seconds=READY_SECONDS))
        except RuntimeError as error:
            self._store.set(_decision(number), _ABORT)
            absent = [i for i, key in enumerate(ready, 1) if not self._store.check([key])]
            raise BroadcastAbortedError(
                f"not ready in {READY_SECONDS:g} s: ranks {absent}"
            ) from error
        aborted = self._store.check([_aborted(number)])
        self._store.set(_decision(number), _ABORT if aborted else _START)
        if aborted:
            raise BroadcastAbortedError("aborted by the driver")


class WeightReceiver:
    """One process of an engine, in the groups of all stages."""

    def __init__(self, members: Sequence[GroupMember], index: int, device: torch.device) -> None:
        """Join the groups as process `index` of the engine.

        Raises:
            RuntimeError: they were not complete within MEMBER_SECONDS.
        """
        self._device = device if members[0].backend == "nccl" else torch.device("cpu")
        self._members = tuple(members)
        self._ranks = [member.rank + index for member in members]
        self._stores = [_client(member.stage.host, member.stage.port) for member in members]
        self._groups = [
            _Group(store, rank, member.size, member.backend)
            for store, rank, member in zip(self._stores, self._ranks, self._members, strict=True)
        ]

    @property
    def entries(self) -> tuple[TensorEntry, ...]:
        """Tensors of a version, of all stages."""
        return tuple(entry for member in self._members for entry in member.stage.entries)

    def handshake(self, number: int) -> None:
        """Report ready for a broadcast; raises BroadcastAbortedError if it does not start."""
        for store, rank in zip(self._stores, self._ranks, strict=True):
            store.set(_ready(number, rank), "")
        try:
            decisions = {_decided(store, number) for store in self._stores}
        except RuntimeError as error:
            self._leave()
            raise BroadcastAbortedError(f"a sender was lost: {error}") from error
        if decisions != {_START}:
            self._leave()
            raise BroadcastAbortedError("the sender aborted it")

    def tensors(self, *, keep: bool) -> Iterator[tuple[TensorEntry, Tensor]]:
        """Each tensor in its order, typed and shaped, as it arrives.

        A tensor is valid until the next one is requested, unless `keep` is set.

        Raises:
            WeightsLostError: the broadcast was interrupted.
        """
        complete = False
        try:
            for bucket, raw in self._buckets(keep):
                for entry in bucket:
                    part = raw[entry.offset - bucket[0].offset :][: entry.size]
                    yield entry, part.view(getattr(torch, entry.dtype)).view(entry.shape)
            complete = True
        finally:
            if not complete:
                self._leave()

    def _leave(self) -> None:
        """Close the connections, so that peers do not wait for this member."""
        for group in self._groups:
            group.leave()

    def _buckets(self, keep: bool) -> Iterator[tuple[tuple[TensorEntry, ...], Tensor]]:
        """Each bucket and its bytes."""
        staging = torch.empty(0, dtype=torch.uint8, device=self._device)
        for member, group in zip(self._members, self._groups, strict=True):
            for bucket in buckets(member.stage.entries):
                size = span(bucket).stop - span(bucket).start
                if keep or staging.numel() < size:
                    room = size if keep else max(size, BUCKET_BYTES)
                    staging = torch.empty(room, dtype=torch.uint8, device=self._device)
                group.broadcast(staging[:size])
                yield bucket, staging


def _client(host: str, port: int) -> TCPStore:
    timeout = timedelta(seconds=MEMBER_SECONDS)
    return TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=timeout)


def _decided(store: TCPStore, number: int) -> str:
    """The sender's decision, after its wait for the last receiver."""
    store.wait([_decision(number)], timedelta(seconds=READY_SECONDS + MEMBER_SECONDS))
    return store.get(_decision(number)).decode()


class _Group:
    """A process group outside of `torch.distributed`'s registry."""

    def __init__(self, store: TCPStore, rank: int, size: int, backend: str) -> None:
        self._group = _process_group(store, rank, size, backend)

    def broadcast(self, tensor: Tensor) -> None:
        """From rank 0 to all; returns when the tensor may be read and reused.

        Raises:
            WeightsLostError: a member was lost. This one then leaves too, as its peers wait for it.
        """
        fault = self._fault(tensor)
        if fault:
            # Outside of the except block: the traceback would keep the sockets open.
            self.leave()
            raise WeightsLostError(fault)

    def leave(self) -> None:
        """Close the connections to all other members."""
        self._group = None

    def _fault(self, tensor: Tensor) -> str:
        if self._group is None:
            return "this member has left the group"
        options = BroadcastOptions()
        options.rootRank = 0
        options.rootTensor = 0
        try:
            self._group.broadcast([tensor], options).wait()
        except RuntimeError as error:
            return str(error)
        if tensor.is_cuda:
            torch.cuda.current_stream(tensor.device).synchronize()
        return ""


def _process_group(store: TCPStore, rank: int, size: int, backend: str) -> Any:
    timeout = timedelta(seconds=MEMBER_SECONDS)
    prefixed = PrefixStore("group", store)
    if backend == "gloo":
        from torch._C._distributed_c10d import ProcessGroupGloo

        return ProcessGroupGloo(prefixed, rank, size, timeout)
    from torch._C._distributed_c10d import ProcessGroupNCCL

    # Otherwise a wait returns at once, and a watchdog ends this process when a peer is lost.
    before = os.environ.get("TORCH_NCCL_BLOCKING_WAIT")
    os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"
    try:
        options = ProcessGroupNCCL.Options()
        options._timeout = timeout
        return ProcessGroupNCCL(prefixed, rank, size, options)
    finally:
        if before is None:
            del os.environ["TORCH_NCCL_BLOCKING_WAIT"]
        else:
            os.environ["TORCH_NCCL_BLOCKING_WAIT"] = before


def _ready(number: int, rank: int) -> str:
    return f"{number}/ready/{rank}"


def _aborted(number: int) -> str:
    return f"{number}/aborted"


def _decision(number: int) -> str:
    return f"{number}/decision"
