"""A parser that raises for a wrong command line, and suggests what may have been meant."""

import argparse
import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from pydantic import BaseModel

from ..errors import InvalidInputError
from ..spec import GRPOJobSpec

_CHOICE = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)")
_MAX_SUGGESTIONS = 3


class Parser(argparse.ArgumentParser):
    """Raises InvalidInputError, as for any other invalid input."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, extra = self.parse_known_args(args, namespace)
        if extra:
            command: argparse.ArgumentParser = getattr(parsed, "parser", self)
            hint = suggestion(extra, command)
            raise InvalidInputError(
                f"{command.prog}: unrecognized arguments: {' '.join(extra)}{hint}; "
                f"see `{command.prog} --help`"
            )
        return parsed

    def error(self, message: str) -> NoReturn:
        if match := _CHOICE.search(message):
            near = get_close_matches(match[1], re.findall(r"'(.*?)'", match[2]), n=1)
            message += f"; did you mean {near[0]}?" if near else ""
        raise InvalidInputError(f"{self.prog}: {message}; see `{self.prog} --help`")


def complete(action: argparse.Action, how: Mapping[str, object]) -> None:
    """Set what completion scripts offer for an argument."""
    action.complete = how  # type: ignore[attr-defined]


def suggestion(extra: Sequence[str], parser: argparse.ArgumentParser) -> str:
    """What the first unknown flag may have meant: a field of the manifest, or another flag."""
    flag = next((text.partition("=")[0] for text in extra if text.startswith("-")), None)
    if flag is None:
        return ""
    options = [name for action in parser._actions for name in action.option_strings]
    if "--set" in options and (paths := fields_named(flag)):
        return f"; use {' or '.join(f'--set {path}=VALUE' for path in paths)}"
    near = get_close_matches(flag, options, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def fields_named(flag: str) -> list[str]:
    """Paths of the fields that a flag such as `--max-steps` spells."""
    wanted = re.sub(r"[-_.]", "", flag).lower()
    paths = [
        path
        for path in field_paths(GRPOJobSpec, "spec.")
        if wanted and wanted in (_plain(path.rpartition(".")[2]), _plain(path.partition(".")[2]))
    ]
    return paths[:_MAX_SUGGESTIONS]


def _plain(path: str) -> str:
    return path.replace(".", "").lower()


def field_paths(model: type[BaseModel], prefix: str) -> Iterator[str]:
    """Paths of all fields that a mapping can hold, those of records inside it included."""
    for name, field in model.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        yield path
        for record in _records(field.annotation):
            yield from field_paths(record, f"{path}.")


def _records(annotation: Any) -> Iterable[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if typing.get_origin(annotation) in (list, tuple, dict):
        return []
    return [record for part in typing.get_args(annotation) for record in _records(part)]
