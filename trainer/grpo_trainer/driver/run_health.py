"""Detects a run in which nothing works, so that systematic failure is never taken for success.

Single failures are retried elsewhere: a prompt is requeued, a producer restarts, an unscored
completion is masked. Here the same failures are counted while no success comes in between; the
scorer counts those of the reward.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from grpo_trainer.errors import InvalidInputError, RunFailedError
from grpo_trainer.events import GroupCounts

MAX_ENGINE_ERRORS = 3
"""Times that one producer's engine raises, without a rollout of any producer in between."""
MAX_PROCESS_LOSSES = 5
"""Times that one producer's process dies at work, likewise: its node may be at fault."""
MAX_SKIPPED_STEPS = 5
"""Consecutive steps whose gradients are not finite."""


class RunHealth:
    """Counts consecutive failures; each method that counts one raises at its bound."""

    def __init__(self) -> None:
        self._engine_error = ""
        self._losses: Counter[str] = Counter()
        """By producer, since the last rollout of any."""
        self._skipped_steps = 0

    def rollout_received(self) -> None:
        """A producer returned a rollout."""
        self._losses.clear()

    def producer_lost(self, name: str, error: str, *, raised: bool) -> None:
        """A producer was lost while it worked on prompts: its engine raised, or its process died.

        Raises RunFailedError at the bound, with the first error.
        """
        self._engine_error = self._engine_error or f"{name}: {error}"
        self._losses[name] += 1
        if self._losses[name] >= (MAX_ENGINE_ERRORS if raised else MAX_PROCESS_LOSSES):
            raise RunFailedError(
                f"{name} failed {self._losses[name]} times and no producer returned a rollout; "
                f"first error: {self._engine_error}"
            )

    def step_trained(self) -> None:
        """A step updated the weights, or had nothing to train on."""
        self._skipped_steps = 0

    def step_skipped(self, step: int, batch: Path) -> None:
        """A step was skipped because its gradients are not finite; `batch` is the file with it.

        Raises RunFailedError at the bound.
        """
        self._skipped_steps += 1
        if self._skipped_steps >= MAX_SKIPPED_STEPS:
            raise RunFailedError(
                f"the gradients of {self._skipped_steps} consecutive steps, up to step {step}, "
                "are not finite; the weights were not changed by them. The micro-batches of the "
                f"last one are in {batch}"
            )

    def check_progress(self, steps: int, updates: int, groups: GroupCounts) -> None:
        """Check at the end of the data that the run has trained.

        Args:
            steps: steps of the whole run.
            updates: those that changed the weights.

        Raises:
            InvalidInputError: the same input would end the same way.
            RunFailedError: producers failed.
        """
        if updates > 0:
            return
        offered = groups.trained + groups.filtered + groups.dropped
        if groups.dropped > 0:
            cause = self._engine_error or "each prompt failed repeatedly"
            raise RunFailedError(
                f"no step was trained: {groups.dropped} of {offered} prompts were dropped; "
                f"first error: {cause}"
            )
        if steps == 0:
            raise InvalidInputError(
                f"spec.dataset: no step was trained: dynamic sampling filtered {groups.filtered} "
                f"of {offered} prompts, as their completions are all right or all wrong; use other "
                "data, or set algorithm.dynamicSampling.enabled: false"
            )
        raise InvalidInputError(
            f"spec.reward: none of {steps} steps had anything to train on: within each group all "
            "rewards are equal, or all completions are masked or unscored; use other data or "
            "another reward"
        )
