"""The program `grpo`."""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

from ..errors import InvalidInputError
from ..spec import ExitCode
from . import commands
from .flags import FLAGS, Flag, port

_OVERRIDE = (
    "FILE and flags may be mixed: a flag that is given wins over the file's field, every other "
    "field is the file's."
)


class _Parser(argparse.ArgumentParser):
    """Reports a wrong command line as it does any other wrong input."""

    def error(self, message: str) -> NoReturn:
        raise InvalidInputError(f"{self.prog}: {message}; see `{self.prog} --help`")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns 0, 64 for bad input, 75 for a run that stopped with a checkpoint."""
    try:
        arguments = build_parser().parse_args(argv)
        code: int = arguments.command(arguments)
    except InvalidInputError as error:
        for fault in error.faults:
            print(fault, file=sys.stderr)
        return ExitCode.BAD_INPUT
    return code


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="grpo", description="GRPO and DAPO training of language models.")
    parser.add_argument("--version", action="version", version=version("grpo-operator"))
    parsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    run = parsers.add_parser("run", help="train on this machine", description=_OVERRIDE)
    run.add_argument("file", nargs="?", metavar="FILE", help="manifest of the run, `-` for stdin")
    run.add_argument(
        "--run-dir",
        type=Path,
        metavar="DIR",
        help="directory of the run, default runs/NAME-TIME; one that holds a run is resumed, by "
        "its own manifest when FILE is not given",
    )
    unset = argparse.SUPPRESS
    run.add_argument("--host", default=unset, help="where metrics are served, default 127.0.0.1")
    run.add_argument("--port", type=port, default=unset, help="default 9464; 0: a free one")
    _add_flags(run)
    run.set_defaults(command=commands.run)

    manifest = parsers.add_parser("manifest", help="print the manifest that flags describe")
    _add_flags(manifest)
    manifest.set_defaults(command=commands.manifest)

    validate = parsers.add_parser("validate", help="find every fault of manifests")
    validate.add_argument("files", nargs="+", metavar="FILE", help="YAML or JSON, `-` for stdin")
    validate.set_defaults(command=commands.validate)

    plan = parsers.add_parser("plan", help="forecast the memory of a run from its manifest")
    plan.add_argument("file", metavar="FILE", help="YAML or JSON, `-` for stdin")
    plan.add_argument(
        "--gpu-memory",
        type=float,
        default=80.0,
        metavar="GIB",
        help="memory of one accelerator (default: 80)",
    )
    plan.set_defaults(command=commands.plan)

    show = parsers.add_parser("show", help="show a run on the terminal")
    show.add_argument("run", type=Path, metavar="RUN", help="run directory")
    show.add_argument(
        "--completions",
        type=int,
        default=2,
        metavar="N",
        help="completions with the highest and with the lowest rewards (default: 2 each)",
    )
    show.set_defaults(command=commands.show)

    compare = parsers.add_parser("compare", help="compare two runs on the terminal")
    compare.add_argument("run", type=Path, metavar="A", help="run directory")
    compare.add_argument("other", type=Path, metavar="B", help="run directory")
    compare.set_defaults(command=commands.compare)

    report = parsers.add_parser("report", help="write an HTML page about one or several runs")
    report.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directory")
    report.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="default: report.html in the first RUN"
    )
    report.add_argument(
        "--completions-mb",
        type=int,
        default=50,
        metavar="MB",
        help="most logged completions of each run to put into the page (default: 50)",
    )
    report.set_defaults(command=commands.report)

    schema = parsers.add_parser("schema", help="print the JSON schema of the manifest")
    schema.set_defaults(command=commands.schema)
    return parser


def _add_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("flags of rl_example_zero_bubble.py")
    for flag in FLAGS:
        text = _help(flag).replace("%", "%%")
        if flag.type is bool:
            group.add_argument(
                *flag.names, action="store_true", default=argparse.SUPPRESS, help=text
            )
        else:
            group.add_argument(
                *flag.names,
                dest=flag.key,
                type=flag.type,
                choices=flag.choices,
                metavar=None if flag.choices else flag.key.rpartition("_")[2].upper(),
                default=argparse.SUPPRESS,
                help=text,
            )


def _help(flag: Flag) -> str:
    if flag.type is bool or flag.default is None or flag.default == {}:
        return flag.help
    return f"{flag.help} (default: {flag.default})"
