"""Writing the state of a run as a checkpoint."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from dataclasses import asdict

from grpo_trainer.events import CheckpointReport
from grpo_trainer.messages import ScoredGroup
from grpo_trainer.pipeline import RolloutBuffer
from grpo_trainer.spec import GRPOJobSpec

from .accounting import Ledger
from .checkpoints import Checkpoint, CheckpointStore
from .consumers import ConsumerGroup
from .model_files import write_model_files
from .prepare import Prepared


class CheckpointWriter:
    """Writes checkpoints, at most one for each step."""

    def __init__(
        self,
        store: CheckpointStore,
        consumers: ConsumerGroup,
        buffer: RolloutBuffer[ScoredGroup],
        prepared: Prepared,
        spec: GRPOJobSpec,
        scoring_errors: Counter[str],
    ) -> None:
        self._store = store
        self._consumers = consumers
        self._buffer = buffer
        self._prepared = prepared
        self._spec = spec
        self._scoring_errors = scoring_errors
        self._newest = store.newest()

    @property
    def newest(self) -> Checkpoint | None:
        """The newest checkpoint of this run."""
        return self._newest

    def refresh(self) -> Checkpoint | None:
        """Read the newest checkpoint from disk again, after a failure."""
        self._newest = self._store.newest()
        return self._newest

    async def write(
        self, step: int, ledger: Ledger, *, evaluation_pending: bool
    ) -> CheckpointReport | None:
        """Write the state after a step; returns None when there is nothing new to write.

        Raises OSError where the files cannot be written, ConsumersLostError as the consumers do.
        """
        if step == 0 or (self._newest is not None and self._newest.step == step):
            return None
        began = time.monotonic()
        state = {
            "step": step,
            "source": self._buffer.state_dict(),
            "ledger": asdict(ledger),
            "scoring_errors": dict(self._scoring_errors),
            "evaluation_pending": evaluation_pending,
        }
        partial = self._store.begin(step)
        try:
            await self._consumers.save(partial, step)

            def commit() -> Checkpoint:
                write_model_files(partial, self._prepared, self._spec)
                return self._store.commit(partial, step, state)

            self._newest = await asyncio.to_thread(commit)
        except OSError:
            # On a full disk this is the space that the summary and the logs need.
            shutil.rmtree(partial, ignore_errors=True)
            raise
        return CheckpointReport(step, str(self._newest.path), time.monotonic() - began)

    def record_evaluation(self, step: int, ledger: Ledger) -> None:
        """Note in the checkpoint of a step that its pending evaluation has ended."""
        if self._newest is not None and self._newest.step == step:
            changes = {"ledger": asdict(ledger), "evaluation_pending": False}
            self._newest.update_driver_state(changes)
