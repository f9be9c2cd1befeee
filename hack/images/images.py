#!/usr/bin/env python3
"""Builds the project's images without a Docker daemon, and checks them in containers.

    images.py build   [--tag TAG] [NAME...]   build, unless nothing has changed; prints the archives
    images.py archive [--tag TAG] NAME        print the path of an image's docker-archive
    images.py check   [--tag TAG] [NAME...]   run the checks of built images

NAME is operator, consumer or producer; without one all are meant. TAG is the project's version
unless it is given. Needs Linux and, but for `archive`, root.
"""

import argparse
import subprocess
import sys
import time

import checks
from recipes import RECIPES, project_version
from store import Store


def main() -> None:
    arguments = _arguments()
    store = Store.in_cache()
    names: list[str] = arguments.names or list(RECIPES)
    try:
        for name in names:
            _COMMANDS[arguments.command](store, name, arguments.tag)
    except (FileNotFoundError, RuntimeError) as error:
        sys.exit(f"error: {error}")
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        sys.exit(f"error: {error}")


def _build(store: Store, name: str, tag: str) -> None:
    started = time.monotonic()
    archive = store.build(name, tag)
    size = archive.stat().st_size / 1e6
    print(f"{name}: {time.monotonic() - started:.1f} s, {size:.0f} MB", file=sys.stderr)
    print(archive, flush=True)


def _archive(store: Store, name: str, tag: str) -> None:
    print(store.archive(name, tag))


def _check(store: Store, name: str, tag: str) -> None:
    checks.run(store, name, tag)


_COMMANDS = {"build": _build, "archive": _archive, "check": _check}


def _arguments() -> argparse.Namespace:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in _COMMANDS:
        one = commands.add_parser(command)
        count = 1 if command == "archive" else "*"
        one.add_argument("names", nargs=count, metavar="NAME", help=", ".join(RECIPES))
        one.add_argument("--tag", default=project_version())
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in RECIPES]:
        parser.error(f"NAME: Invalid value: {unknown[0]!r}: must be one of {', '.join(RECIPES)}")
    return arguments


if __name__ == "__main__":
    main()
