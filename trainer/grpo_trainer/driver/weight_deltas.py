"""The deltas between the newest weight versions, which producers apply one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grpo_trainer.consumer.records import DeltaReference

KEPT = 4
"""Deltas that are kept: a producer that missed more versions fetches a full one."""


class DeltaChain:
    """References to the deltas of consecutive versions."""

    def __init__(self) -> None:
        self._deltas: dict[int, Sequence[DeltaReference]] = {}
        """By the version that they lead to; one of each pipeline stage."""
        self.share: float | None = None
        """Bytes of the newest version as it was published over those of a full one."""

    def add(self, version: int, deltas: Sequence[DeltaReference] | None) -> None:
        """Add the deltas that lead to a version; None where it was published in full alone."""
        if deltas is None:
            self._deltas.clear()
            self.share = 1.0
            return
        self._deltas[version] = deltas
        self._deltas = dict(list(self._deltas.items())[-KEPT:])
        self.share = sum(d.size for d in deltas) / max(1, sum(d.full_size for d in deltas))

    def between(self, base: int, version: int) -> list[Any] | None:
        """References that lead from one version to another; None where they do not exist."""
        found: list[Any] = []
        while version != base:
            deltas = self._deltas.get(version)
            if deltas is None:
                return None
            found = [*(d.reference for d in deltas), *found]
            version = deltas[0].base
        return found

    def clear(self) -> None:
        """Forget all deltas."""
        self._deltas.clear()
