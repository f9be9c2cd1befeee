"""The driver's report: copied into the status, with rounded numbers."""

from grpo_trainer.spec import (
    CodeProtection,
    Condition,
    GRPOJobStatus,
    MetricsStatus,
    Progress,
    ProgressStatus,
    WorkersStatus,
)

from ..model.conditions import USUAL_REASONS, Reason
from ..model.decision import State, false, true


def progress_fields(progress: Progress | None) -> dict[str, object]:
    """The fields of a status that come from the driver; none when it does not respond."""
    if progress is None:
        return {}
    fields: dict[str, object] = {
        "progress": _rounded(progress.progress),
        "metrics": _rounded(progress.metrics),
    }
    return fields | ({"checkpoint": progress.checkpoint} if progress.checkpoint else {})


def code_confined(progress: Progress | None) -> State | None:
    """The CodeConfined condition: how the programs of completions are kept from files."""
    match progress and progress.code_protection:
        case CodeProtection.LANDLOCK:
            return true(Reason.LANDLOCK, "programs of completions have no access to files")
        case CodeProtection.NAMESPACES:
            message = "programs of completions have a root directory of their own"
            return true(Reason.NAMESPACES, message)
        case CodeProtection.NONE:
            message = "programs of completions can read and write what the trainer can"
            return false(Reason.UNCONFINED, message)
    return None


def may_wait(old: GRPOJobStatus, new: GRPOJobStatus) -> bool:
    """Whether two statuses differ only in progress: of the driver, or of the pods."""
    return _without_progress(old) == _without_progress(new)


def _without_progress(status: GRPOJobStatus) -> GRPOJobStatus:
    """The status without the fields that change often, or bit by bit at a start."""
    update = {
        "progress": ProgressStatus(),
        "metrics": MetricsStatus(),
        "checkpoint": None,
        "workers": WorkersStatus(),
        "images": (),
        "conditions": tuple(map(_without_message, status.conditions)),
    }
    return status.model_copy(update=update)


def _without_message(condition: Condition) -> Condition:
    reason = "" if condition.reason in USUAL_REASONS else condition.reason
    return condition.model_copy(update={"message": "", "reason": reason})


def _rounded(record: ProgressStatus | MetricsStatus) -> ProgressStatus | MetricsStatus:
    digits = {name: float(f"{value:.4g}") for name, value in record if isinstance(value, float)}
    return record.model_copy(update=digits)
