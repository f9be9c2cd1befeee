"""The loop of a run: take -> train -> publish -> evaluate -> report -> checkpoint.

    producers --rollouts--> score --> buffer --take--> consumers --weights--> producers

Who waits for whom: the loop waits for a batch (`take`) and for the consumers (`train`); the next
batch is collected, weights are sent and evaluations are answered meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import asdict
from typing import Any

from grpo_trainer.algorithm.batching import StepBatch, build_step
from grpo_trainer.algorithm.totals import LossSums
from grpo_trainer.consumer.policy import learning_rate
from grpo_trainer.events import CheckpointReport
from grpo_trainer.messages import ScoredGroup
from grpo_trainer.pipeline import Batch

from .accounting import Ledger, PhaseClock, PhaseName
from .autoscale import Autoscaler
from .checkpoints import Checkpoint
from .consumers import ConsumersLostError, TrainedStep
from .evaluation import Evaluator
from .model_files import write_model_files
from .producers import ProducerPool
from .run_context import RunContext
from .step_recorder import StepRecorder, ledger_of
from .weight_publisher import WeightPublisher

_log = logging.getLogger(__name__)

MAX_ROLLBACKS = 3
"""Restarts of the consumers without a step in between, after which the run fails."""

Taken = tuple[Batch[ScoredGroup], StepBatch]
"""Groups as they came out of the buffer, and as the consumers take them."""


class TrainingLoop:
    """Leads a run from its first or latest checkpoint to its end, or to a drain."""

    def __init__(
        self,
        parts: RunContext,
        pool: ProducerPool,
        delivery: WeightPublisher,
        evaluator: Evaluator | None,
        autoscaler: Autoscaler | None,
        origin: Checkpoint | None,
        drain: asyncio.Event,
    ) -> None:
        self._parts = parts
        self._pool = pool
        self._delivery = delivery
        self._evaluator = evaluator
        self._origin = origin
        self._drain = drain
        self._clock = PhaseClock()
        self._publishing: asyncio.Task[None] | None = None
        self._evaluating: asyncio.Task[None] | None = None
        self._measuring: asyncio.Task[None] | None = None
        # A checkpoint of this run need not be written again; one of another run is not its own.
        own = parts.store.newest()
        self._saved = own.step if own else -1
        self._books = StepRecorder(parts, pool, autoscaler, ledger_of(origin))
        self.step = origin.step if origin else 0
        self.newest_checkpoint = origin

    @property
    def ledger(self) -> Ledger:
        """The totals so far."""
        return self._books.ledger

    async def run(self) -> None:
        """Train until the data or the steps are used up, or somebody asks for a drain.

        Consumers that are lost start again from the newest checkpoint; the producers stay.
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
        """Bring up the consumers at the newest checkpoint and hand its weights to the producers."""
        parts, origin = self._parts, self.newest_checkpoint
        weights = str(origin.path) if origin else parts.prepared.model_path
        parts.reporter.message(
            f"resuming after step {origin.step}" if origin else "starting the consumers"
        )
        await parts.consumers.start(
            lambda rank: parts.policy(rank, weights), origin.trainer_state if origin else None
        )
        parts.reporter.begin(self.step, parts.prepared.total_steps)
        await parts.consumers.snapshot(self.step)
        self._publish(self.step, keep=True)
        await self._pool.available()
        self._clock.lap()
        if self.step == 0 or (origin and origin.driver_state()["evaluation_pending"]):
            await self._evaluate()

    async def _train(self) -> None:
        """Step after step; on the way out everything that was begun is ended."""
        take = asyncio.create_task(self._take())
        try:
            while True:
                with self._clock.phase(PhaseName.TAKE):
                    taken = await self._unless_drained(take)
                if taken is None:
                    break
                take = asyncio.create_task(self._take())
                await self._one_step(*taken)
            await self._end()
        finally:
            for task in (take, self._publishing, self._evaluating, self._measuring):
                await _cancelled(task)
            self._publishing = self._evaluating = self._measuring = None

    async def _take(self) -> Taken | None:
        """The next batch, arranged for the consumers while they still train on the last one."""
        parts = self._parts
        batch = await parts.buffer.take()
        if batch is None:
            return None
        built = build_step(
            batch.groups,
            data_parallel=parts.spec.data_parallel_size,
            microbatch=parts.spec.batch.train_microbatch_size,
            algorithm=parts.algorithm,
            pad_token_id=parts.prepared.pad_token_id,
        )
        return batch, built

    async def _one_step(self, batch: Batch[ScoredGroup], built: StepBatch) -> None:
        parts, clock = self._parts, self._clock
        with clock.phase(PhaseName.TRAIN):
            trained = await self._optimize(built, batch.step)
        parts.buffer.commit(batch)
        self.step = batch.step + 1
        with clock.phase(PhaseName.PUBLISH):
            await self._finished(self._publishing)
            self._publish(self.step, keep=self._due(parts.spec.evaluation.interval))
        with clock.phase(PhaseName.EVALUATE):
            if self._due(parts.spec.evaluation.interval):
                await self._evaluate()
        # Reported first: a checkpoint that knows a step must not be without its line in the books.
        with clock.phase(PhaseName.REPORT):
            self._books.record(batch, built, trained, *clock.lap())
            if self._measuring is None or self._measuring.done():
                self._measuring = asyncio.create_task(self._pool.refresh_stats())
        with clock.phase(PhaseName.CHECKPOINT):
            if self._due(parts.spec.checkpoint.interval):
                await self._checkpoint()

    async def _optimize(self, built: StepBatch, step: int) -> TrainedStep:
        if built.statistics.trained_samples == 0:
            # Adam would go on by its momentum, on no evidence.
            await self._parts.consumers.snapshot(step + 1)
            peak, total = self._parts.algorithm.learning_rate, self._parts.prepared.total_steps
            rate = learning_rate(step, total, peak)
            return TrainedStep(LossSums(), gradient_norm=0.0, learning_rate=rate, seconds=0.0)
        return await self._parts.consumers.train(built, step)

    def _publish(self, version: int, *, keep: bool) -> None:
        """Send a version to the producers while training goes on; an evaluation needs it kept."""

        async def send() -> None:
            self._books.publish_seconds = await self._delivery.send(version, keep=keep)

        self._publishing = asyncio.create_task(send())

    async def _evaluate(self) -> None:
        """Begin an evaluation of the newest version, after the one that may still run."""
        if self._evaluator is None:
            return
        await self._finished(self._evaluating)
        self._evaluating = asyncio.create_task(self._evaluation(self._evaluator, self.step))

    async def _evaluation(self, evaluator: Evaluator, version: int) -> None:
        for report in await evaluator.evaluate(version):
            self.ledger.add_evaluation(report)
            self._parts.reporter.evaluation(report)

    async def _checkpoint(self) -> None:
        """Write the state after the current step, once."""
        parts, step = self._parts, self.step
        if self._saved == step or step == 0:
            return
        began = time.monotonic()
        partial = parts.store.begin(step)
        await parts.consumers.save(partial, step)
        state = {
            "step": step,
            "source": parts.buffer.state_dict(),
            "ledger": asdict(self.ledger),
            "scoring_errors": dict(parts.scoring_errors),
            "evaluation_pending": self._evaluating is not None and not self._evaluating.done(),
        }

        def commit() -> Checkpoint:
            write_model_files(partial, parts.prepared, parts.spec)
            return parts.store.commit(partial, step, state)

        self.newest_checkpoint = await asyncio.to_thread(commit)
        self._saved = step
        seconds = time.monotonic() - began
        path = str(self.newest_checkpoint.path)
        parts.reporter.checkpoint(CheckpointReport(step, path, seconds))

    async def _end(self) -> None:
        """The last evaluation and the last checkpoint.

        A run that was asked to stop waits for no evaluation: it is made up for when it goes on.
        """
        await self._finished(self._publishing)
        if not self._drain.is_set():
            if not self._due(self._parts.spec.evaluation.interval):
                await self._evaluate()
            await self._finished(self._evaluating)
        await self._checkpoint()

    async def _roll_back(self, error: ConsumersLostError) -> None:
        """Return buffer, producers and books to the newest checkpoint."""
        parts = self._parts
        _log.warning("the consumers were lost and start again: %s", error)
        parts.reporter.restart("consumer")
        parts.consumers.kill()
        await self._pool.withdraw_weights()
        origin = parts.store.newest() or self._origin
        self.newest_checkpoint = origin
        self.step = self._saved = origin.step if origin else 0
        self._books.ledger = ledger_of(origin)
        source = origin.driver_state()["source"] if origin else parts.first_source
        parts.buffer.reset(source, self.step)

    def _due(self, interval: int) -> bool:
        return interval > 0 and self.step % interval == 0

    async def _unless_drained(self, take: asyncio.Task[Taken | None]) -> Taken | None:
        """The next batch, or None once a drain was asked for; faults of what runs beside end it."""
        drain = asyncio.create_task(self._drain.wait())
        beside = [t for t in (self._publishing, self._evaluating) if t is not None]
        try:
            while not take.done() and not self._drain.is_set():
                waiting = [t for t in beside if not t.done()]
                await asyncio.wait({take, drain, *waiting}, return_when=asyncio.FIRST_COMPLETED)
                for task in beside:
                    await self._finished(task if task.done() else None)
            return None if self._drain.is_set() else take.result()
        finally:
            drain.cancel()

    @staticmethod
    async def _finished(task: asyncio.Task[None] | None) -> None:
        if task is not None:
            await task


async def _cancelled(task: asyncio.Task[Any] | None) -> None:
    """End a task and wait until it has; what it raised was raised before or no longer matters."""
    if task is None:
        return
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()
