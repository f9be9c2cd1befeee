"""The careless teacher, and the format of its completions."""

import random

from .recipe import CompletionFormat


def careless_answer(a: int, b: int, rng: random.Random, *, forget_carry: float, slip: float) -> int:
    """a + b; with these probabilities a carry is forgotten, and the units are off by one."""
    tens, units = divmod(a + b, 10)
    if a % 10 + b % 10 >= 10 and rng.random() < forget_carry:
        tens -= 1
    if rng.random() < slip:
        units = (units + rng.choice((-1, 1))) % 10
    return 10 * tens + units


def completion(a: int, b: int, answer: int, completion_format: CompletionFormat) -> str:
    """The completion with `answer`; its reasoning is the sum of the units, always right."""
    if completion_format is CompletionFormat.BOXED:
        return f"\\boxed{{{answer}}}"
    units = f"{a % 10}+{b % 10}={a % 10 + b % 10}"
    return f"<think>{units}</think><answer>{answer}</answer>"
