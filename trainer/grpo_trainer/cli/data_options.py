"""The options of `grpo data`."""

import argparse
from argparse import ArgumentTypeError
from pathlib import Path

import shtab

from ..spec.reward import RewardType
from .parser import complete

ANSWER_FORMS = ("whole", "####", "boxed")
"""Values of `conversion.AnswerForm`, which the parser does not import."""


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add them to a parser."""
    files = parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="of this machine, or hf://datasets/OWNER/NAME/FILE; all but parquet also with .gz",
    )
    complete(files, shtab.FILE)
    output = parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    complete(output, shtab.DIRECTORY)
    for name, what in (("prompt", "question"), ("answer", "answer")):
        parser.add_argument(
            f"--{name}",
            metavar="TEMPLATE",
            help=f"text with columns, such as '{{{what}}}' (default: the usual names of columns)",
        )
    parser.add_argument(
        "--answer-form",
        choices=ANSWER_FORMS,
        help="where the answer is in its column (default: the form that all rows have)",
    )
    parser.add_argument(
        "--keep", action="append", default=[], metavar="COLUMN", help="copy it; may be repeated"
    )
    parser.add_argument(
        "--reward",
        choices=[str(reward) for reward in RewardType],
        default=str(RewardType.BOXED),
        help="reward that will read the data set (default: boxed)",
    )
    parser.add_argument(
        "--held-out",
        type=share_or_count,
        default=0.0,
        metavar="N",
        help="prompts to hold out for evaluation, or their share below 1 (default: none)",
    )
    parser.add_argument(
        "--seed", type=int, default=42, help="of the choice of prompts to hold out (default: 42)"
    )
    parser.add_argument(
        "--skip-invalid", action="store_true", help="leave out invalid rows, which are counted"
    )
    parser.add_argument(
        "--tokenizer",
        metavar="MODEL",
        help="print the lengths of prompts in tokens, and a proposal for maxPromptTokens",
    )


def share_or_count(text: str) -> float:
    """A number of prompts, or a share below 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if value < 0 or (value >= 1 and not value.is_integer()):
        raise ArgumentTypeError(f"Invalid value: {text!r}: must be a number, or a share below 1")
    return value
