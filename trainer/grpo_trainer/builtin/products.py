"""The built-in data set for tools: products of two two-digit numbers, too hard for the tiny model.

The lessons of its warm-up: mostly a guess, sometimes a call of a calculator.
"""

import random
from collections.abc import Iterator
from typing import Any

from .addition import Split, sums

CALL_SHARE = 0.3
"""Probability that the teacher calls the calculator."""
_LEAST, _MOST = 100, 2401
_END, _OBSERVATION, _TURN = "<eos>", "<tool>", "<assistant>"


def product(a: int, b: int) -> str:
    """The text of a product."""
    return f"{a}*{b}="


def product_rows(split: Split) -> list[dict[str, Any]]:
    """Rows as in a JSONL file, with `messages` and `gt_answer`."""
    return [
        {"messages": [{"role": "user", "content": product(a, b)}], "gt_answer": str(a * b)}
        for a, b in sums(split)
    ]


def called(a: int, b: int) -> str:
    """All behind the question when the calculator is called: call, observation, answer."""
    call = f"<tool_call>{a}*{b}</tool_call>{_END}"
    return f"{call}{_OBSERVATION}{a * b}{_TURN}\\boxed{{{a * b}}}{_END}"


def lessons(rng: random.Random, answers_per_product: int) -> Iterator[tuple[str, str]]:
    """(question, all behind it) of the training split."""
    pairs = sums(Split.TRAIN)
    for _ in range(answers_per_product):
        for a, b in pairs:
            guess = f"\\boxed{{{rng.randint(_LEAST, _MOST)}}}{_END}"
            yield product(a, b), called(a, b) if rng.random() < CALL_SHARE else guess
