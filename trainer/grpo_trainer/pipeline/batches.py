"""The trainer's side of the buffer: scored groups become batches, batches have outcomes."""

from collections.abc import Iterable
from typing import Generic

from grpo_trainer.events import GroupCounts

from .admission import Limits
from .batch import Batch, GroupT
from .collection import Collection
from .source import PromptOutcome, PromptSource, ScheduledPrompt


class BatchQueue(Generic[GroupT]):
    """The groups of the next steps, and the batches that are taken but not committed.

    Methods that depend on what may still come take `last`: no more groups will be added.
    """

    def __init__(
        self, source: PromptSource, limits: Limits, *, max_attempts: int, first_step: int
    ) -> None:
        self._source = source
        self._limits = limits
        self._collection: Collection[GroupT] = Collection(limits.groups_per_step, max_attempts)
        self._uncommitted: dict[int, Batch[GroupT]] = {}
        self.next_step = first_step
        """Index of the next batch."""
        self.episode = source.episode
        """Episode of the newest batch."""

    def __len__(self) -> int:
        """Complete groups that no batch contains yet."""
        return len(self._collection)

    @property
    def wanted(self) -> int:
        """Groups that the next batch can use, at least one."""
        return self._collection.wanted

    @property
    def counts(self) -> GroupCounts:
        """Prompts by outcome; a filtered one counts at once, before its step."""
        done = self._source.counts
        taken = sum(len(batch.filtered) for batch in self._uncommitted.values())
        filtered = done.filtered + self._collection.filtered + taken
        return GroupCounts(done.trained, filtered, done.dropped, done.requeued)

    def add(self, prompt: ScheduledPrompt, group: GroupT) -> None:
        """Add a group; one that is too stale already is requeued."""
        self._collection.add(prompt, group)
        self._requeue_stale()

    def filter(self, prompt: ScheduledPrompt) -> None:
        """Replace a prompt's group."""
        self._collection.filter(prompt, self.next_step)

    def ready(self, *, last: bool) -> bool:
        """Whether the next batch is complete."""
        enough = len(self._collection) >= self._collection.wanted
        return enough or (bool(self._collection) and last)

    def all_taken(self, *, last: bool) -> bool:
        """Whether there is no next batch."""
        max_steps = self._limits.max_steps
        if max_steps is not None and self.next_step >= max_steps:
            return True
        return not self._collection and last

    def over(self, *, last: bool) -> bool:
        """Whether every batch is committed."""
        return not self._uncommitted and self.all_taken(last=last)

    def take(self) -> Batch[GroupT]:
        """The next batch, which must be ready."""
        batch = self._collection.pop_batch(self.next_step)
        self._uncommitted[batch.step] = batch
        self.episode = batch.episode
        self.next_step += 1
        self._requeue_stale()
        return batch

    def commit(self, batch: Batch[GroupT]) -> None:
        """Finish the prompts of a trained batch, and those filtered before it."""
        known = self._uncommitted.pop(batch.step, None)
        assert known is batch, f"batch {batch.step} is committed already or from before a reset"
        self._finish(batch.serials, PromptOutcome.TRAINED)
        self._finish(batch.filtered, PromptOutcome.FILTERED)

    def finish_filtered(self) -> None:
        """Finish the prompts that were filtered since the last batch; there will be no other."""
        self._finish(self._collection.pop_filtered(), PromptOutcome.FILTERED)

    def clear(self) -> None:
        """Forget the groups that no batch contains."""
        self._collection.clear()

    def reset(self, step: int) -> None:
        """Forget all groups and batches; the next batch is that of `step`."""
        self.clear()
        self._uncommitted.clear()
        self.next_step = step
        self.episode = self._source.episode

    def _requeue_stale(self) -> None:
        # Not a failure: counting it as one would drop the prompts with long completions.
        for prompt in self._collection.pop_stale(self.next_step - self._limits.max_staleness):
            self._source.requeue(prompt)

    def _finish(self, serials: Iterable[int], outcome: PromptOutcome) -> None:
        for serial in serials:
            self._source.finish(serial, outcome)
