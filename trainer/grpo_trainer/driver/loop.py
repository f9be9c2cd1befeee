"""The loop of a run: take -> train -> publish -> evaluate -> report -> checkpoint.

    producers --rollouts--> score --> buffer --take--> consumers --weights--> producers

The loop waits for a batch (`take`) and for the consumers (`train`); the next batch is collected,
weights are published and evaluations run in the background.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from grpo_trainer.algorithm.batching import StepBatch, build_step
from grpo_trainer.algorithm.schedule import learning_rate
from grpo_trainer.algorithm.totals import LossSums
from grpo_trainer.events import EvaluationReport
from grpo_trainer.messages import ScoredGroup
from grpo_trainer.pipeline import Batch

from .accounting import Ledger, PhaseClock, PhaseName
from .background import BackgroundTask, cancel
from .checkpoints import Checkpoint
from .consumers import TrainedStep
from .evaluation import Evaluator
from .producers import ProducerPool
from .ray_calls import ConsumersLostError
from .run_context import RunContext
from .step_recorder import StepRecorder, restored_ledger

_log = logging.getLogger(__name__)

MAX_ROLLBACKS = 3
"""Restarts of the consumers without a step in between, after which the run fails."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingBatch:
    """The groups of a step, and the micro-batches that they make."""

    batch: Batch[ScoredGroup]
    micro_batches: StepBatch


class TrainingLoop:
    """Runs the steps from the first or newest checkpoint to the end, or to a drain."""

    def __init__(
        self,
        context: RunContext,
        pool: ProducerPool,
        evaluator: Evaluator | None,
        recorder: StepRecorder,
        origin: Checkpoint | None,
        drain: asyncio.Event,
    ) -> None:
        self._context = context
        self._pool = pool
        self._evaluator = evaluator
        self._recorder = recorder
        self._origin = origin
        self._drain = drain
        self._clock = PhaseClock()
        self._statistics = BackgroundTask()
        self._resumed_from = origin
        self.step = origin.step if origin else 0

    @property
    def ledger(self) -> Ledger:
        """The totals so far."""
        return self._recorder.ledger

    async def run(self) -> None:
        """Train until the data or the steps are used up, or a drain is requested.

        Lost consumers restart from the newest checkpoint; the producers keep running.
        """
        rollbacks, reached = 0, -1
        while True:
            try:
                await self._start()
                await self._train()
                return
            except ConsumersLostError as error:
                rollbacks = rollbacks + 1 if self.step <= reached else 1
                reached = max(reached, self.step)
                if rollbacks > MAX_ROLLBACKS:
                    raise
                await self._roll_back(error)

    async def _start(self) -> None:
        """Start the consumers at the newest checkpoint and publish its weights."""
        context, origin = self._context, self._resumed_from
        weights = str(origin.path) if origin else context.prepared.model_path
        context.reporter.message(
            f"resuming after step {origin.step}" if origin else "starting the consumers"
        )
        await context.consumers.start(
            lambda rank: context.policy(rank, weights), origin.trainer_state if origin else None
        )
        context.reporter.begin(self.step, context.prepared.total_steps)
        await context.consumers.snapshot(self.step)
        await context.publisher.publish(self.step, keep=True)
        await self._pool.wait_available()
        self._clock.lap()
        if self.step == 0 or (origin and origin.driver_state()["evaluation_pending"]):
            await self._evaluate()

    async def _train(self) -> None:
        """Step after step; on the way out all background work is cancelled."""
        take = asyncio.create_task(self._take())
        try:
            while True:
                with self._clock.phase(PhaseName.TAKE):
                    taken = await self._wait_for_batch(take)
                if taken is None:
                    break
                take = asyncio.create_task(self._take())
                await self._run_step(taken)
            await self._finish()
        finally:
            await cancel(take)
            for background in (*self._background(), self._statistics):
                await background.cancel()

    def _background(self) -> list[BackgroundTask]:
        """Work whose failure ends the loop."""
        publishing = self._context.publisher.background
        return [publishing, *([self._evaluator.background] if self._evaluator else ())]

    async def _take(self) -> TrainingBatch | None:
        """The next batch, arranged for the consumers while they train on the previous one."""
        context = self._context
        batch = await context.buffer.take()
        if batch is None:
            return None
        micro_batches = build_step(
            batch.groups,
            data_parallel=context.spec.data_parallel_size,
            microbatch=context.spec.batch.train_microbatch_size,
            algorithm=context.algorithm,
            pad_token_id=context.prepared.pad_token_id,
        )
        return TrainingBatch(batch, micro_batches)

    async def _wait_for_batch(
        self, take: asyncio.Task[TrainingBatch | None]
    ) -> TrainingBatch | None:
        """The next batch, or None once a drain is requested; failures in the background end it."""
        drain = asyncio.create_task(self._drain.wait())
        try:
            while not take.done() and not self._drain.is_set():
                running = [b.task for b in self._background() if b.task and b.running]
                await asyncio.wait({take, drain, *running}, return_when=asyncio.FIRST_COMPLETED)
                for background in self._background():
                    background.check()
            return None if self._drain.is_set() else take.result()
        finally:
            drain.cancel()

    async def _run_step(self, taken: TrainingBatch) -> None:
        context, clock, batch = self._context, self._clock, taken.batch
        with clock.phase(PhaseName.TRAIN):
            trained = await self._optimize(taken.micro_batches, batch.step)
        context.buffer.commit(batch)
        self.step = batch.step + 1
        evaluation_due = self._due(context.spec.evaluation.interval)
        with clock.phase(PhaseName.PUBLISH):
            await context.publisher.publish(self.step, keep=evaluation_due)
        with clock.phase(PhaseName.EVALUATE):
            if evaluation_due:
                await self._evaluate()
        # Reported before the checkpoint: no step of a checkpoint is missing in the metrics.
        with clock.phase(PhaseName.REPORT):
            self._recorder.record(batch, taken.micro_batches, trained, *clock.lap())
            if not self._statistics.running:
                self._statistics.start(self._pool.refresh_stats())
        with clock.phase(PhaseName.CHECKPOINT):
            if self._due(context.spec.checkpoint.interval):
                await self._checkpoint()

    async def _optimize(self, micro_batches: StepBatch, step: int) -> TrainedStep:
        context = self._context
        if micro_batches.statistics.trained_samples == 0:
            # Without a gradient Adam would still move the weights by its momentum.
            await context.consumers.snapshot(step + 1)
            rate = learning_rate(step, context.prepared.total_steps, context.algorithm)
            return TrainedStep(LossSums(), gradient_norm=0.0, learning_rate=rate, seconds=0.0)
        return await context.consumers.train(micro_batches, step)

    async def _evaluate(self) -> None:
        """Begin an evaluation of the newest version, after the one that still runs."""
        if self._evaluator is not None:
            await self._evaluator.start(self.step, self._on_evaluation)

    def _on_evaluation(self, report: EvaluationReport) -> None:
        self.ledger.add_evaluation(report)
        self._context.reporter.evaluation(report)

    async def _checkpoint(self) -> None:
        """Write the state after the current step, once."""
        pending = self._evaluator is not None and self._evaluator.background.running
        report = await self._context.checkpoints.write(
            self.step, self.ledger, evaluation_pending=pending
        )
        if report is not None:
            self._context.reporter.checkpoint(report)

    async def _finish(self) -> None:
        """The last evaluation and the last checkpoint.

        A drain does not wait for an evaluation: the resumed run repeats it.
        """
        await self._context.publisher.background.join()
        if self._evaluator is not None and not self._drain.is_set():
            if not self._due(self._context.spec.evaluation.interval):
                await self._evaluate()
            await self._evaluator.background.join()
        await self._checkpoint()

    async def _roll_back(self, error: ConsumersLostError) -> None:
        """Return buffer, weights and totals to the newest checkpoint."""
        context = self._context
        _log.warning("the consumers were lost and restart: %s", error)
        context.reporter.restart("consumer")
        context.consumers.kill()
        await context.publisher.reset()
        origin = context.checkpoints.refresh() or self._origin
        self._resumed_from = origin
        self.step = origin.step if origin else 0
        self._recorder.ledger = restored_ledger(origin)
        source = origin.driver_state()["source"] if origin else context.first_source
        context.buffer.reset(source, self.step)

    def _due(self, interval: int) -> bool:
        return interval > 0 and self.step % interval == 0
