"""`grpo data`: a data set from files of other projects."""

import json
import os
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..conversion import AnswerForm, Layout, Lengths, Table, convert, measure, read_table, split
from ..conversion.rows import Converted
from ..errors import InvalidInputError
from ..rewards import system_prompt
from ..spec import ExitCode
from ..spec.reward import RewardSpec, RewardType
from .light import without_torch

_WIDTH = 10


def data(arguments: Namespace) -> int:
    """Convert, split and write; print what became of the rows, and what to do next."""
    with without_torch():
        for line in _convert(arguments):
            print(line, flush=True)
    return ExitCode.SUCCESS


def _convert(arguments: Namespace) -> Iterator[str]:
    reward = RewardType(arguments.reward)
    places = _places(arguments.output, bool(arguments.held_out))
    records = [record for path in arguments.files for record in read_table(path)]
    table = Table(records)
    yield _line("read", f"{len(records):,} rows with columns {', '.join(table.names)}")
    form = AnswerForm(arguments.answer_form) if arguments.answer_form else None
    layout = table.layout(reward, arguments.prompt, arguments.answer, form, arguments.keep)
    yield from _chosen(layout)
    rows, invalid = convert(records, layout, reward, skip_invalid=arguments.skip_invalid)
    if invalid:
        yield _line("left out", f"{invalid:,} invalid rows")
    if repeated := len(records) - invalid - len(rows):
        yield _line("left out", f"{repeated:,} rows that repeat an earlier one")
    parts = split(rows, arguments.held_out, arguments.seed)
    lengths = _lengths(rows, arguments.tokenizer, reward) if arguments.tokenizer else None
    for place, part in zip(places, parts, strict=False):
        _write(place, part)
        yield _line("wrote", f"{place}: {len(part):,} rows")
    if lengths is not None:
        yield from _statistics(lengths)
    yield from _next(places, lengths, reward)


def _places(output: Path, held_out: bool) -> list[Path]:
    """The files to write. Raises InvalidInputError for one that exists."""
    names = ("train.jsonl", "held-out.jsonl") if held_out else ("train.jsonl",)
    places = [output / name for name in names]
    if existing := [place for place in places if place.exists()]:
        raise InvalidInputError(
            f"--output: Invalid value: {str(output)!r}: {existing[0].name} exists there; remove it "
            "or choose another directory"
        )
    return places


def _chosen(layout: Layout) -> Iterator[str]:
    yield _line("prompt", layout.prompt.source)
    if layout.answer is not None:
        where = {
            AnswerForm.WHOLE: "",
            AnswerForm.HASHES: ", the text behind ####",
            AnswerForm.BOXED: ", the content of the last \\boxed{}",
        }[layout.form]
        yield _line("answer", f"{layout.answer.source}{where}")
    if layout.keep:
        yield _line("kept", ", ".join(layout.keep))


def _lengths(rows: Sequence[Converted], tokenizer: str, reward: RewardType) -> Lengths:
    from ..driver.prepare import load_tokenizer

    try:
        loaded = load_tokenizer(tokenizer, trust_remote_code=False)
    except InvalidInputError as error:
        raise InvalidInputError(str(error).replace("spec.model.path", "--tokenizer")) from error
    return measure([each.row for each in rows], loaded, system_prompt(RewardSpec(type=reward)))


def _statistics(lengths: Lengths) -> Iterator[str]:
    tokens = lengths.tokens
    yield _line(
        "tokens",
        f"prompts of {tokens[0]:,} to {tokens[-1]:,}, median {lengths.quantile(0.5):,}, 99 % at "
        f"most {lengths.quantile(0.99):,}, with system message and chat template",
    )
    limit = lengths.proposal
    kept = f"{lengths.within(limit):,} of {len(tokens):,} prompts fit"
    yield _line("propose", f"spec.sampling.maxPromptTokens: {limit} ({kept})")


def _next(places: Sequence[Path], lengths: Lengths | None, reward: RewardType) -> Iterator[str]:
    fields = [f"spec.dataset.path={places[0]}", f"spec.reward.type={reward}"]
    if len(places) > 1:
        fields.append(f"spec.evaluation.datasets.held-out={places[1]}")
    if lengths is not None:
        fields.append(f"spec.sampling.maxPromptTokens={lengths.proposal}")
    yield _line("next", f"grpo check FILE {' '.join(f'--set {field}' for field in fields)}")


def _write(place: Path, rows: Sequence[Converted]) -> None:
    """Write whole or not at all."""
    unfinished = place.with_suffix(".part")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("w", encoding="utf-8") as file:
            for row in rows:
                file.write(f"{json.dumps(row.columns, ensure_ascii=False, default=str)}\n")
        os.replace(unfinished, place)
    except OSError as error:
        raise InvalidInputError(f"--output: {place}: {error.strerror}") from error


def _line(name: str, text: str) -> str:
    return f"{name:{_WIDTH}} {text}"
