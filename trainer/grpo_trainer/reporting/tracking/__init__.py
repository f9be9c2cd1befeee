"""Trackers: TensorBoard, Weights & Biases, MLflow and Trackio, as the spec enables them."""

from collections.abc import Callable
from importlib.util import find_spec

from ...errors import Fault, InvalidInputError, forbidden, invalid
from ...spec import GRPOJob, GRPOJobSpec
from ..paths import RunPaths
from ..sink import Sink
from .mlflow import MLflow, check_reachable
from .tensorboard import TensorBoard
from .trackio import Trackio
from .wandb import Wandb, can_log_in

__all__ = ["check_tracking", "enabled", "make_trackers", "reach_trackers"]

_FIELD = "spec.tracking"
_TRACKERS: dict[str, Callable[[GRPOJob, RunPaths], Sink]] = {
    "tensorboard": TensorBoard,
    "wandb": Wandb,
    "mlflow": MLflow,
    "trackio": Trackio,
}
"""By the name of the field, which is that of the package and of the extra that installs it."""


def check_tracking(spec: GRPOJobSpec) -> None:
    """Check that the packages of all trackers are installed, and that there is a key.

    Raises InvalidInputError with the field, what is missing and how to fix it.
    """
    faults = [_not_installed(name) for name in enabled(spec) if find_spec(name) is None]
    missing_key = spec.tracking.wandb is not None and find_spec("wandb") and not can_log_in()
    if missing_key:
        ways = "set WANDB_API_KEY, run `wandb login`, or set WANDB_MODE=offline"
        faults.append(forbidden(f"{_FIELD}.wandb", f"no API key; {ways}"))
    if faults:
        raise InvalidInputError(faults)


def make_trackers(job: GRPOJob, layout: RunPaths) -> list[Sink]:
    """A sink for each tracker of the spec; `check_tracking` has passed."""
    return [_TRACKERS[name](job, layout) for name in enabled(job.spec)]


def reach_trackers(spec: GRPOJobSpec) -> None:
    """Check that the servers of the trackers answer. Raises RunFailedError."""
    if spec.tracking.mlflow is not None:
        check_reachable(spec.tracking.mlflow)


def enabled(spec: GRPOJobSpec) -> list[str]:
    """The trackers of a spec."""
    tracking = spec.tracking
    return [name for name in _TRACKERS if getattr(tracking, name) not in (None, False)]


def _not_installed(name: str) -> Fault:
    field, problem = f"{_FIELD}.{name}", f"the package {name} is not installed; install"
    if name == "tensorboard":
        return invalid(field, True, f"{problem} it or set false")
    return forbidden(field, f"{problem} grpo-operator[{name}] or remove the field")
