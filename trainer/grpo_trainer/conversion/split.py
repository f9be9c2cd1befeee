"""Rows for training and rows held out."""

import random
from collections.abc import Sequence

from ..errors import InvalidInputError
from .rows import Converted


def split(
    rows: Sequence[Converted], held_out: float, seed: int
) -> tuple[list[Converted], list[Converted]]:
    """Rows to train on and rows held out, each in the order of the file.

    `held_out` is a number of prompts, or below 1 their share. All rows of a prompt are on the same
    side. Raises InvalidInputError when nothing would be left on a side.
    """
    prompts = list(dict.fromkeys(row.row.messages for row in rows))
    count = round(held_out * len(prompts)) if held_out < 1 else int(held_out)
    if held_out and not 0 < count < len(prompts):
        raise InvalidInputError(
            f"--held-out: Invalid value: {held_out:g}: must leave prompts on both sides of "
            f"{len(prompts):,}"
        )
    chosen = set(random.Random(seed).sample(prompts, count))
    train = [row for row in rows if row.row.messages not in chosen]
    return train, [row for row in rows if row.row.messages in chosen]
