"""Finished jobs: what they used goes at once, they themselves after their time to live."""

from datetime import datetime

from ..model.decision import Action, Decision, DeleteCluster, DeleteJob
from ..model.observed import Observed


def clean_up(seen: Observed, now: datetime) -> Decision:
    """Free the pods; delete the job when `ttlSecondsAfterFinished` is over. The status is final."""
    job, cluster = seen.job, seen.cluster
    actions: list[Action] = []
    if cluster is not None and not cluster.deleting:
        actions.append(DeleteCluster(cluster.uid))
    left = None
    ttl = job.spec.ttl_seconds_after_finished if job.spec is not None else None
    if ttl is not None and job.status.completion_time is not None:
        left = max(0.0, ttl - (now - job.status.completion_time).total_seconds())
        if left == 0:
            actions.append(DeleteJob())
    return Decision(job.status, tuple(actions), left or None)
