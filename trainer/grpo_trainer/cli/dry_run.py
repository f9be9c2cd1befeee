"""The plan of a run, as `--dry-run` prints it: comments, then the manifest with all defaults."""

from collections.abc import Iterator

import yaml

from ..spec import API_VERSION, KIND, GRPOJob, GRPOJobSpec, resolve_plan
from .start import Start


def plan_text(start: Start) -> str:
    """A valid manifest with the plan in comments."""
    comments = "".join(f"# {line}\n" for line in _lines(start))
    return comments + resolved(start.job)


def resolved(job: GRPOJob) -> str:
    """The manifest with every default filled in."""
    body = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": job.metadata.plain(),
        "spec": job.spec.plain(),
    }
    # ASCII: PyYAML loses some line ends, such as U+0085, when it writes Unicode.
    text: str = yaml.safe_dump(body, sort_keys=False)
    return text


def _lines(start: Start) -> Iterator[str]:
    spec, options = start.job.spec, start.options
    yield f"run directory: {options.run_dir} ({'resumed' if start.resumes else 'new'})"
    yield from resolve_plan(spec).lines()
    yield f"consumers: {_consumers(spec)}"
    producers = spec.producers
    yield f"producers: {producers.replicas} with {producers.backend}, on {producers.accelerator}"
    kept = spec.checkpoint
    every = f"every {kept.interval} steps and at the end" if kept.interval else "at the end"
    yield f"checkpoints: {every}, the last {kept.keep_last} are kept"
    sets = ", ".join(spec.evaluation.datasets)
    if sets and spec.evaluation.interval:
        yield f"evaluation: {sets}, every {spec.evaluation.interval} steps"


def _consumers(spec: GRPOJobSpec) -> str:
    consumers = spec.consumers
    return (
        f"{spec.consumer_processes} on {consumers.accelerator}: data parallel "
        f"{spec.data_parallel_size}, tensor parallel {consumers.tensor_parallel_size}, pipeline "
        f"parallel {consumers.pipeline_parallel_size}, ZeRO stage {consumers.zero_stage}"
    )
