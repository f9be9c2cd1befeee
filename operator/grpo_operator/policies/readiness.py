"""Whether the pods are ready, and if not, what keeps them."""

from ..conditions import Reason
from ..decision import State, no, unknown, yes
from ..observed import Observed, Pod, Problem, Role


def cluster_ready(seen: Observed) -> State:
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
        return unknown(Reason.QUEUED, "waiting for Kueue to admit the RayCluster")
    missing = _missing(seen)
    if missing is None:
        return yes(Reason.PODS_READY)
    problem = _worst(seen) or Problem(Reason.PODS_PENDING, missing)
    return no(problem.reason, problem.message)


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


def _worst(seen: Observed) -> Problem | None:
    """What to show: a pod that cannot be created, then the head's problem, then any other's."""
    assert seen.cluster is not None
    if seen.cluster.problem is not None:
        return seen.cluster.problem
    order = list(Role)

    def rank(pod: Pod) -> tuple[int, str]:
        return order.index(pod.role), pod.name

    return next((p.problem for p in sorted(seen.pods, key=rank) if p.problem), None)
