"""What a run reports of itself while it is assembled, trains and ends."""

from __future__ import annotations

from pathlib import Path

from grpo_trainer.events import Outcome, Summary, WorkerReport
from grpo_trainer.reporting import Reporter, RunPaths
from grpo_trainer.spec import GRPOJobSpec

from .accounting import Ledger
from .checkpoints import CheckpointStore
from .consumers import ConsumerGroup
from .loop import TrainingLoop
from .producers import PoolEvents, ProducerPool
from .stacks import write_stacks


class RunView:
    """The components of a run, each from the moment that it exists."""

    def __init__(
        self, spec: GRPOJobSpec, reporter: Reporter, paths: RunPaths, store: CheckpointStore
    ) -> None:
        self._spec = spec
        self._reporter = reporter
        self._paths = paths
        self._store = store
        self.total_steps = 0
        self.consumers: ConsumerGroup | None = None
        self.pool: ProducerPool | None = None
        self.loop: TrainingLoop | None = None
        self.ending = False
        """Set before workers are stopped: their end is then no news."""

    def report_workers(self) -> None:
        """Report how many workers are ready."""
        if self.ending:
            return
        self._reporter.workers(
            WorkerReport(
                producers_ready=self.pool.ready if self.pool else 0,
                producers_desired=self.pool.desired if self.pool else 0,
                consumers_ready=self.consumers.ready if self.consumers else 0,
                consumers_desired=self._spec.consumer_processes,
                producers_wanted=self.pool.wanted if self.pool else None,
            )
        )

    def pool_events(self) -> PoolEvents:
        """The events of the producers that are reported."""
        return PoolEvents(
            changed=self.report_workers,
            restarted=lambda: self._reporter.restart("producer"),
            message=self._reporter.message,
        )

    async def write_stacks(self) -> Path:
        """Write the stacks of the driver and its actors; returns the file."""
        consumers = self.consumers.actors if self.consumers else {}
        producers = self.pool.actors if self.pool else {}
        return await write_stacks({**consumers, **producers}, self._paths.logs)

    def summary(self, outcome: Outcome, message: str, seconds: float) -> Summary:
        """The run so far."""
        ledger = self.loop.ledger if self.loop else Ledger()
        newest = self._store.newest()
        return ledger.summary(
            outcome,
            message=message,
            steps=self.loop.step if self.loop else 0,
            total_steps=self.total_steps,
            wall_seconds=seconds,
            newest_checkpoint=str(newest.path) if newest else None,
            run_directory=str(self._paths.root),
        )
