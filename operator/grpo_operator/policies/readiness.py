"""Whether the pods are ready, and if not, what keeps them."""

from datetime import datetime

from ..model.conditions import Reason
from ..model.decision import State, no, unknown, yes
from ..model.observed import Observed, Pod, Problem, Role

BINDING_SECONDS = 60.0
"""How old a pod may be before it is a fault that its volume is not there."""
_UNBOUND = "unbound immediate PersistentVolumeClaims"
"""What the scheduler says while a volume is being provisioned."""
_TRIED_AGAIN = "SchedulerError"
"""Its reason when it lost a race, as several pods do that wait for one volume."""

_QUEUED = unknown(Reason.QUEUED, "waiting for Kueue to admit the RayCluster")


def cluster_ready(seen: Observed, now: datetime) -> State:
    """The ClusterReady condition: Unknown while no pods are meant to run, else True or False."""
    if seen.problem is not None:
        return no(seen.problem.reason, seen.problem.message)
    if seen.cluster is None and not seen.pods:
        return unknown(Reason.NO_CLUSTER)
    if seen.cluster is None or seen.cluster.deleting:
        names = ", ".join(sorted(f"{p.name} on {p.node}" for p in seen.pods)[:4])
        count = len(seen.pods)
        return no(Reason.OLD_PODS_LEAVING, f"waiting for {count} pods of the old cluster: {names}")
    if seen.cluster.suspended:
        return _QUEUED
    missing = _missing(seen)
    if missing is None:
        return yes(Reason.PODS_READY)
    problem = _worst(seen, now) or Problem(Reason.PODS_PENDING, missing)
    return no(problem.reason, problem.message)


def cluster_created(seen: Observed) -> State:
    """The condition once the cluster is there and no pod yet, so that nothing is written for that.

    Kueue suspends a RayCluster of its queues when it is created.
    """
    spec = seen.job.spec
    assert spec is not None
    return _QUEUED if spec.queue_name else no(Reason.PODS_PENDING, _missing(seen) or "")


def _missing(seen: Observed) -> str | None:
    spec = seen.job.spec
    assert spec is not None
    wanted = {
        Role.HEAD: 1,
        Role.CONSUMER: spec.consumers.replicas,
        Role.PRODUCER: spec.producers.min_available,
    }
    lacking = [
        f"{role}: {seen.ready(role)} of {count} ready"
        for role, count in wanted.items()
        if seen.ready(role) < count
    ]
    return "; ".join(lacking) or None


def seconds_to_bind(seen: Observed, now: datetime) -> float | None:
    """Seconds until a volume that is not there becomes a fault; None when none is awaited."""
    return min(filter(None, (_binding(pod, now) for pod in seen.pods)), default=None)


def _worst(seen: Observed, now: datetime) -> Problem | None:
    """What to show: a pod that cannot be created, then the head's problem, then any other's."""
    assert seen.cluster is not None
    if seen.cluster.problem is not None:
        return seen.cluster.problem
    order = list(Role)

    def rank(pod: Pod) -> tuple[int, str]:
        return order.index(pod.role), pod.name

    pods = sorted(seen.pods, key=rank)
    return next((p.problem for p in pods if p.problem and not _binding(p, now)), None)


def _binding(pod: Pod, now: datetime) -> float:
    """Seconds for which a pod may still wait for its volume without a word."""
    if pod.problem is None:
        return 0.0
    if pod.problem.reason != _TRIED_AGAIN and _UNBOUND not in pod.problem.message:
        return 0.0
    return max(0.0, BINDING_SECONDS - (now - pod.created).total_seconds())
