"""Finished jobs: their pods are deleted, the jobs after their time to live."""

from datetime import datetime

from grpo_trainer.spec import ConditionType, GRPOJobStatus, Phase

from ..model.conditions import find_condition
from ..model.decision import Action, Decision, DeleteCluster, DeleteJob, Transition
from ..model.observed import Observed


def clean_up(observed: Observed, now: datetime) -> Decision:
    """Delete the pods, and the job once `ttlSecondsAfterFinished` has passed.

    Pods of a failed job stay for `cleanupPolicy.keepFailedPodsSeconds`.
    """
    job, cluster = observed.job, observed.cluster
    actions: list[Action] = []
    waits: list[float] = []
    if cluster is not None and not cluster.deleting:
        kept = _seconds_left(observed, _keep_seconds(observed), now)
        if kept:
            waits.append(kept)
        else:
            actions.append(DeleteCluster(cluster.uid))
    ttl = job.spec.ttl_seconds_after_finished if job.spec is not None else None
    left = _seconds_left(observed, ttl, now)
    if left is not None:
        waits.append(left)
        if left == 0:
            actions.append(DeleteJob())
    return Decision(
        _acknowledged(observed, now), tuple(actions), min(filter(None, waits), default=None)
    )


def _keep_seconds(observed: Observed) -> int:
    spec, failed = observed.job.spec, observed.job.status.phase is Phase.FAILED
    return spec.cleanup_policy.keep_failed_pods_seconds if spec is not None and failed else 0


def _seconds_left(observed: Observed, seconds: int | None, now: datetime) -> float | None:
    """Of so many seconds after the end."""
    ended = observed.job.status.completion_time
    if seconds is None or ended is None:
        return None
    return max(0.0, seconds - (now - ended).total_seconds())


def _acknowledged(observed: Observed, now: datetime) -> GRPOJobStatus:
    """The status, after a change of the spec or an upgrade with the conditions of this version."""
    status = observed.job.status
    ended = find_condition(status, ConditionType.COMPLETE) or find_condition(
        status, ConditionType.FAILED
    )
    if ended is None:
        return status
    transition = Transition(observed, now, status.phase, ended.reason, ended.message)
    return transition.acknowledgement().status
