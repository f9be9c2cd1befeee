"""Which fields to change when a run does not fit into its accelerators."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from ..errors import Fault, invalid
from ..spec import GRPOJobSpec
from ..spec.cluster import CPU
from .architecture import Architecture
from .forecast import forecast

GIB = 1 << 30
Change = tuple[str, Any]
"""Path of a field below `spec` and its new value."""


def advice(spec: GRPOJobSpec, model: Architecture, accelerator: int) -> list[Fault]:
    """A fault for each pool that does not fit into accelerators of that many bytes, else none.

    Each names the first field to change, and how much the run needs after all changes proposed.
    Pools without accelerators have no limit.
    """
    now, faults = forecast(spec, model), []
    if spec.consumers.accelerator != CPU and now.consumer.peak > accelerator:
        changes, needed = _consumer_changes(spec, model, accelerator)
        faults.append(_fault(spec, "consumer", now.consumer.peak, accelerator, changes, needed))
    if spec.producers.accelerator != CPU and now.producer.peak > accelerator:
        changes, needed = _producer_changes(spec, model, accelerator)
        faults.append(_fault(spec, "producer", now.producer.peak, accelerator, changes, needed))
    return faults


def _consumer_changes(
    spec: GRPOJobSpec, model: Architecture, limit: int
) -> tuple[list[Change], int]:
    """Changes in order of their cost to throughput, until the run fits or none helps."""
    return _until_fits(
        spec, lambda s: forecast(s, model).consumer.peak, limit, _cheap_consumer_changes(spec)
    )


def _cheap_consumer_changes(spec: GRPOJobSpec) -> Iterator[Change]:
    if not spec.model.gradient_checkpointing:
        yield "model.gradientCheckpointing", True
    for stage in range(spec.consumers.zero_stage + 1, 3):
        yield "consumers.zeroStage", stage
    yield from _smaller_microbatches(spec)
    processes = spec.consumers.processes_per_replica
    while processes < 8:
        processes *= 2
        yield "consumers.processesPerReplica", processes


def _smaller_microbatches(spec: GRPOJobSpec) -> Iterator[Change]:
    tokens, size = spec.batch.train_microbatch_tokens, spec.batch.train_microbatch_size
    if tokens is not None:
        while tokens > spec.longest_sample:
            tokens = max(spec.longest_sample, tokens // 2)
            yield "batch.trainMicrobatchTokens", tokens
        return
    while size > 1:
        size = -(-size // 2)
        yield "batch.trainMicrobatchSize", size


def _producer_changes(
    spec: GRPOJobSpec, model: Architecture, limit: int
) -> tuple[list[Change], int]:
    sizes: list[Change] = []
    batch = spec.batch.inference_microbatch_size
    while batch > 1:
        batch = -(-batch // 2)
        sizes.append(("batch.inferenceMicrobatchSize", batch))
    sizes.append(("producers.backend", "vllm"))
    sizes += [("producers.tensorParallelSize", n) for n in (2, 4, 8)]
    return _until_fits(spec, lambda s: forecast(s, model).producer.peak, limit, iter(sizes))


def _until_fits(
    spec: GRPOJobSpec,
    needed: Callable[[GRPOJobSpec], int],
    limit: int,
    candidates: Iterator[Change],
) -> tuple[list[Change], int]:
    """Apply each change that is valid and lowers the need until the run fits; then leave out those
    that are not necessary."""
    changes: dict[str, Any] = {}
    tried, least = spec, needed(spec)
    for path, value in candidates:
        if least <= limit:
            break
        changed = _changed(tried, {path: value})
        if changed is not None and needed(changed) < least:
            tried, least = changed, needed(changed)
            changes[path] = value
    for path in list(changes):
        fewer = {other: value for other, value in changes.items() if other != path}
        changed = _changed(spec, fewer)
        if changed is not None and needed(changed) <= limit:
            changes, least = fewer, needed(changed)
    return list(changes.items()), least


def _changed(spec: GRPOJobSpec, changes: Mapping[str, Any]) -> GRPOJobSpec | None:
    """The spec with other values, None if it would not be valid."""
    body = spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for path, value in changes.items():
        section, _, field = path.partition(".")
        body.setdefault(section, {})[field] = value
    try:
        return GRPOJobSpec.model_validate(body)
    except ValidationError:
        return None


def _fault(
    spec: GRPOJobSpec, pool: str, peak: int, limit: int, changes: list[Change], needed: int
) -> Fault:
    what = f"a {pool} needs {peak / GIB:.1f} GiB of an accelerator with {limit / GIB:.1f} GiB"
    if not changes:
        return invalid("spec.model.path", spec.model.path, f"{what}; choose a smaller model")
    (path, value), *rest = changes
    also = "".join(f" and spec.{other} {new}" for other, new in rest)
    fit = f"need {needed / GIB:.1f} GiB" + ("" if needed <= limit else ", which is still too much")
    must = f"{what}; {_text(value)}{also} would {fit}"
    return invalid(f"spec.{path}", _value(spec, path), must)


def _value(spec: GRPOJobSpec, path: str) -> Any:
    body: Any = spec.model_dump(mode="json", by_alias=True)
    for part in path.split("."):
        body = body[part]
    return body


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
