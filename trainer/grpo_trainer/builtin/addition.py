"""The built-in data set: sums of two two-digit numbers.

Both numbers always have two digits, so that each digit is at the same position in every prompt: a
model of two layers learns that in a minute.
"""

import random
from enum import StrEnum
from typing import Any

_OPERANDS = range(10, 50)
_HELD_OUT_PAIRS = 150
_SEED = 0


class Split(StrEnum):
    """Sums for training, and sums that are never trained on."""

    TRAIN = "train"
    HELD_OUT = "held-out"


def sums(split: Split) -> list[tuple[int, int]]:
    """The operands of each sum, in a fixed random order; a + b and b + a are in the same split."""
    rng = random.Random(_SEED)
    unordered = [(a, b) for a in _OPERANDS for b in _OPERANDS if a <= b]
    rng.shuffle(unordered)
    chosen = {
        Split.TRAIN: unordered[_HELD_OUT_PAIRS:],
        Split.HELD_OUT: unordered[:_HELD_OUT_PAIRS],
    }[split]
    ordered = sorted({pair for a, b in chosen for pair in ((a, b), (b, a))})
    rng.shuffle(ordered)
    return ordered


def question(a: int, b: int) -> str:
    """The text of a sum."""
    return f"{a}+{b}="


def addition_rows(split: Split) -> list[dict[str, Any]]:
    """Rows as in a JSONL file, with `messages` and `gt_answer`."""
    return [
        {"messages": [{"role": "user", "content": question(a, b)}], "gt_answer": str(a + b)}
        for a, b in sums(split)
    ]
