"""One step: train -> publish -> evaluate -> report -> checkpoint; and the end of a run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from grpo_trainer.algorithm.batching import StepBatch
from grpo_trainer.algorithm.schedule import learning_rate
from grpo_trainer.algorithm.totals import LossSums
from grpo_trainer.events import EvaluationReport
from grpo_trainer.messages import ScoredGroup
from grpo_trainer.pipeline import Batch

from .accounting import PhaseClock, PhaseName
from .background import BackgroundTask
from .consumers import TrainedStep
from .engine_check import EngineCheck
from .evaluation import Evaluator
from .producers import ProducerPool
from .run_context import RunContext
from .skipped_batch import write_skipped_batch
from .step_recorder import StepRecorder

DRAIN_EVALUATION_SECONDS = 30.0
"""How long a drained run waits for the evaluation in progress."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingBatch:
    """The groups of a step, and the micro-batches that they make."""

    batch: Batch[ScoredGroup]
    micro_batches: StepBatch


class StepRunner:
    """Runs steps, and writes what they leave: weights, reports, evaluations, checkpoints."""

    def __init__(
        self,
        context: RunContext,
        pool: ProducerPool,
        evaluator: Evaluator | None,
        recorder: StepRecorder,
        engines: EngineCheck,
        step: int,
    ) -> None:
        self._context = context
        self._pool = pool
        self._evaluator = evaluator
        self._statistics = BackgroundTask()
        self.recorder = recorder
        self.engines = engines
        self.clock = PhaseClock()
        self.step = step
        """Steps that are done."""

    @property
    def background(self) -> list[BackgroundTask]:
        """The work whose failure ends the loop."""
        publishing = self._context.publisher.background
        return [publishing, *([self._evaluator.background] if self._evaluator else ())]

    async def cancel_background(self) -> None:
        """Cancel all background work."""
        for background in (*self.background, self._statistics):
            await background.cancel()

    async def run(self, taken: TrainingBatch) -> None:
        """Train on a batch and process the result."""
        context, clock, batch = self._context, self.clock, taken.batch
        with clock.phase(PhaseName.TRAIN):
            trained = await self._optimize(taken.micro_batches, batch.step)
        context.buffer.commit(batch)
        self.step = batch.step + 1
        evaluation_due = self._due(context.spec.evaluation.interval)
        with clock.phase(PhaseName.PUBLISH):
            await context.publisher.publish(self.step, keep=evaluation_due)
            if self.engines.due(self.step):
                await self.engines.run(self.step)
        with clock.phase(PhaseName.EVALUATE):
            if evaluation_due:
                await self.evaluate()
        # Reported before the checkpoint: no step of a checkpoint is missing in the metrics.
        with clock.phase(PhaseName.REPORT):
            self.recorder.record(batch, taken.micro_batches, trained, *clock.lap())
            if not self._statistics.running:
                self._statistics.start(self._pool.refresh_stats())
        # After the report: the step that ends the run is in the metrics, too.
        if trained.skipped:
            saved = write_skipped_batch(context.logs, self.step, taken.micro_batches)
            context.health.step_skipped(self.step, saved)
        else:
            context.health.step_trained()
        with clock.phase(PhaseName.CHECKPOINT):
            if self._due(context.spec.checkpoint.interval):
                await self.checkpoint()

    async def evaluate(self) -> None:
        """Begin an evaluation of the newest version, after the one that still runs."""
        if self._evaluator is not None:
            await self._evaluator.start(self.step, self._on_evaluation)

    async def checkpoint(self) -> None:
        """Write the state after the current step, once."""
        pending = self._evaluator is not None and self._evaluator.background.running
        report = await self._context.checkpoints.write(
            self.step, self.recorder.ledger, evaluation_pending=pending
        )
        if report is not None:
            self._context.reporter.checkpoint(report)

    async def finish(self) -> None:
        """The last evaluation and the last checkpoint, after the data or the steps are used up.

        Raises InvalidInputError or RunFailedError for a run that has trained on nothing.
        """
        await self._context.publisher.background.join()
        if self.step == 0:
            self._check_progress()  # before an evaluation, which no producer may be left to serve
        if self._evaluator is not None:
            if not self._due(self._context.spec.evaluation.interval):
                await self.evaluate()
            await self._evaluator.background.join()
        await self.checkpoint()
        self._check_progress()

    async def drain(self) -> None:
        """The checkpoint, then a little time for the evaluation in progress.

        In this order, as a drained process may be killed at any moment. The resumed run repeats an
        unfinished evaluation.
        """
        await self._context.publisher.background.join()
        await self.checkpoint()
        if self._evaluator is None or self.step == 0 or not self._evaluator.background.running:
            return
        try:
            async with asyncio.timeout(DRAIN_EVALUATION_SECONDS):
                await self._evaluator.background.join()
        except TimeoutError:
            self._context.reporter.message("the evaluation is repeated when the run resumes")
            return
        self._context.checkpoints.record_evaluation(self.step, self.recorder.ledger)

    async def _optimize(self, micro_batches: StepBatch, step: int) -> TrainedStep:
        context = self._context
        if micro_batches.statistics.trained_samples == 0:
            # Without a gradient Adam would still move the weights by its momentum.
            await context.consumers.snapshot(step + 1)
            rate = learning_rate(step, context.prepared.total_steps, context.algorithm)
            return TrainedStep(LossSums(), gradient_norm=0.0, learning_rate=rate, seconds=0.0)
        with_log_ratios = context.spec.rollouts.tokens and self.recorder.logs_rollouts(step + 1)
        return await context.consumers.train(micro_batches, step, with_log_ratios=with_log_ratios)

    def _on_evaluation(self, report: EvaluationReport) -> None:
        self.recorder.ledger.add_evaluation(report)
        self._context.reporter.evaluation(report)

    def _check_progress(self) -> None:
        context, updates = self._context, self.recorder.ledger.updates
        context.health.check_progress(self.step, updates, context.buffer.counts)

    def _due(self, interval: int) -> bool:
        return interval > 0 and self.step % interval == 0
