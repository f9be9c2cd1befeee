"""Whether the pods are ready, and if not, why."""

from datetime import datetime

from ..model.conditions import Reason
from ..model.decision import State, false, true, unknown
from ..model.observed import Job, Observed, Pod, Problem, Role
from .volumes import CLAIM, POLL_SECONDS, UNBOUND, cause_subject, claim_name, waits_for_volume

BINDING_SECONDS = 60.0
"""Age in seconds of a pod from which an unbound volume is a fault."""
_CONFLICT = "SchedulerError"
"""The scheduler's reason after a conflict, as of several pods that wait for one volume."""

_QUEUED = unknown(Reason.QUEUED, "waiting for Kueue to admit the RayCluster")


def cluster_ready(observed: Observed, now: datetime) -> State:
    """The ClusterReady condition: Unknown while no pods should run, else True or False."""
    if observed.problem is not None:
        return false(observed.problem.reason, observed.problem.message)
    if observed.cluster is None and not observed.pods:
        return unknown(Reason.NO_CLUSTER)
    if observed.cluster is None or observed.cluster.deleting:
        names = ", ".join(sorted(f"{p.name} on {p.node}" for p in observed.pods)[:4])
        count = len(observed.pods)
        return false(
            Reason.OLD_PODS_LEAVING,
            f"waiting for {count} pods of the previous cluster to terminate: {names}",
        )
    if observed.cluster.suspended:
        return _QUEUED
    missing = _missing(observed)
    if missing is None:
        return true(Reason.PODS_READY)
    problem = _worst(observed, now) or Problem(Reason.PODS_PENDING, missing)
    return false(problem.reason, problem.message)


def cluster_created(observed: Observed) -> State:
    """The condition once the cluster exists without pods, so that this needs no write.

    Kueue suspends a RayCluster of its queues when it is created.
    """
    spec = observed.job.spec
    assert spec is not None
    return _QUEUED if spec.queue_name else false(Reason.PODS_PENDING, _missing(observed) or "")


def _missing(observed: Observed) -> str | None:
    spec = observed.job.spec
    assert spec is not None
    required = {
        Role.HEAD: 1,
        Role.CONSUMER: spec.consumers.replicas,
        Role.PRODUCER: spec.producers.min_available,
    }
    lacking = [
        f"{role}: {observed.ready(role)} of {count} ready"
        for role, count in required.items()
        if observed.ready(role) < count
    ]
    return "; ".join(lacking) or None


def seconds_to_next_check(observed: Observed, now: datetime) -> float | None:
    """Seconds until a volume that a pod waits for may have become a fault; None when none waits."""
    binding = (_binding(pod, now) for pod in observed.own_pods)
    polling = (POLL_SECONDS for pod in observed.own_pods if waits_for_volume(pod))
    return min(filter(None, (*binding, *polling)), default=None)


def _worst(observed: Observed, now: datetime) -> Problem | None:
    """The problem to report: a pod that cannot be created, then the head's, then any other's."""
    assert observed.cluster is not None
    if observed.cluster.problem is not None:
        return observed.cluster.problem
    order = list(Role)

    def rank(pod: Pod) -> tuple[int, str]:
        return order.index(pod.role), pod.name

    pods = sorted(observed.own_pods, key=rank)
    found = next((p.problem for p in pods if p.problem and not _binding(p, now)), None)
    if observed.cause is not None and (found is None or UNBOUND in found.message):
        subject = cause_subject(observed, now)
        provisioning = subject is not None and subject.kind == CLAIM
        source = _storage_class(observed.job) if provisioning else ""
        return Problem(observed.cause.reason, observed.cause.message + source)
    if found is None or UNBOUND not in found.message:
        return found
    claim = f"claim {claim_name(observed.job)}{_storage_class(observed.job)} has no Event yet"
    return Problem(found.reason, f"{found.message} ({claim})")


def _storage_class(job: Job) -> str:
    """The storage class of a claim that the operator created."""
    storage = job.spec.storage if job.spec is not None else None
    if storage is None or storage.claim_name is not None:
        return ""
    return f" (storage class {storage.storage_class_name or 'of the cluster (default)'})"


def _binding(pod: Pod, now: datetime) -> float:
    """Seconds for which a pod may wait for its volume before that is a fault."""
    if pod.problem is None:
        return 0.0
    if pod.problem.reason != _CONFLICT and UNBOUND not in pod.problem.message:
        return 0.0
    return max(0.0, BINDING_SECONDS - (now - pod.created).total_seconds())
