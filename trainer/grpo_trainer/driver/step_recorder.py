"""Recording a step: metrics, totals, logged rollouts and the number of producers wanted."""

from __future__ import annotations

from grpo_trainer.algorithm.batching import StepBatch
from grpo_trainer.events import PipelineState
from grpo_trainer.messages import ScoredGroup
from grpo_trainer.pipeline import Batch

from .accounting import Ledger, PhaseName
from .autoscale import Autoscaler, Sample
from .checkpoints import Checkpoint
from .consumers import TrainedStep
from .engine_check import EngineCheck
from .measure import logged_samples, step_report
from .producers import ProducerPool
from .run_context import RunContext
from .token_texts import TokenTexts


class StepRecorder:
    """Reports each step, keeps the totals and scales the producers."""

    def __init__(
        self,
        context: RunContext,
        pool: ProducerPool,
        engines: EngineCheck,
        autoscaler: Autoscaler | None,
        ledger: Ledger,
    ) -> None:
        self._context = context
        self._pool = pool
        self._engines = engines
        self._autoscaler = autoscaler
        self._busy_before = 0.0
        self._token_texts = TokenTexts(context.prepared.tokenizer)
        self.ledger = ledger

    def record(
        self,
        batch: Batch[ScoredGroup],
        micro_batches: StepBatch,
        trained: TrainedStep,
        seconds: float,
        phases: dict[str, float],
    ) -> None:
        """Report a step that took `seconds` of wall time."""
        context, step = self._context, batch.step + 1
        busy = self._busy_since_last_step()
        busy_each = busy / max(1, self._pool.desired)
        self.ledger.producer_seconds += busy_each
        state = PipelineState(
            buffer_depth=context.buffer.depth,
            buffer_capacity=context.buffer.capacity,
            groups=context.buffer.counts,
            producer_idle_ratio=min(1.0, max(0.0, 1 - busy_each / seconds)) if seconds else 0.0,
            publish_seconds=context.publisher.publish_seconds,
            apply_seconds=context.publisher.apply_seconds,
            delta_share=context.publisher.delta_share,
            weight_differences=context.publisher.differences,
            engine_mismatch=self._engines.mismatch,
            scoring_errors=dict(context.scoring_errors),
        )
        report = step_report(
            batch,
            micro_batches,
            trained,
            state,
            total_steps=context.prepared.total_steps,
            prompts=len(context.prepared.train.prompts) * context.spec.num_episodes,
            seconds=seconds,
            phases=phases,
        )
        self.ledger.add_step(report, trained.seconds)
        self.ledger.skipped_steps += trained.skipped
        if micro_batches.statistics.trained_samples > 0 and not trained.skipped:
            self.ledger.updates += 1
        context.reporter.step(report)
        if self.logs_rollouts(step):
            tokens = self._token_texts if context.spec.rollouts.tokens else None
            samples = logged_samples(batch.groups, micro_batches, trained.log_ratios, tokens)
            context.reporter.rollouts(step, samples)
        self._scale(Sample(seconds, phases[PhaseName.TAKE], busy, self._steps_ahead(step)))

    def logs_rollouts(self, step: int) -> bool:
        """Whether the completions of a step are written to the run directory."""
        interval = self._context.spec.rollouts.log_interval
        return interval > 0 and (step == 1 or step % interval == 0)

    def _busy_since_last_step(self) -> float:
        """Seconds that all producers together worked since the last step."""
        busy = self._pool.busy_seconds
        spent, self._busy_before = busy - self._busy_before, busy
        return spent

    def _steps_ahead(self, step: int) -> float | None:
        """Groups that are ready for the next steps, in steps; None on-policy, where none can be."""
        spec, buffer = self._context.spec, self._context.buffer
        if spec.buffer.max_staleness == 0:
            return None
        return buffer.next_step - step + buffer.depth / spec.groups_per_step

    def _scale(self, sample: Sample) -> None:
        if self._autoscaler is None:
            return
        count = self._autoscaler.observe(sample, self._pool.ready)
        if count is not None:
            self._pool.scale(count)


def restored_ledger(checkpoint: Checkpoint | None) -> Ledger:
    """The totals of a checkpoint, or empty ones."""
    if checkpoint is None:
        return Ledger()
    # A checkpoint of an earlier release does not count updates.
    return Ledger(**{"updates": checkpoint.step, **checkpoint.driver_state()["ledger"]})
