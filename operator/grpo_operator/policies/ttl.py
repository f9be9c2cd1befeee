"""Finished jobs: their pods are deleted at once, the jobs after their time to live."""

from datetime import datetime

from ..model.decision import Action, Decision, DeleteCluster, DeleteJob
from ..model.observed import Observed


def clean_up(observed: Observed, now: datetime) -> Decision:
    """Delete the pods, and the job once `ttlSecondsAfterFinished` has passed."""
    job, cluster = observed.job, observed.cluster
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
