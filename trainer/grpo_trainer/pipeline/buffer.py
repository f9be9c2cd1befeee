"""The bounded buffer of scored groups between producers and the trainer.

    lease -> running --complete(keep)--> buffered --take--> uncommitted --commit--> trained
      ^         |  |                        |                    |
      |         |  +--complete(not keep)--> filtered, finished with the next step
      |         |                           |                    |
      +---------+---------------------------+--------------------+
        failed, requeued, past its deadline | too stale          | reset

`lease` waits for room (a take, a batch, newer weights, a requeued prompt), `take` for completions.
Everything runs in one event loop; a method without `await` is atomic.
"""

import asyncio
import logging
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Generic

from grpo_trainer.events import GroupCounts

from .admission import Limits, startable
from .batch import Batch, GroupT
from .batches import BatchQueue
from .change_signal import ChangeSignal
from .leases import Lease, LeaseBook
from .source import PromptSource, SourceState
from .waiting import WaitingCalls

logger = logging.getLogger(__name__)


class RolloutBuffer(Generic[GroupT]):
    """Leases prompts to producers, collects their groups, and returns them in batches.

    Each prompt has exactly one outcome: trained, filtered or dropped. No batch contains a group
    that was sampled more than `max_staleness` versions before.
    """

    def __init__(
        self,
        source: PromptSource,
        limits: Limits,
        *,
        max_attempts: int,
        lease_seconds: float,
        first_step: int = 0,
        max_lease_attempts: int = 5,
    ) -> None:
        """
        Args:
            max_attempts: a step generates at most this many times its groups; see `Collection`.
            lease_seconds: deadline of a lease.
            first_step: index of the first batch.
            max_lease_attempts: failed leases after which a prompt is dropped.
        """
        assert max_lease_attempts > 0 and lease_seconds > 0
        self._source = source
        self._limits = limits
        self._max_lease_attempts = max_lease_attempts
        self._waiting = WaitingCalls()
        self._leases = LeaseBook(lease_seconds, self._expire)
        self._batches: BatchQueue[GroupT] = BatchQueue(
            source, limits, max_attempts=max_attempts, first_step=first_step
        )
        self._changed = ChangeSignal()
        self._taking = False
        self._closed = False
        self._error: BaseException | None = None

    @property
    def capacity(self) -> int:
        """Groups that may be in flight while no take is pending."""
        return self._limits.capacity

    @property
    def depth(self) -> int:
        """Complete groups that no batch contains yet."""
        return len(self._batches)

    @property
    def running(self) -> int:
        """Leases that have not ended."""
        return len(self._leases)

    @property
    def next_step(self) -> int:
        """Index of the next batch."""
        return self._batches.next_step

    @property
    def episode(self) -> int:
        """Episode of the newest batch."""
        return self._batches.episode

    @property
    def counts(self) -> GroupCounts:
        """Prompts by outcome; a filtered one counts at once, before its step."""
        return self._batches.counts

    def state_dict(self) -> SourceState:
        """Position in the data after the last commit; a resumed run repeats what follows."""
        return self._source.state_dict()

    def loaded(self, producer: str, version: int) -> None:
        """Record the weights that a producer samples with; without them it gets no lease."""
        self._waiting.set_version(producer, version)
        self._settle()

    async def lease(
        self, producer: str, limit: int, at_work: int | None = None
    ) -> tuple[Lease, ...]:
        """Wait until at least one prompt may start, and take up to `limit` of those that may.

        Returns () when the buffer is closed, or all batches are committed. Waiting producers share
        what may start; those that hold the fewest prompts come first, then those that asked first.
        A producer that has `at_work` prompts (by default any number), as many as it works on at a
        time, gets more only while no other could work on more.

        Raises:
            BaseException: what `abort` was called with.
        """
        assert limit > 0
        call = self._waiting.add(producer, limit, sys.maxsize if at_work is None else at_work)
        try:
            self._answer_calls()
            return await call.answer
        except asyncio.CancelledError:
            if call.answer.done() and not call.answer.cancelled():
                self.requeue(call.answer.result())
            self._waiting.remove(call)
            self._answer_calls()
            raise

    def answered(self, lease: Lease) -> None:
        """Record that the producer is done with a lease, whose group is still to be scored."""
        self._leases.answer(lease)

    def complete(self, lease: Lease, group: GroupT, *, keep: bool) -> bool:
        """Add a lease's group, or replace it if `keep` is False: dynamic sampling filters it.

        Returns False, and ignores the group, if the lease has ended: it failed, was released,
        passed its deadline, or began before a reset.
        """
        if not self._leases.end(lease):
            return False
        if keep:
            self._batches.add(lease.prompt, group)
        else:
            self._batches.filter(lease.prompt)
        self._settle()
        return True

    def fail(self, lease: Lease) -> None:
        """Requeue the prompt as failed, unless the lease has ended."""
        if self._leases.end(lease):
            self._source.fail(lease.prompt, self._max_lease_attempts)
            self._settle()

    def requeue(self, leases: Iterable[Lease]) -> None:
        """Requeue the prompts of leases that have not ended; it does not count as a failure."""
        for lease in leases:
            if self._leases.end(lease):
                self._source.requeue(lease.prompt)
        self._settle()

    def release(self, producer: str) -> None:
        """Requeue all prompts of a lost producer; it gets no lease until it has `loaded`."""
        self._waiting.forget_version(producer)
        for lease in self._leases.held_by(producer):
            self.fail(lease)

    async def take(self) -> Batch[GroupT] | None:
        """Wait for the next step's batch, also while the previous one is trained.

        A batch is full unless the data or the step's attempts are used up. Groups that become too
        stale first are used first. Returns None when the data or the steps are used up, or the
        buffer is closed.

        Raises:
            BaseException: what `abort` was called with.
        """
        assert not self._taking, "one take at a time"
        self._taking = True
        self._settle()
        try:
            while not self._stopped() and not self._batches.all_taken(last=self._last()):
                if self._batches.ready(last=self._last()):
                    batch = self._batches.take()
                    self._settle()
                    return batch
                await self._changed.wait()
            return None
        finally:
            self._taking = False

    def commit(self, batch: Batch[GroupT]) -> None:
        """Finish the prompts of a trained batch, and those filtered before it."""
        self._batches.commit(batch)
        self._settle()

    def reset(self, state: Mapping[str, Any], step: int) -> None:
        """Roll back to a checkpoint: its data position, and the index of the step that follows it.

        All leases and batches end. So do the producers' versions, as the same number may now be of
        other weights: each must call `loaded` again. Producers whose `lease` returned () must
        lease again.

        Raises:
            InvalidInputError: the state is of other data.
        """
        self._source.load_state_dict(state)
        self._leases.end_all()
        self._batches.reset(step)
        self._waiting.forget_versions()
        self._settle()

    def close(self) -> None:
        """End the run: `lease` returns (), `take` None; batches may still be committed."""
        self._closed = True
        self._leases.end_all()
        self._batches.clear()
        self._settle()

    def abort(self, error: BaseException) -> None:
        """Fail the run: every `lease` and `take` raises the error."""
        self._error = error
        self._settle()

    def _stopped(self) -> bool:
        if self._error is not None:
            raise self._error
        return self._closed

    def _last(self) -> bool:
        """No more groups will be added."""
        return not self._leases and self._source.exhausted

    def _room(self, version: int) -> int:
        """Prompts that a producer with these weights may start now."""
        return startable(
            self._limits,
            version=version,
            next_step=self._batches.next_step,
            wanted=self._batches.wanted,
            in_flight=len(self._leases) + len(self._batches),
            take_pending=self._taking,
        )

    def _settle(self) -> None:
        """After every change: continue what waits for it."""
        if self._batches.over(last=self._last()):
            self._batches.finish_filtered()
        self._answer_calls()
        self._changed.notify()

    def _answer_calls(self) -> None:
        """Start prompts for the calls that wait, as far as there is room for them."""
        if self._error is not None or self._closed or self._batches.over(last=self._last()):
            for call in self._waiting:
                self._waiting.remove(call)
                call.end(self._error)
            return
        if self._source.exhausted:
            return
        for call, most in self._waiting.by_load(self._room, self._leases.unanswered):
            self._waiting.remove(call)
            call.answer.set_result(self._start(call.producer, most))
            if self._source.exhausted:
                return

    def _start(self, producer: str, count: int) -> tuple[Lease, ...]:
        leases: list[Lease] = []
        while len(leases) < count and (prompt := self._source.take()) is not None:
            leases.append(self._leases.open(prompt, producer))
        return tuple(leases)

    def _expire(self, lease: Lease) -> None:
        logger.warning("row %d: no completion from %s in time", lease.prompt.row, lease.producer)
        self.fail(lease)
