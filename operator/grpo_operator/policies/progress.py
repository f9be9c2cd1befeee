"""What the driver tells: copied into the status, in numbers fit to be read."""

from grpo_trainer.spec import GRPOJobStatus, MetricsStatus, Progress, ProgressStatus

_TOLD = ("progress", "metrics", "checkpoint")


def told(progress: Progress | None) -> dict[str, object]:
    """The fields of a status that come from the driver; none when it says nothing."""
    if progress is None:
        return {}
    fields: dict[str, object] = {
        "progress": _rounded(progress.progress),
        "metrics": _rounded(progress.metrics),
    }
    return fields | ({"checkpoint": progress.checkpoint} if progress.checkpoint else {})


def told_only(old: GRPOJobStatus, new: GRPOJobStatus) -> bool:
    """Whether two statuses differ in nothing but what the driver tells: such news may wait."""
    return old == new.model_copy(update={name: getattr(old, name) for name in _TOLD})


def _rounded(record: ProgressStatus | MetricsStatus) -> ProgressStatus | MetricsStatus:
    digits = {name: float(f"{value:.4g}") for name, value in record if isinstance(value, float)}
    return record.model_copy(update=digits)
