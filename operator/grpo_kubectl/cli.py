"""The program `kubectl-grpo`, which kubectl finds on the PATH as `kubectl grpo`."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version

from grpo_trainer.spec import Phase

from . import commands
from .access import Access, connect
from .errors import CommandError, Exit
from .logs import LogRole
from .text import duration

_UNSET = argparse.SUPPRESS
_DAY = 86400.0
_CODES = (
    "exit codes: 0 done; 1 refused or failed; 2 wrong command line; 3 wait: the job ended "
    "otherwise; 4 wait: out of time; 130 interrupted"
)


_Add = Callable[..., argparse.ArgumentParser]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    given = build_parser().parse_args(argv)
    try:
        asyncio.run(_run(given))
    except CommandError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    except asyncio.CancelledError:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has seen enough; the interpreter must not flush into it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.DONE
    return Exit.DONE


async def _run(given: argparse.Namespace) -> None:
    task = asyncio.current_task()
    assert task is not None
    # A pod that was made for reading must go with us, however we are told to end.
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    access = Access(
        kubeconfig=getattr(given, "kubeconfig", None),
        context=getattr(given, "context", None),
        namespace=getattr(given, "namespace", None),
    )
    async with connect(access) as api:
        await given.command(api, given)


def build_parser() -> argparse.ArgumentParser:
    """The command line. The options of kubectl may stand before or behind the command."""
    access = argparse.ArgumentParser(add_help=False)
    access.add_argument("-n", "--namespace", default=_UNSET, help="default: the context's")
    access.add_argument("--context", default=_UNSET, help="of the kubeconfig")
    access.add_argument("--kubeconfig", default=_UNSET, metavar="FILE")
    parser = argparse.ArgumentParser(
        prog="kubectl grpo", description="GRPOJobs.", epilog=_CODES, parents=[access]
    )
    parser.add_argument("--version", action="version", version=version("grpo-operator"))
    parsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(
        name: str, command: commands.Command, text: str, *, job: bool = True
    ) -> argparse.ArgumentParser:
        added = parsers.add_parser(name, help=text, description=text, parents=[access])
        if job:
            added.add_argument("name", metavar="NAME", help="of the GRPOJob")
        added.set_defaults(command=command)
        return added

    _looking(add)
    _changing(add)
    _volume(add)
    return parser


def _looking(add: _Add) -> None:
    it = add("list", commands.list_jobs, "list jobs", job=False)
    it.add_argument("-A", "--all-namespaces", action="store_true")
    it.add_argument("-o", "--output", choices=("wide", "json"))

    add("status", commands.show_status, "where a job is, why, and what to do next")

    it = add("top", commands.top, "a table that follows jobs", job=False)
    it.add_argument("name", metavar="NAME", nargs="?", help="of one GRPOJob; all when absent")
    it.add_argument("-A", "--all-namespaces", action="store_true")
    it.add_argument("--once", action="store_true", help="print it once")
    it.add_argument(
        "--timeout", type=duration, default=_DAY, metavar="TIME", help="end then, default 1d"
    )

    it = add("logs", commands.show_logs, "what a job prints")
    it.add_argument("--role", choices=[str(role) for role in LogRole], default="driver")
    it.add_argument("-f", "--follow", action="store_true", help="until the attempt is over")
    it.add_argument(
        "--tail", type=_at_least_one, default=200, metavar="N", help="lines, default 200"
    )
    it.add_argument(
        "--attempt", type=_at_least_one, metavar="N", help="of the driver, default the last"
    )

    it = add("wait", commands.wait, "wait for a job to come to a phase")
    it.add_argument(
        "--for",
        dest="phase",
        choices=[str(phase) for phase in Phase],
        default=str(Phase.SUCCEEDED),
        metavar="PHASE",
        help=f"default Succeeded; legal: {', '.join(Phase)}",
    )
    it.add_argument(
        "--timeout", type=duration, default=_DAY, metavar="TIME", help="such as 30m, default 1d"
    )


def _changing(add: _Add) -> None:
    add("suspend", commands.suspend, "write a checkpoint, free the pods, and rest")
    add("resume", commands.resume, "go on from the newest checkpoint")
    it = add("scale", commands.scale, "change the number of producers")
    it.add_argument("producers", metavar="N", type=_at_least_one)


def _volume(add: _Add) -> None:
    listed = add("checkpoints", commands.list_checkpoints, "list the checkpoints on the volume")
    copied = add("copy-checkpoint", commands.copy_checkpoint, "copy a checkpoint to this machine")
    copied.add_argument("destination", metavar="DEST", help="a directory that does not exist yet")
    copied.add_argument("--step", type=_at_least_one, metavar="N", help="default the newest")
    for it, seconds, shown in ((listed, 300.0, "5m"), (copied, 6 * 3600.0, "6h")):
        it.add_argument(
            "--image",
            help="of the pod that reads the volume when none of the job runs; default the image "
            "that the job names, else busybox:1.37",
        )
        it.add_argument(
            "--timeout", type=duration, default=seconds, metavar="TIME", help=f"default {shown}"
        )


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not legal: a number of at least 1")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
