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
from collections.abc import Iterable, Mapping
from typing import Any, Generic

from grpo_trainer.events import GroupCounts

from .admission import Limits, fair_share, startable
from .batch import Batch, GroupT
from .collection import Collection
from .leases import Lease, LeaseBook
from .source import PromptOutcome, PromptSource, SourceState

logger = logging.getLogger(__name__)


class RolloutBuffer(Generic[GroupT]):
    """Leases prompts to producers, collects their groups, and returns them in batches.

    Each prompt has exactly one outcome: trained, filtered or dropped. No batch contains a group
    that was sampled more than `max_staleness` versions before.
    """

    def __init__(
        self,
        source: PromptSource,
        *,
        groups_per_step: int,
        capacity: int,
        max_staleness: int,
        max_steps: int | None,
        max_attempts: int,
        lease_seconds: float,
        first_step: int = 0,
        max_lease_attempts: int = 5,
    ) -> None:
        """
        Args:
            groups_per_step: groups of a full batch.
            capacity: groups that may be in flight while no take is pending.
            max_staleness: versions between sampling and training.
            max_steps: index at which the run ends; None trains on all of the source.
            max_attempts: a step generates at most this many times its groups; see `Collection`.
            lease_seconds: deadline of a lease.
            first_step: index of the first batch.
            max_lease_attempts: failed leases after which a prompt is dropped.
        """
        assert capacity >= 0 and max_staleness >= 0
        assert max_lease_attempts > 0 and lease_seconds > 0
        self._source = source
        self._limits = Limits(groups_per_step, capacity, max_staleness, max_steps)
        self._max_lease_attempts = max_lease_attempts

        self._versions: dict[str, int] = {}
        self._leases = LeaseBook(lease_seconds, self._expire)
        self._collection: Collection[GroupT] = Collection(groups_per_step, max_attempts)
        self._uncommitted: dict[int, Batch[GroupT]] = {}
        self._next_step = first_step
        self._episode = source.episode

        self._changed = asyncio.Event()
        self._leasing = 0
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
        return len(self._collection)

    @property
    def running(self) -> int:
        """Leases that have not ended."""
        return len(self._leases)

    @property
    def next_step(self) -> int:
        """Index of the next batch."""
        return self._next_step

    @property
    def episode(self) -> int:
        """Episode of the newest batch."""
        return self._episode

    @property
    def counts(self) -> GroupCounts:
        """Prompts by outcome; a filtered one counts at once, before its step."""
        done = self._source.counts
        filtered = self._collection.filtered + sum(
            len(b.filtered) for b in self._uncommitted.values()
        )
        return GroupCounts(done.trained, done.filtered + filtered, done.dropped, done.requeued)

    def state_dict(self) -> SourceState:
        """Position in the data after the last commit; a resumed run repeats what follows."""
        return self._source.state_dict()

    def loaded(self, producer: str, version: int) -> None:
        """Record the weights that a producer samples with; without them it gets no lease."""
        self._versions[producer] = version
        self._settle()

    async def lease(self, producer: str, limit: int) -> tuple[Lease, ...]:
        """Wait until at least one prompt may start, and take up to `limit` of those that may.

        Returns () when the buffer is closed, or all batches are committed. Waiting producers share
        what may start, in the order of their calls.

        Raises:
            BaseException: what `abort` was called with.
        """
        assert limit > 0
        self._leasing += 1
        try:
            while not self._stopped() and not self._over():
                share = fair_share(self._startable(producer), self._leasing)
                if share > 0 and not self._source.exhausted:
                    return self._start(producer, min(limit, share))
                await self._changed.wait()
            return ()
        finally:
            self._leasing -= 1

    def complete(self, lease: Lease, group: GroupT, *, keep: bool) -> bool:
        """Add a lease's group, or replace it if `keep` is False: dynamic sampling filters it.

        Returns False, and ignores the group, if the lease has ended: it failed, was released,
        passed its deadline, or began before a reset.
        """
        if not self._leases.end(lease):
            return False
        if keep:
            self._collection.add(lease.prompt, group)
            self._requeue_stale()
        else:
            self._collection.filter(lease.prompt, self._next_step)
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
        self._versions.pop(producer, None)
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
            while not self._stopped() and not self._all_handed_out():
                if self._ready():
                    return self._hand_out()
                await self._changed.wait()
            return None
        finally:
            self._taking = False

    def commit(self, batch: Batch[GroupT]) -> None:
        """Finish the prompts of a trained batch, and those filtered before it."""
        known = self._uncommitted.pop(batch.step, None)
        assert known is batch, f"batch {batch.step} is committed already or from before a reset"
        self._finish(batch.serials, PromptOutcome.TRAINED)
        self._finish(batch.filtered, PromptOutcome.FILTERED)
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
        self._forget_in_flight()
        self._uncommitted.clear()
        self._versions.clear()
        self._next_step = step
        self._episode = self._source.episode
        self._settle()

    def close(self) -> None:
        """End the run: `lease` returns (), `take` None; batches may still be committed."""
        self._closed = True
        self._forget_in_flight()
        self._settle()

    def abort(self, error: BaseException) -> None:
        """Fail the run: every `lease` and `take` raises the error."""
        self._error = error
        self._settle()

    def _stopped(self) -> bool:
        if self._error is not None:
            raise self._error
        return self._closed

    def _over(self) -> bool:
        return not self._uncommitted and self._all_handed_out()

    def _all_handed_out(self) -> bool:
        max_steps = self._limits.max_steps
        if max_steps is not None and self._next_step >= max_steps:
            return True
        return not self._collection and self._no_more_completions()

    def _no_more_completions(self) -> bool:
        return not self._leases and self._source.exhausted

    def _ready(self) -> bool:
        enough = len(self._collection) >= self._collection.wanted
        return enough or (bool(self._collection) and self._no_more_completions())

    def _startable(self, producer: str) -> int:
        if producer not in self._versions:
            return 0
        return startable(
            self._limits,
            version=self._versions[producer],
            next_step=self._next_step,
            wanted=self._collection.wanted,
            in_flight=len(self._leases) + len(self._collection),
            take_pending=self._taking,
        )

    def _settle(self) -> None:
        """After every change: wake all waiting calls, in their order."""
        if self._over():
            self._finish(self._collection.pop_filtered(), PromptOutcome.FILTERED)
        self._changed.set()
        self._changed.clear()

    def _start(self, producer: str, count: int) -> tuple[Lease, ...]:
        leases: list[Lease] = []
        while len(leases) < count and (prompt := self._source.take()) is not None:
            leases.append(self._leases.open(prompt, producer))
        return tuple(leases)

    def _expire(self, lease: Lease) -> None:
        logger.warning("row %d: no completion from %s in time", lease.prompt.row, lease.producer)
        self.fail(lease)

    def _requeue_stale(self) -> None:
        # Not a failure: counting it as one would drop the prompts with long completions.
        for prompt in self._collection.pop_stale(self._next_step - self._limits.max_staleness):
            self._source.requeue(prompt)

    def _hand_out(self) -> Batch[GroupT]:
        batch = self._collection.pop_batch(self._next_step)
        self._uncommitted[batch.step] = batch
        self._episode = batch.episode
        self._next_step += 1
        self._requeue_stale()
        self._settle()
        return batch

    def _finish(self, serials: Iterable[int], outcome: PromptOutcome) -> None:
        for serial in serials:
            self._source.finish(serial, outcome)

    def _forget_in_flight(self) -> None:
        self._leases.end_all()
        self._collection.clear()
