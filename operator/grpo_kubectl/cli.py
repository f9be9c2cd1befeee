"""The program `kubectl-grpo`, which kubectl runs as `kubectl grpo`."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import NoReturn

from grpo_operator.clients.connection import ConfigurationError
from grpo_operator.clients.errors import ApiError
from grpo_trainer.spec import API_VERSION, Phase

from . import commands
from .access import Access, connect
from .completion import SHELLS, script
from .errors import CommandError, Exit, explain
from .logs import LogRole
from .text import duration

_UNSET = argparse.SUPPRESS
_DAY = 86400.0
_IMAGE_HELP = (
    "image of the pod that reads the volume while the job has no running pod; default: the job's "
    "image, else busybox:1.37"
)
_CODES = (
    "exit codes: 0 success; 1 error; 3 wait: the job ended in another phase or was deleted; "
    "4 timed out; 64 invalid command line; 130 interrupted"
)


class _Parser(argparse.ArgumentParser):
    """Exits with the code that `grpo` has for an invalid command line."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(Exit.USAGE, f"{self.prog}: error: {message}\n")


_Add = Callable[..., argparse.ArgumentParser]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    given = build_parser().parse_args(argv)
    try:
        if given.command is None:
            print(_local(given))
        else:
            asyncio.run(_run(given))
        sys.stdout.flush()
    except ConfigurationError as error:
        print(f"error: {error}", file=sys.stderr)
        return Exit.FAILED
    except CommandError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    except asyncio.CancelledError:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader has closed our output; the interpreter must not flush into it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.DONE
    return Exit.DONE


def _local(given: argparse.Namespace) -> str:
    """The output of a command that needs no cluster."""
    if hasattr(given, "shell"):
        return script(build_parser(), given.shell)
    return f"kubectl-grpo {version('grpo-operator')}, GRPOJob {API_VERSION}"


async def _run(given: argparse.Namespace) -> None:
    task = asyncio.current_task()
    assert task is not None
    # A pod that was created for reading is deleted on every way out.
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    access = Access(
        kubeconfig=getattr(given, "kubeconfig", None),
        context=getattr(given, "context", None),
        namespace=getattr(given, "namespace", None),
    )
    async with connect(access) as session:
        try:
            await given.command(session, given)
        except ApiError as error:
            raise CommandError(explain(error, session.kube.server)) from error


def build_parser() -> argparse.ArgumentParser:
    """The command line. kubectl's own options are accepted before or after the command."""
    access = _Parser(add_help=False)
    access.add_argument(
        "-n", "--namespace", default=_UNSET, help="namespace; default: that of the context"
    )
    access.add_argument("--context", default=_UNSET, help="context of the kubeconfig")
    access.add_argument("--kubeconfig", default=_UNSET, metavar="FILE", help="default: $KUBECONFIG")
    parser = _Parser(
        prog="kubectl grpo",
        description="Inspect and control GRPOJobs.",
        epilog=_CODES,
        parents=[access],
    )
    parser.add_argument("--version", action="version", version=version("grpo-operator"))
    parsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(
        name: str, command: commands.Command | None, text: str, *, job: bool = True
    ) -> argparse.ArgumentParser:
        added = parsers.add_parser(name, help=text, description=text, parents=[access])
        if job:
            added.add_argument("name", metavar="NAME", help="name of the GRPOJob")
        added.set_defaults(command=command)
        return added

    _inspection(add)
    _changes(add)
    _volume(add)
    add("version", None, "print the version of the plugin and of the API that it uses", job=False)
    it = add("completion", None, "print a completion script for kubectl-grpo", job=False)
    it.add_argument("shell", choices=SHELLS)
    return parser


def _inspection(add: _Add) -> None:
    it = add("list", commands.list_jobs, "list jobs", job=False)
    it.add_argument("-A", "--all-namespaces", action="store_true", help="list all namespaces")
    it.add_argument("-o", "--output", choices=("wide", "json", "yaml"))

    add("status", commands.show_status, "show one job: phase, reason, pods, Events, next steps")

    it = add("top", commands.top, "show a table of jobs that updates in place", job=False)
    it.add_argument("name", metavar="NAME", nargs="?", help="name of one GRPOJob; default: all")
    it.add_argument("-A", "--all-namespaces", action="store_true", help="show all namespaces")
    it.add_argument("--once", action="store_true", help="print the table once and exit")
    it.add_argument(
        "--timeout", type=duration, default=_DAY, metavar="TIME", help="exit then; default: 1d"
    )

    it = add("logs", commands.show_logs, "print the logs of a job")
    it.add_argument("--role", choices=[str(role) for role in LogRole], default="driver")
    it.add_argument("-f", "--follow", action="store_true", help="follow until the attempt ends")
    it.add_argument(
        "--tail", type=_at_least_one, default=200, metavar="N", help="last lines; default: 200"
    )
    it.add_argument(
        "--attempt", type=_at_least_one, metavar="N", help="attempt of the driver; default: last"
    )
    it.add_argument("--image", help=_IMAGE_HELP)

    it = add("wait", commands.wait, "wait until a job is in a phase")
    it.add_argument(
        "--for",
        dest="phase",
        choices=[str(phase) for phase in Phase],
        default=str(Phase.SUCCEEDED),
        metavar="PHASE",
        help=f"one of {', '.join(Phase)}; default: Succeeded",
    )
    it.add_argument(
        "--timeout", type=duration, default=_DAY, metavar="TIME", help="such as 30m; default: 1d"
    )


def _changes(add: _Add) -> None:
    add("suspend", commands.suspend, "suspend a job: write a checkpoint and free its pods")
    add("resume", commands.resume, "resume a suspended job from its newest checkpoint")
    it = add("scale", commands.scale, "set the number of producers")
    it.add_argument("producers", metavar="N", type=_at_least_one, help="number of producers")


def _volume(add: _Add) -> None:
    listed = add("checkpoints", commands.list_checkpoints, "list the checkpoints on the volume")
    copied = add("copy-checkpoint", commands.copy_checkpoint, "copy a checkpoint to this machine")
    copied.add_argument("destination", metavar="DEST", help="directory to create")
    copied.add_argument(
        "--step", type=_at_least_one, metavar="N", help="step of the checkpoint; default: newest"
    )
    for it, seconds, shown in ((listed, 300.0, "5m"), (copied, 6 * 3600.0, "6h")):
        it.add_argument(
            "--image",
            help=_IMAGE_HELP,
        )
        it.add_argument(
            "--timeout", type=duration, default=seconds, metavar="TIME", help=f"default: {shown}"
        )


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(
            f"Invalid value: {text!r}: must be an integer greater than or equal to 1"
        )
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
