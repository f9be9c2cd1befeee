"""Pods that wait for their volume: whose Events have the cause."""

from dataclasses import dataclass
from datetime import datetime

from ..model.naming import child_name
from ..model.observed import Job, Observed, Pod, Role

UNBOUND = "unbound immediate PersistentVolumeClaims"
"""The scheduler's message while a volume is being provisioned."""
CREATING_SECONDS = 30.0
"""Age in seconds from which a pod whose container is being created may wait for its volume."""
UNBOUND_SECONDS = 10.0
"""The same of a claim that is not bound."""
POLL_SECONDS = 15.0
CLAIM = "PersistentVolumeClaim"


@dataclass(frozen=True, slots=True)
class Subject:
    """An object whose Events are read."""

    kind: str
    name: str


def claim_name(job: Job) -> str:
    """The claim that the pods of a job mount."""
    storage = job.spec.storage if job.spec is not None else None
    return (storage and storage.claim_name) or child_name(job.name, job.uid)


def waits_for_volume(pod: Pod) -> bool:
    """Whether a pod may wait for its volume: unbound, or while its container is created."""
    unbound = pod.problem is not None and UNBOUND in pod.problem.message
    return not pod.ready and not pod.deleting and (unbound or pod.creating)


def cause_subject(observed: Observed, now: datetime) -> Subject | None:
    """The object whose Events have the cause why a pod does not start, if it takes long."""
    cluster = observed.cluster
    if cluster is None or cluster.deleting or cluster.suspended:
        return None
    order = list(Role)
    for pod in sorted(observed.own_pods, key=lambda pod: (order.index(pod.role), pod.name)):
        age = (now - pod.created).total_seconds()
        if not waits_for_volume(pod):
            continue
        if pod.creating and age >= CREATING_SECONDS:
            return Subject("Pod", pod.name)
        if not pod.creating and age >= UNBOUND_SECONDS:
            return Subject(CLAIM, claim_name(observed.job))
    return None
