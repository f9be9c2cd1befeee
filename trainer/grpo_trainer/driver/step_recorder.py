"""The books of a run: what each step's parts come to, reported and added up."""

from __future__ import annotations

from grpo_trainer.algorithm.batching import StepBatch
from grpo_trainer.messages import ScoredGroup
from grpo_trainer.pipeline import Batch

from .accounting import Ledger, PhaseName
from .autoscale import Autoscaler, Sample
from .checkpoints import Checkpoint
from .consumers import TrainedStep
from .measure import PipelineState, logged_samples, step_report
from .producers import ProducerPool
from .run_context import RunContext


class StepRecorder:
    """Reports steps, keeps the totals, and follows how many producers the run wants."""

    def __init__(
        self, parts: RunContext, pool: ProducerPool, autoscaler: Autoscaler | None, ledger: Ledger
    ) -> None:
        self._parts = parts
        self._pool = pool
        self._autoscaler = autoscaler
        self._producer_busy = 0.0
        self.ledger = ledger
        self.publish_seconds: float | None = None
        """Time to publish the newest weights."""

    def record(
        self,
        batch: Batch[ScoredGroup],
        built: StepBatch,
        trained: TrainedStep,
        seconds: float,
        phases: dict[str, float],
    ) -> None:
        """Report a step that took `seconds` of wall time."""
        parts, step = self._parts, batch.step + 1
        busy = self._busy_since()
        share = busy / max(1, self._pool.desired)
        self.ledger.producer_seconds += share
        state = PipelineState(
            depth=parts.buffer.depth,
            capacity=parts.buffer.capacity,
            counts=parts.buffer.counts,
            producer_idle_ratio=min(1.0, max(0.0, 1 - share / seconds)) if seconds else 0.0,
            publish_seconds=self.publish_seconds,
            apply_seconds=self._pool.apply_seconds,
            scoring_errors=dict(parts.scoring_errors),
        )
        report = step_report(
            batch,
            built,
            trained,
            state,
            total_steps=parts.prepared.total_steps,
            prompts=len(parts.prepared.train.prompts) * parts.spec.num_episodes,
            seconds=seconds,
            phases=phases,
        )
        self.ledger.add_step(report, trained.seconds)
        parts.reporter.step(report)
        interval = parts.spec.rollouts.log_interval
        if interval > 0 and (step == 1 or step % interval == 0):
            samples = logged_samples(batch.groups, built.statistics.advantages)
            parts.reporter.rollouts(step, samples)
        self._scale(Sample(seconds, phases[PhaseName.TAKE], busy, self._ahead(step)))

    def _busy_since(self) -> float:
        """Seconds that all producers together were at work since the last step."""
        busy = self._pool.busy_seconds
        spent, self._producer_busy = busy - self._producer_busy, busy
        return spent

    def _ahead(self, step: int) -> float | None:
        """How much of the next steps' groups is there, in steps; None where it cannot be."""
        spec, buffer = self._parts.spec, self._parts.buffer
        if spec.buffer.max_staleness == 0:
            return None
        return buffer.next_step - step + buffer.depth / spec.groups_per_step

    def _scale(self, sample: Sample) -> None:
        if self._autoscaler is None:
            return
        count = self._autoscaler.observe(sample, self._pool.ready)
        if count is not None:
            self._pool.want(count)


def ledger_of(checkpoint: Checkpoint | None) -> Ledger:
    """The totals as they stood at a checkpoint."""
    if checkpoint is None:
        return Ledger()
    return Ledger(**checkpoint.driver_state()["ledger"])
