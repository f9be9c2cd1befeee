"""The commands: each turns parsed arguments into an exit code."""

import copy
import json
import re
import sys
from argparse import Namespace
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from ..errors import InvalidInputError
from ..options import RunOptions
from ..spec import API_VERSION, KIND, MAX_NAME_LENGTH, ExitCode, GRPOJob, Metadata
from .flags import FLAGS, OPTION, SPEC, Flag, put
from .manifests import Document, read_document, read_documents
from .resume import spec_differences

_SHOWN_SAMPLE_BYTES = 50_000_000

Given = list[tuple[Flag, Any]]
"""The flags on the command line with their values."""


def run(arguments: Namespace) -> int:
    """Train; on a directory that holds a run, go on with it."""
    from ..reporting import RunPaths  # slow, and the other commands do without

    given, run_dir = given_flags(arguments), arguments.run_dir
    stored = RunPaths.of(RunOptions(run_dir)).spec if run_dir is not None else None
    earlier = read_document(str(stored)) if stored is not None and stored.exists() else None
    base = read_document(arguments.file) if arguments.file is not None else earlier
    job = job_of(base, given)
    if earlier is not None and run_dir is not None and has_checkpoints(run_dir):
        faults = spec_differences(earlier.parse().spec, job.spec)
        if faults:
            hint = f"{run_dir} holds a run of another spec; resume it with its own, or take another"
            raise InvalidInputError([f"--run-dir: {hint} directory", *map(str, faults)])
    require_trainer()
    options = RunOptions(
        run_dir=run_dir or new_run_dir(job.metadata.name, datetime.now()),
        **{key: getattr(arguments, key) for key in ("host", "port") if hasattr(arguments, key)},
        **options_of(given, job.spec.tracking.project),
    )
    if earlier is None:
        refuse_foreign_checkpoints(options)

    from ..driver import run as drive

    return drive(job, options)


def manifest(arguments: Namespace) -> int:
    """Print the GRPOJob that the flags describe."""
    given = given_flags(arguments)
    job = job_of(None, given)
    # ASCII: PyYAML loses some line ends, such as U+0085, when it writes Unicode.
    print(yaml.safe_dump(job.to_manifest(), sort_keys=False), end="")
    for flag, _ in given:
        if flag.path.startswith(OPTION):
            print(f"note: {flag.long} has no field in a manifest", file=sys.stderr)
    print("note: in a cluster, add spec.storage with claimName or size", file=sys.stderr)
    return ExitCode.SUCCESS


def validate(arguments: Namespace) -> int:
    """Check every manifest of every file."""
    faults: list[str] = []
    for path in arguments.files:
        found = faults_of_file(path)
        if not found:
            print(f"{path}: valid")
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
    """Forecast the memory of a run; an error if it exceeds the memory of the accelerators."""
    from .. import planning
    from ..builtin import default_cache, resolve_model_path
    from .model_config import config_directory

    spec = read_document(arguments.file).parse().spec
    accelerator = round(arguments.gpu_memory * (1 << 30))
    path = resolve_model_path(spec.model.path, spec.reward.type, default_cache())
    model = planning.read_architecture(config_directory(path), spec.model.path)
    layout = planning.generation_layout(spec)
    sequences = planning.concurrent_sequences(model, layout, accelerator) if layout.paged else None
    print(planning.page(planning.forecast(spec, model), model, sequences))
    faults = planning.advice(spec, model, accelerator)
    if faults:
        raise InvalidInputError(faults)
    return ExitCode.SUCCESS


def schema(arguments: Namespace) -> int:
    """Print the JSON schema of the manifest, for editors."""
    body = GRPOJob.model_json_schema(by_alias=True)
    body = {"$schema": "https://json-schema.org/draft/2020-12/schema", **body}
    body["required"] = ["apiVersion", "kind", "metadata"]
    body["$defs"][Metadata.__name__]["required"] = ["name"]
    print(json.dumps(body, indent=2))
    return ExitCode.SUCCESS


def faults_of_file(path: str) -> list[str]:
    """Everything wrong with a file's manifests, each with its place."""
    faults: list[str] = []
    try:
        documents = read_documents(path)
    except InvalidInputError as error:
        return list(error.faults)
    for document in documents:
        try:
            document.parse()
        except InvalidInputError as error:
            faults += error.faults
    return faults


def given_flags(arguments: Namespace) -> Given:
    """Flags of the table that the command line holds."""
    return [(flag, getattr(arguments, flag.key)) for flag in FLAGS if hasattr(arguments, flag.key)]


def job_of(base: Document | None, given: Given) -> GRPOJob:
    """The job of a manifest and flags; a flag that is given wins over the manifest's field.

    Without a manifest the job is called after its project. Raises InvalidInputError with every
    fault, and the flag behind it.
    """
    fields = {flag.path: (flag, value) for flag, value in given if flag.path.startswith(SPEC)}
    document = copy.deepcopy(base) if base is not None else _empty(fields)
    for path, (flag, value) in fields.items():
        put(document.data, path, value)
        for further, implied in flag.also.items():
            put(document.data, further, implied)
    return document.parse({path: "/".join(flag.names) for path, (flag, _) in fields.items()})


def options_of(given: Given, project: str) -> dict[str, Any]:
    """Fields of RunOptions that flags set.

    Checkpoints and evaluations go to a folder of the project's name, as the original did, so that
    two projects may share the flag's value.
    """
    options = {f.path.removeprefix(OPTION): v for f, v in given if f.path.startswith(OPTION)}
    for folder in ("checkpoint_dir", "evaluation_dir"):
        if folder in options:
            options[folder] = options[folder] / project.replace(" ", "_")
    return options


def new_run_dir(name: str, now: datetime) -> Path:
    """A directory that did not exist. Raises InvalidInputError when it cannot be made."""
    path = Path("runs") / f"{name}-{now:%Y%m%d-%H%M%S}"
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise InvalidInputError(f"{path}: {error.strerror}; give another --run-dir") from error
    return path


def require_trainer() -> None:
    """Raises InvalidInputError where only the light part of the package is installed."""
    missing = [name for name in ("colossalai", "ray", "torch") if find_spec(name) is None]
    if missing:
        raise InvalidInputError(
            f"grpo run: needs {', '.join(missing)}; install grpo-operator[trainer]"
        )


def has_checkpoints(run_dir: Path) -> bool:
    """Whether there is something to go on from; a run that never got so far may change."""
    return any((run_dir / "checkpoints").glob("step-*"))


def refuse_foreign_checkpoints(options: RunOptions) -> None:
    """A new run must not go on from the checkpoints of another one."""
    folder = options.checkpoint_dir
    if folder is not None and any(folder.glob("step-*")):
        raise InvalidInputError(
            f"--save-dir: {folder} holds the checkpoints of another run; go on with that one by "
            "its --run-dir, or give another directory"
        )


def _empty(fields: dict[str, tuple[Flag, Any]]) -> Document:
    _, project = fields.get("spec.tracking.project", (None, ""))
    metadata = {"name": job_name(project) or Metadata().name}
    data = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": {}}
    return Document("command line", data)


def job_name(project: str) -> str:
    """A project's name as a legal name of an object; empty when nothing of it is legal."""
    name = re.sub(r"[^a-z0-9]+", "-", project.lower())
    return re.sub(r"^[^a-z]+", "", name)[:MAX_NAME_LENGTH].rstrip("-")
