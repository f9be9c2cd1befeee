"""Recognizes a run directory whose run has finished, before anything is started."""

from grpo_trainer.reporting import RunPaths
from grpo_trainer.spec import GRPOJobSpec

from .checkpoints import Checkpoint, newest_checkpoint


def finished_message(spec: GRPOJobSpec, paths: RunPaths) -> str | None:
    """How to continue a finished run; None where there is something left to do."""
    newest = newest_checkpoint(paths.checkpoints)
    if newest is None or not _is_finished(spec, newest):
        return None
    if spec.max_steps is not None and newest.step >= spec.max_steps:
        done = f"{newest.step} of {spec.max_steps} steps"
        advice = "raise maxSteps or choose another --run-dir"
    else:
        done = f"{newest.step} steps, all data are used up"
        advice = "choose another --run-dir"
    return f"{paths.root}: already finished ({done}); {advice}"


def _is_finished(spec: GRPOJobSpec, newest: Checkpoint) -> bool:
    state = newest.driver_state()
    if state["evaluation_pending"] or state["ledger"].get("updates") == 0:
        return False
    source = state["source"]
    data_used_up: bool = source["done_below"] >= source["count"] * source["episodes"]
    return data_used_up or (spec.max_steps is not None and newest.step >= spec.max_steps)
