"""The program `grpo`."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import shtab

from ..errors import InvalidInputError, RunFailedError
from ..spec import ExitCode
from . import commands
from .data_options import add_data
from .flags import GROUPS, Flag, flags_of, port
from .overrides import setting
from .parser import Parser, complete

_UNSET = argparse.SUPPRESS
_OVERRIDE = (
    "FILE, flags and --set may be mixed: a flag that is given wins over the file's field, --set "
    "over both, and every other field is the file's."
)
_CODES = (
    "exit codes: 0 success; 1 failure, a retry may succeed; 64 invalid command line, manifest, "
    "data, model or reward; 75 stopped by request, the same command resumes; 130 interrupted"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code, which `--help` lists."""
    # The Hub reports each of its retries; their failure is reported once, as a fault.
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    try:
        arguments = build_parser().parse_args(argv)
        code: int = arguments.command(arguments)
        sys.stdout.flush()
    except InvalidInputError as error:
        for fault in error.faults:
            print(fault, file=sys.stderr)
        return ExitCode.BAD_INPUT
    except RunFailedError as error:
        print(error, file=sys.stderr)
        return ExitCode.FAILURE
    except KeyboardInterrupt:
        return commands.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has closed it; the interpreter must not flush into it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.SUCCESS
    return code


def build_parser() -> Parser:
    """The command line of all commands."""
    parser = Parser(
        prog="grpo", description="GRPO and DAPO training of language models.", epilog=_CODES
    )
    parser.add_argument("--version", action="version", version=version("grpo-operator"))
    parsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(name: str, command: commands.Command, text: str, more: str = "") -> Parser:
        description = f"{text[0].upper()}{text[1:]}. {more}".strip()
        added: Parser = parsers.add_parser(name, help=text, description=description, epilog=_CODES)
        added.set_defaults(command=command, parser=added)
        return added

    run = add("run", commands.run, "train on this machine", _OVERRIDE)
    _add_run(run)
    run.add_argument(
        "--dry-run", action="store_true", help="print the plan and the resolved manifest, and exit"
    )
    _add_flags(run)
    check = add(
        "check",
        commands.check,
        "check manifest, data, model, reward and machine before a run",
        "Starts no Ray and creates no file.",
    )
    _add_run(check)
    _add_flags(check)
    manifest = add("manifest", commands.manifest, "print the manifest that flags describe")
    _add_set(manifest)
    _add_flags(manifest)
    _add_light(add)
    return parser


def _add_light(add: Callable[..., Parser]) -> None:
    """The commands that start no training."""
    validate = add("validate", commands.validate, "check manifests, without data and model")
    files = validate.add_argument("files", nargs="+", metavar="FILE", help="`-` for standard input")
    complete(files, shtab.FILE)
    add_data(
        add(
            "data",
            commands.data,
            "make a data set from parquet, CSV, TSV, JSON or JSON lines",
            "Writes DIR/train.jsonl, and DIR/held-out.jsonl with --held-out.",
        )
    )
    _add_plan(add("plan", commands.plan, "forecast the memory of a run from its manifest"))
    _add_show(add("show", commands.show, "show a run on the terminal"))
    compare = add("compare", commands.compare, "compare two runs on the terminal")
    for name, metavar in (("run", "A"), ("other", "B")):
        complete(
            compare.add_argument(name, type=Path, metavar=metavar, help="run directory"),
            shtab.DIRECTORY,
        )
    report = add("report", commands.report, "write an HTML page about one or several runs")
    _add_report(report)
    _add_environment(add("environment", commands.environment, "serve an environment over HTTP"))
    add("schema", commands.schema, "print the JSON schema of the manifest")
    completion = add(
        "completion",
        commands.completion,
        "print a completion script for a shell",
        'For bash, add `eval "$(grpo completion bash)"` to ~/.bashrc.',
    )
    completion.add_argument("shell", choices=commands.SHELLS)


def _add_run(parser: argparse.ArgumentParser) -> None:
    file = parser.add_argument(
        "file", nargs="?", metavar="FILE", help="manifest of the run, `-` for standard input"
    )
    complete(file, shtab.FILE)
    directory = parser.add_argument(
        "--run-dir",
        type=Path,
        metavar="DIR",
        help="directory of the run; one that contains a run is resumed, with its own manifest if "
        "FILE is not given (default: runs/NAME-TIME)",
    )
    complete(directory, shtab.DIRECTORY)
    parser.add_argument(
        "--host", default=_UNSET, help="address that serves metrics (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--port",
        type=port,
        default=_UNSET,
        help="port that serves metrics, 0 for a free one (default: 9464, or a free one if taken)",
    )
    parser.add_argument(
        "--skip-checks",
        action="store_true",
        default=_UNSET,
        help="do not call the services of the reward before the run starts",
    )
    _add_set(parser)


def _add_environment(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "environment",
        metavar="MODULE:CLASS",
        help="file or importable module and its class, such as env.py:Calculator",
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen at (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--port", type=port, default=8000, help="port, 0 for a free one (default: 8000)"
    )


def _add_plan(parser: argparse.ArgumentParser) -> None:
    file = parser.add_argument("file", metavar="FILE", help="`-` for standard input")
    complete(file, shtab.FILE)
    parser.add_argument(
        "--gpu-memory",
        type=float,
        default=80.0,
        metavar="GIB",
        help="memory of one accelerator (default: 80)",
    )


def _add_show(parser: argparse.ArgumentParser) -> None:
    run = parser.add_argument("run", type=Path, metavar="RUN", help="run directory")
    complete(run, shtab.DIRECTORY)
    parser.add_argument(
        "--completions",
        type=int,
        default=2,
        metavar="N",
        help="completions with the highest and with the lowest rewards (default: 2 each)",
    )


def _add_report(parser: argparse.ArgumentParser) -> None:
    runs = parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directory")
    complete(runs, shtab.DIRECTORY)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="default: report.html in the first RUN"
    )
    parser.add_argument(
        "--completions-mb",
        type=int,
        default=50,
        metavar="MB",
        help="most logged completions of each run to put into the page (default: 50)",
    )


def _add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        type=setting,
        default=[],
        metavar="PATH=VALUE",
        help="set a field, such as spec.maxSteps=10; VALUE is YAML, empty removes the field, and a "
        "dot inside a key is `\\.`; may be repeated",
    )


def _add_flags(parser: argparse.ArgumentParser) -> None:
    for title in GROUPS:
        group = parser.add_argument_group(title)
        for flag in flags_of(title):
            _add_flag(group, flag)


def _add_flag(group: argparse._ArgumentGroup, flag: Flag) -> None:
    text = _help(flag).replace("%", "%%")
    if flag.type is bool:
        group.add_argument(*flag.names, action="store_true", default=_UNSET, help=text)
        return
    action = group.add_argument(
        *flag.names,
        dest=flag.key,
        type=flag.type,
        choices=flag.choices,
        metavar=None if flag.choices else flag.key.rpartition("_")[2].upper(),
        default=_UNSET,
        help=text,
    )
    if flag.type is Path:
        complete(action, shtab.DIRECTORY)


def _help(flag: Flag) -> str:
    if flag.type is bool or flag.default is None or flag.default == {}:
        return flag.help
    return f"{flag.help} (default: {flag.default})"
