"""What a run starts from: job, options and run directory, checked before anything is created."""

import errno
import os
import socket
import sys
from argparse import Namespace
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

import yaml

from ..builtin.names import is_builtin
from ..environment import (
    FSDP_TRANSFORMERS,
    VARIABLE,
    has_fsdp,
    producer_python,
    vllm_python,
)
from ..errors import InvalidInputError, invalid
from ..options import RunOptions
from ..spec import ConsumerBackend, GRPOJob, GRPOJobSpec
from ..spec.training import HUB_SCHEME
from .jobs import given_flags, job_of, options_of
from .manifests import read_document
from .resume import spec_differences


@dataclass(frozen=True, slots=True)
class Start:
    """A job and where it runs."""

    job: GRPOJob
    options: RunOptions
    resumes: bool
    """The run directory contains a run already."""
    explicit_port: bool


def start_of(arguments: Namespace, now: datetime) -> Start:
    """Resolve the command line of `run` and `check`; creates nothing.

    Raises InvalidInputError for an invalid manifest, and for a run directory of another run.
    """
    from ..reporting import RunPaths  # slow, and other commands do without

    given, run_dir = given_flags(arguments), arguments.run_dir
    stored = RunPaths.of(RunOptions(run_dir)).spec if run_dir is not None else None
    earlier = read_document(str(stored)) if stored is not None and stored.exists() else None
    base = read_document(arguments.file) if arguments.file is not None else earlier
    job = job_of(base, given, arguments.settings)
    if earlier is not None and run_dir is not None and has_checkpoints(run_dir):
        faults = spec_differences(earlier.parse().spec, job.spec)
        if faults:
            hint = (
                f"--run-dir: Invalid value: {str(run_dir)!r}: must be the directory of this run; "
                "it contains checkpoints of another spec. Choose another directory, or resume"
            )
            raise InvalidInputError([f"{hint} `grpo run --run-dir {run_dir}`", *map(str, faults)])
    options = RunOptions(
        run_dir=run_dir or new_run_dir(job.metadata.name, now),
        **{
            key: getattr(arguments, key)
            for key in ("host", "port", "skip_checks")
            if hasattr(arguments, key)
        },
        **options_of(given, job.spec.tracking.project),
    )
    if earlier is None:
        refuse_foreign_checkpoints(options)
    return Start(job, options, earlier is not None, explicit_port=hasattr(arguments, "port"))


def new_run_dir(name: str, now: datetime) -> Path:
    """The default run directory; one directory for each second."""
    return Path("runs") / f"{name}-{now:%Y%m%d-%H%M%S}"


def create_run_dir(path: Path) -> None:
    """Create a new run directory. Raises InvalidInputError if it exists or cannot be created."""
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise InvalidInputError(f"{path}: {error.strerror}; choose another --run-dir") from error


def has_metrics(run_dir: Path) -> bool:
    """Whether a run has made a step."""
    metrics = run_dir / "metrics.jsonl"
    return metrics.exists() and metrics.stat().st_size > 0


def has_checkpoints(run_dir: Path) -> bool:
    """Whether there is something to resume from; a run without checkpoints may change its spec."""
    return any((run_dir / "checkpoints").glob("step-*"))


def refuse_foreign_checkpoints(options: RunOptions) -> None:
    """A new run must not resume from the checkpoints of another one."""
    folder = options.checkpoint_dir
    if folder is not None and any(folder.glob("step-*")):
        raise InvalidInputError(
            f"--save-dir: Invalid value: {str(folder)!r}: must not contain checkpoints of another "
            "run; resume that run with its --run-dir, or choose another directory"
        )


def enter_environment(start: Start, arguments: Namespace) -> None:
    """Replace this process by the same command in the environment that the consumers need.

    Returns where this is that environment. Raises InvalidInputError if there is none.
    """
    if start.job.spec.consumers.backend is not ConsumerBackend.FSDP or has_fsdp():
        return
    python = vllm_python()
    if not python.exists():
        must = (
            "must be colossalai, or have an environment of its own on this machine. Run `make "
            f"run BACKEND=fsdp` in a checkout to build it, or set {VARIABLE} to a Python with "
            f"transformers {FSDP_TRANSFORMERS}; there is none at {python}"
        )
        raise InvalidInputError(invalid("spec.consumers.backend", "fsdp", must))
    if arguments.file == "-":  # it was read
        _refill_stdin(yaml.safe_dump(start.job.to_manifest()))
    sys.stdout.flush()
    os.execv(python, [str(python), "-m", "grpo_trainer.cli", *sys.argv[1:]])


def _refill_stdin(text: str) -> None:
    with os.fdopen(os.memfd_create("manifest"), "w+") as file:
        file.write(text)
        file.seek(0)
        os.dup2(file.fileno(), 0)


def check_trainer(spec: GRPOJobSpec) -> None:
    """Raises InvalidInputError if only the light part of the package is installed."""
    colossalai = spec.consumers.backend is ConsumerBackend.COLOSSALAI
    needed = (*(("colossalai",) if colossalai else ()), "ray", "torch")
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise InvalidInputError(
            f"grpo run: needs {', '.join(missing)}; install grpo-operator[trainer]"
        )


def check_files(spec: GRPOJobSpec) -> None:
    """Raises InvalidInputError with the fields whose data files do not exist."""
    given = spec.evaluation
    paths = [
        *(
            [(f"datasets[{index}].path", one.path) for index, one in enumerate(spec.datasets)]
            or [("dataset.path", spec.dataset.path)]
        ),
        *((f"evaluation.datasets.{name}", path) for name, path in given.datasets.items()),
        *((f"evaluation.sets[{index}].path", one.path) for index, one in enumerate(given.sets)),
    ]
    missing = [
        invalid(f"spec.{field}", path, f"no such file (working directory: {Path.cwd()})")
        for field, path in paths
        if not is_builtin(path) and not path.startswith(HUB_SCHEME) and not Path(path).exists()
    ]
    if missing:
        raise InvalidInputError(missing)


def never_started(run_dir: Path) -> bool:
    """Whether a run ended before Ray did anything: nothing in its directory is worth keeping."""
    return not has_metrics(run_dir) and not any((run_dir / "logs").glob("*"))


def check_port(start: Start) -> None:
    """Raises InvalidInputError if the port of the command line is taken; the default may be."""
    host, port = start.options.host, start.options.port
    if not start.explicit_port or port == 0:
        return
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return  # reported, with the host, by the server
            raise InvalidInputError(
                f"--port: Invalid value: {port}: must be free on {host}, is in use; choose another "
                "port, or 0 for a free one"
            ) from error


def check_engine(spec: GRPOJobSpec, options: RunOptions) -> None:
    """Raises InvalidInputError if vLLM has no environment on this machine."""
    python = producer_python(spec)
    if options.ray_address is not None or python is None or python.exists():
        return
    must = (
        "must be transformers, or have an environment of its own on this machine. Run `make "
        "run BACKEND=vllm` in a checkout to build it, or set "
        f"{VARIABLE} to a Python with vLLM; there is none at {python}"
    )
    raise InvalidInputError(invalid("spec.producers.backend", "vllm", must))
