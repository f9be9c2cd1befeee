"""The two ends of a broadcast of weights, over gloo between CPUs and NCCL between GPUs.

A round begins at a meeting: receivers say that they are ready, the sender says go, or that this
round is off. So one that never comes costs a deadline, and nothing is written before all are there.
Groups are made by hand, beside `torch.distributed`'s own, which belongs to trainer and engine.
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
"""For all members of a group to find each other, and for one bucket to reach them all."""
READY_SECONDS = 60.0
"""For all receivers to stand still, once weights are on their way."""

_GO, _OFF = "go", "off"


class BroadcastAbortedError(RuntimeError):
    """A round did not begin: nothing was written."""


class WeightsLostError(RuntimeError):
    """A version broke off in the middle: the weights are of two versions."""


class WeightSender:
    """Rank 0 of a stage's group."""

    def __init__(self, host: str, size: int, backend: str, device: torch.device) -> None:
        self._size, self._backend, self._device = size, backend, device
        timeout = timedelta(seconds=MEMBER_SECONDS)
        self._host = host
        self._store = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=timeout)
        self._group: _Group | None = None
        # On the usual stream buckets would queue behind the training that they are to overlap.
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
        """Send a stage's buffer to all; raises RuntimeError if any of them did not get it."""
        assert self._group is not None, "join comes first"
        self._meet(number)
        with torch.cuda.stream(self._stream):
            for bucket in buckets(entries):
                part = buffer[span(bucket)]
                self._group.broadcast(part.to(self._device) if self._backend == "nccl" else part)

    def abort_broadcast(self, number: int) -> None:
        """End the wait for receivers; from any thread, while `send` may be under way."""
        # A store serves one call at a time, and `send` waits in it.
        store = _client(self._host, self.port)
        store.set(_off(number), "")
        for rank in range(1, self._size):
            store.set(_ready(number, rank), "")

    def _meet(self, number: int) -> None:
        ready = [_ready(number, rank) for rank in range(1, self._size)]
        try:
            self._store.wait(ready, timedelta(seconds=READY_SECONDS))
        except RuntimeError as error:
            self._store.set(_decision(number), _OFF)
            absent = [i for i, key in enumerate(ready, 1) if not self._store.check([key])]
            raise BroadcastAbortedError(
                f"not ready in {READY_SECONDS:g} s: ranks {absent}"
            ) from error
        called_off = self._store.check([_off(number)])
        self._store.set(_decision(number), _OFF if called_off else _GO)
        if called_off:
            raise BroadcastAbortedError("called off")


class WeightReceiver:
    """One process of an engine, in the groups of all stages."""

    def __init__(self, members: Sequence[GroupMember], index: int, device: torch.device) -> None:
        """Join the groups as process `index` of the engine.

        Raises:
            RuntimeError: they did not come together within MEMBER_SECONDS.
        """
        self._device = device if members[0].backend == "nccl" else torch.device("cpu")
        self._seats = tuple(members)
        self._ranks = [member.rank + index for member in members]
        self._stores = [_client(member.stage.host, member.stage.port) for member in members]
        self._groups = [
            _Group(store, rank, member.size, member.backend)
            for store, rank, member in zip(self._stores, self._ranks, self._seats, strict=True)
        ]

    @property
    def entries(self) -> tuple[TensorEntry, ...]:
        """Tensors of a version, of all stages."""
        return tuple(entry for member in self._seats for entry in member.stage.entries)

    def meet(self, number: int) -> None:
        """Be ready for a round; raises BroadcastAbortedError if it does not take place."""
        for store, rank in zip(self._stores, self._ranks, strict=True):
            store.set(_ready(number, rank), "")
        try:
            decisions = {_decided(store, number) for store in self._stores}
        except RuntimeError as error:
            self._leave()
            raise BroadcastAbortedError(f"a sender is gone: {error}") from error
        if decisions != {_GO}:
            self._leave()
            raise BroadcastAbortedError("the round does not take place")

    def tensors(self, *, keep: bool) -> Iterator[tuple[TensorEntry, Tensor]]:
        """Each tensor in its order, typed and shaped, as it arrives.

        One is only good until the next is asked for, unless they are to `keep`.

        Raises:
            WeightsLostError: the version broke off.
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
        """Whoever still waits for this member has to hear that it is gone."""
        for group in self._groups:
            group.leave()

    def _buckets(self, keep: bool) -> Iterator[tuple[tuple[TensorEntry, ...], Tensor]]:
        """Each bucket and its bytes."""
        staging = torch.empty(0, dtype=torch.uint8, device=self._device)
        for member, group in zip(self._seats, self._groups, strict=True):
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
    """What a sender made of a round, after it has waited for the last receiver."""
    store.wait([_decision(number)], timedelta(seconds=READY_SECONDS + MEMBER_SECONDS))
    return store.get(_decision(number)).decode()


class _Group:
    """A group that `torch.distributed` does not know of."""

    def __init__(self, store: TCPStore, rank: int, size: int, backend: str) -> None:
        self._group = _process_group(store, rank, size, backend)

    def broadcast(self, tensor: Tensor) -> None:
        """From rank 0 to all; returns when the tensor may be read, and written again.

        Raises:
            WeightsLostError: a member is gone. So is this one then, for others wait for it.
        """
        fault = self._fault(tensor)
        if fault:
            # Not where the error is: its traceback would keep the sockets open.
            self.leave()
            raise WeightsLostError(fault)

    def leave(self) -> None:
        """Close the ways to all others."""
        self._group = None

    def _fault(self, tensor: Tensor) -> str:
        if self._group is None:
            return "the group was left"
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

    # Else a wait returns at once, and a watchdog ends this process when a peer is gone.
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


def _off(number: int) -> str:
    return f"{number}/off"


def _decision(number: int) -> str:
    return f"{number}/decision"
