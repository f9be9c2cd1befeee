"""The commands: each turns parsed arguments into an exit code."""

import json
import shutil
import sys
from argparse import Namespace
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import yaml

from ..errors import InvalidInputError
from ..spec import ExitCode, GRPOJob, GRPOJobSpec, Metadata, resolve_plan
from ..spec.faults import Fault
from .flags import OPTION
from .jobs import given_flags, job_of
from .manifests import read_documents
from .start import (
    check_engine,
    check_files,
    check_port,
    check_trainer,
    create_run_dir,
    enter_environment,
    never_started,
    start_of,
)

Command = Callable[[Namespace], int]
INTERRUPTED = 130
"""Exit code after Ctrl-C, as of a shell."""
SHELLS = ("bash", "zsh", "fish", "tcsh")
_SHOWN_SAMPLE_BYTES = 50_000_000


def run(arguments: Namespace) -> int:
    """Train; resume if the directory contains a run."""
    start = start_of(arguments, datetime.now())
    if arguments.dry_run:
        from .dry_run import plan_text

        print(plan_text(start), end="")
        return ExitCode.SUCCESS
    enter_environment(start, arguments)
    check_trainer(start.job.spec)
    check_port(start)
    check_engine(start.job.spec, start.options)
    if not start.resumes:  # a finished run needs no data
        check_files(start.job.spec)
    directory = start.options.run_dir
    existed = directory.exists()
    if arguments.run_dir is None:
        create_run_dir(directory)

    from ..driver import run as drive

    try:
        return drive(start.job, start.options)
    except InvalidInputError:
        if not existed and never_started(directory):
            shutil.rmtree(directory)
        raise


def check(arguments: Namespace) -> int:
    """Check what a run needs, without starting one."""
    from .check import check_start

    start = start_of(arguments, datetime.now())
    enter_environment(start, arguments)
    return check_start(start)


def data(arguments: Namespace) -> int:
    """Make a data set from files of other projects."""
    from .data import data as convert

    return convert(arguments)


def completion(arguments: Namespace) -> int:
    """Print the completion script of a shell."""
    import shtab

    from .main import build_parser

    print(shtab.complete(build_parser(), shell=arguments.shell))
    return ExitCode.SUCCESS


def manifest(arguments: Namespace) -> int:
    """Print the GRPOJob that the flags describe."""
    given = given_flags(arguments)
    job = job_of(None, given, arguments.settings)
    # ASCII: PyYAML loses some line ends, such as U+0085, when it writes Unicode.
    print(yaml.safe_dump(job.to_manifest(), sort_keys=False), end="")
    for flag, _ in given:
        if flag.path.startswith(OPTION):
            print(f"note: {flag.long} has no field in a manifest", file=sys.stderr)
    print("note: in a cluster, add spec.storage with claimName or size", file=sys.stderr)
    return ExitCode.SUCCESS


def validate(arguments: Namespace) -> int:
    """Check every manifest of every file, and print what its sizes amount to."""
    faults: list[str] = []
    for path in arguments.files:
        jobs, found = jobs_of_file(path)
        if not found:
            print(f"{path}: valid")
            for job in jobs:
                print(f"  {job.metadata.name}")
                print(*(f"    {line}" for line in resolve_plan(job.spec).lines()), sep="\n")
        faults += found
    if faults:
        raise InvalidInputError(faults)
    return ExitCode.SUCCESS


def report(arguments: Namespace) -> int:
    """Write a self-contained HTML page about runs, finished or not."""
    from ..report import load_run, render_page

    runs = [load_run(path, arguments.completions_mb * 1_000_000) for path in arguments.runs]
    output: Path = arguments.output or arguments.runs[0] / "report.html"
    title = " and ".join(dict.fromkeys(run.name for run in runs))
    page = render_page(runs, title)
    try:
        output.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"--output: {output}: {error.strerror}") from error
    print(output)
    return ExitCode.SUCCESS


def show(arguments: Namespace) -> int:
    """Print curves, evaluations and completions of a run, finished or not."""
    from rich.console import Console

    from ..report import load_run, show_run

    console = Console(highlight=False)
    run = load_run(arguments.run, _SHOWN_SAMPLE_BYTES)
    console.print(show_run(run, console.width, arguments.completions))
    return ExitCode.SUCCESS


def compare(arguments: Namespace) -> int:
    """Print configuration differences, results and curves of two runs."""
    from rich.console import Console

    from ..report import compare_runs, load_run

    console = Console(highlight=False)
    one, other = (load_run(path, 0) for path in (arguments.run, arguments.other))
    console.print(compare_runs(one, other, console.width))
    return ExitCode.SUCCESS


def plan(arguments: Namespace) -> int:
    """Forecast the memory of each run; an error if one exceeds the memory of the accelerators."""
    documents = read_documents(arguments.file)
    accelerator = round(arguments.gpu_memory * (1 << 30))
    several = len(documents) > 1
    faults: list[str] = []
    for document in documents:
        if several:
            print(document.source)
        found = _plan(document.parse().spec, accelerator)
        faults += [f"{document.source}: {fault}" if several else str(fault) for fault in found]
    if faults:
        raise InvalidInputError(faults)
    return ExitCode.SUCCESS


def _plan(spec: GRPOJobSpec, accelerator: int) -> list[Fault]:
    """Print the forecast of one run; returns faults of pools that exceed `accelerator` bytes."""
    from .. import planning
    from ..builtin import default_cache, resolve_model_path
    from .model_config import config_directory

    path = resolve_model_path(spec.model.path, spec.reward.main_type, default_cache())
    model = planning.read_architecture(config_directory(path), spec.model.path)
    layout = planning.generation_layout(spec)
    sequences = planning.concurrent_sequences(model, layout, accelerator) if layout.paged else None
    print(planning.page(planning.forecast(spec, model), model, sequences))
    return planning.advice(spec, model, accelerator)


def environment(arguments: Namespace) -> int:
    """Serve an environment until Ctrl-C or SIGTERM."""
    from ..environments import sdk

    try:
        kind = sdk.load_class(arguments.environment)
    except ValueError as error:
        raise InvalidInputError(f"grpo environment: {error}") from error
    except Exception as error:  # of the user's module
        text = f"{arguments.environment}: {type(error).__name__}: {error}"
        raise InvalidInputError(f"grpo environment: {text}") from error
    try:
        listener = sdk.listen(arguments.host, arguments.port)
    except OSError as error:
        must = f"must be free on {arguments.host}: {error.strerror}"
        raise InvalidInputError(f"--port: Invalid value: {arguments.port}: {must}") from error
    sdk.serve(kind, listener)
    return ExitCode.SUCCESS


def schema(arguments: Namespace) -> int:
    """Print the JSON schema of the manifest, for editors."""
    body = GRPOJob.model_json_schema(by_alias=True)
    body = {"$schema": "https://json-schema.org/draft/2020-12/schema", **body}
    body["required"] = ["apiVersion", "kind", "metadata"]
    body["$defs"][Metadata.__name__]["required"] = ["name"]
    print(json.dumps(body, indent=2))
    return ExitCode.SUCCESS


def jobs_of_file(path: str) -> tuple[list[GRPOJob], list[str]]:
    """The valid jobs of a file, and the faults of its other manifests, each with its place."""
    jobs: list[GRPOJob] = []
    faults: list[str] = []
    try:
        documents = read_documents(path)
    except InvalidInputError as error:
        return [], list(error.faults)
    for document in documents:
        try:
            jobs.append(document.parse())
        except InvalidInputError as error:
            faults += error.faults
    return jobs, faults
