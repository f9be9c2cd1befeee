"""The loop of a run: take -> train -> publish -> evaluate -> report -> checkpoint.

    producers --rollouts--> score --> buffer --take--> consumers --weights--> producers

The loop waits for a batch (`take`) and for the consumers (`train`); the next batch is collected,
weights are published and evaluations run in the background.
"""

from __future__ import annotations

import asyncio
import logging

from grpo_trainer.algorithm.batching import build_step

from .accounting import Ledger, PhaseName
from .background import cancel
from .checkpoints import Checkpoint
from .producers import ProducerPool
from .ray_calls import ConsumersLostError
from .run_context import RunContext
from .step_recorder import restored_ledger
from .step_runner import StepRunner, TrainingBatch

_log = logging.getLogger(__name__)

MAX_ROLLBACKS = 3
"""Restarts of the consumers without a step in between, after which the run fails."""


class TrainingLoop:
    """Runs the steps from the first or newest checkpoint to the end, or to a drain."""

    def __init__(
        self,
        context: RunContext,
        pool: ProducerPool,
        steps: StepRunner,
        origin: Checkpoint | None,
        drain: asyncio.Event,
    ) -> None:
        """`origin` is the checkpoint that this run starts from, of its own or of another run."""
        self._context = context
        self._pool = pool
        self._steps = steps
        self._origin = origin
        self._drain = drain
        self._resumed_from = origin

    @property
    def step(self) -> int:
        """Steps that are done."""
        return self._steps.step

    @property
    def ledger(self) -> Ledger:
        """The totals so far."""
        return self._steps.recorder.ledger

    async def run(self) -> None:
        """Train until the data or the steps are used up, or a drain is requested.

        Lost consumers restart from the newest checkpoint; the producers keep running.
        """
        rollbacks, reached = 0, -1
        while True:
            try:
                if await self._start_unless_drained():
                    await self._train()
                return
            except ConsumersLostError as error:
                rollbacks = rollbacks + 1 if self.step <= reached else 1
                reached = max(reached, self.step)
                if rollbacks > MAX_ROLLBACKS:
                    raise
                await self._roll_back(error)

    async def _start_unless_drained(self) -> bool:
        """Start; False when a drain came first: the state on disk is then the newest there is."""
        starting = asyncio.create_task(self._start())
        drain = asyncio.create_task(self._drain.wait())
        try:
            await asyncio.wait({starting, drain}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
            return starting.done()
        finally:
            drain.cancel()
            if not starting.done():
                await cancel(starting)
                await self._steps.cancel_background()

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
        await self._steps.engines.run(self.step)
        self._steps.clock.lap()
        if self.step == 0 or (origin and origin.driver_state()["evaluation_pending"]):
            await self._steps.evaluate()

    async def _train(self) -> None:
        """Step after step; on the way out all background work is cancelled."""
        take = asyncio.create_task(self._take())
        try:
            while True:
                with self._steps.clock.phase(PhaseName.TAKE):
                    taken = await self._wait_for_batch(take)
                if taken is None:
                    break
                take = asyncio.create_task(self._take())
                await self._steps.run(taken)
            await (self._steps.drain() if self._drain.is_set() else self._steps.finish())
        finally:
            await cancel(take)
            await self._steps.cancel_background()

    async def _take(self) -> TrainingBatch | None:
        """The next batch, arranged for the consumers while they train on the previous one."""
        context = self._context
        batch = await context.buffer.take()
        if batch is None:
            return None
        # In a thread: millions of tokens are copied, while producers wait for prompts.
        micro_batches = await asyncio.to_thread(
            build_step,
            batch.groups,
            data_parallel=context.spec.data_parallel_size,
            microbatch=context.spec.batch.train_microbatch_size,
            microbatch_tokens=context.spec.batch.train_microbatch_tokens,
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
                running = [b.task for b in self._steps.background if b.task and b.running]
                await asyncio.wait({take, drain, *running}, return_when=asyncio.FIRST_COMPLETED)
                for background in self._steps.background:
                    background.check()
            return None if self._drain.is_set() else take.result()
        finally:
            drain.cancel()

    async def _roll_back(self, error: ConsumersLostError) -> None:
        """Return buffer, weights and totals to the newest checkpoint."""
        context = self._context
        _log.warning("the consumers were lost and restart: %s", error)
        context.reporter.restart("consumer")
        context.consumers.kill()
        await context.publisher.reset()
        origin = context.checkpoints.refresh() or self._origin
        self._resumed_from = origin
        self._steps.step = origin.step if origin else 0
        self._steps.recorder.ledger = restored_ledger(origin)
        source = origin.driver_state()["source"] if origin else context.first_source
        context.buffer.reset(source, self.step)
