"""The calls that wait for prompts, by the weights of their producers."""

import asyncio
import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .admission import fair_share
from .leases import Lease


@dataclass(frozen=True, slots=True, eq=False)
class WaitingCall:
    """A producer that waits for at least one and at most `limit` leases."""

    number: int
    """Order of the calls."""
    producer: str
    limit: int
    at_work: int
    """Prompts that the producer works on at a time; more of them are queued ahead."""
    answer: asyncio.Future[tuple[Lease, ...]]

    def end(self, error: BaseException | None) -> None:
        """Answer with no lease, or with an error, unless the producer stopped waiting."""
        if self.answer.done():
            return
        if error is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(())


class WaitingCalls:
    """Calls by weight version. Those of one version wait for the same room, so that a change which
    makes none for a version costs nothing for its calls, however many there are."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._versions: dict[str, int] = {}
        self._calls: dict[int | None, dict[int, WaitingCall]] = {}

    def __iter__(self) -> Iterator[WaitingCall]:
        return iter([call for calls in self._calls.values() for call in calls.values()])

    def set_version(self, producer: str, version: int) -> None:
        """The producer samples with these weights from now on."""
        self._move(producer, version)
        self._versions[producer] = version

    def forget_version(self, producer: str) -> None:
        """The producer is without weights."""
        self._move(producer, None)
        self._versions.pop(producer, None)

    def forget_versions(self) -> None:
        """No producer has weights."""
        for producer in tuple(self._versions):
            self.forget_version(producer)

    def add(self, producer: str, limit: int, at_work: int) -> WaitingCall:
        """Begin to wait."""
        answer: asyncio.Future[tuple[Lease, ...]] = asyncio.get_running_loop().create_future()
        call = WaitingCall(next(self._numbers), producer, limit, at_work, answer)
        self._calls.setdefault(self._versions.get(producer), {})[call.number] = call
        return call

    def remove(self, call: WaitingCall) -> None:
        """End a call, unless it has ended."""
        calls = self._calls.get(self._versions.get(call.producer), {})
        calls.pop(call.number, None)

    def by_load(
        self, room: Callable[[int], int], held: Callable[[str], int]
    ) -> Iterator[tuple[WaitingCall, int]]:
        """The calls to answer, and the most leases of each.

        Those of the producers with the fewest prompts come first, then those that came first; each
        has its share of the room for its version. Nothing is queued ahead while another producer
        could work on more, also if that has yet to load newer weights. `room` and `held` are asked
        again for each call, and the last call may be removed.
        """
        if not any(calls and v is not None and room(v) > 0 for v, calls in self._calls.items()):
            return
        calls = [
            (held(call.producer), call.number, version, call)
            for version, waiting in self._calls.items()
            for call in waiting.values()
            if not call.answer.done()
        ]
        idle = sum(load < call.at_work for load, _, _, call in calls)
        heapq.heapify(calls)
        while calls:
            load, _, version, call = heapq.heappop(calls)
            free = room(version) if version is not None else 0
            if load >= call.at_work:
                if idle:
                    return
                most = min(call.limit, fair_share(free, 1 + len(calls)))
            else:
                most = min(call.limit, call.at_work - load, fair_share(free, idle))
            if most > 0:
                idle -= load < call.at_work
                yield call, most

    def _move(self, producer: str, version: int | None) -> None:
        before = self._versions.get(producer)
        if before == version:
            return
        calls = self._calls.get(before, {})
        moved = [call for call in calls.values() if call.producer == producer]
        for call in moved:
            self._calls.setdefault(version, {})[call.number] = calls.pop(call.number)
        if not calls:
            self._calls.pop(before, None)
