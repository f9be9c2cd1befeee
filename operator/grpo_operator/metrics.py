"""The operator's own metrics, each replica its own registry."""

from contextlib import AbstractContextManager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from .model.conditions import EVICTIONS

_PREFIX = "grpo_operator_"
_WAITS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)


class Metrics:
    """Counters and gauges by name."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.reconcile_seconds = Histogram(
            f"{_PREFIX}reconcile_seconds", "Time to reconcile one job", registry=registry
        )
        self.reconcile_errors = Counter(
            f"{_PREFIX}reconcile_errors",
            "Reconciliations that failed, actions that were refused",
            ["reason"],
            registry=registry,
        )
        self.queue_depth = Gauge(
            f"{_PREFIX}queue_depth",
            "Calls to the API server that wait for their turn",
            registry=registry,
        )
        self.jobs = Gauge(f"{_PREFIX}jobs", "Jobs by phase", ["phase"], registry=registry)
        # Not `namespace`: Prometheus sets that to the operator's own.
        self.failed_jobs = Gauge(
            f"{_PREFIX}failed_jobs",
            "1 for each job in the phase Failed",
            ["job_namespace", "grpojob"],
            registry=registry,
        )
        self.silent_heads = Gauge(
            f"{_PREFIX}silent_heads",
            "1 for each job whose head does not respond; its run is left alone",
            ["job_namespace", "grpojob"],
            registry=registry,
        )
        self.job_ready_seconds = Histogram(
            f"{_PREFIX}job_ready_seconds",
            "Time from a job's first start until its driver runs",
            buckets=_WAITS,
            registry=registry,
        )
        self.retries = Counter(
            f"{_PREFIX}retries", "Attempts that failed", ["reason"], registry=registry
        )
        self.evictions = Counter(
            f"{_PREFIX}evictions",
            "Attempts that were evicted, preempted or drained; no failures",
            ["reason"],
            registry=registry,
        )
        for reason in EVICTIONS:  # their panel shows 0 before the first
            self.evictions.labels(reason)
        self.lost_accelerator_seconds = Counter(
            f"{_PREFIX}lost_accelerator_seconds",
            "Accelerator time since the newest checkpoint of attempts that ended before the run",
            registry=registry,
        )
        self.api_requests = Counter(
            f"{_PREFIX}api_requests",
            "Calls to the API server; code 0 when it did not respond",
            ["verb", "resource", "code"],
            registry=registry,
        )
        self.status_latency_seconds = Histogram(
            f"{_PREFIX}status_latency_seconds",
            "Time from waking for a job to its status being written",
            registry=registry,
        )
        self.foreign_objects = Gauge(
            f"{_PREFIX}foreign_objects",
            "Objects with the job label that belong to no job; they are ignored",
            registry=registry,
        )
        self.invalid_objects = Counter(
            f"{_PREFIX}invalid_objects",
            "Events of watches whose object could not be parsed; they are ignored",
            ["resource"],
            registry=registry,
        )
        self.unserved_namespaces = Gauge(
            f"{_PREFIX}unserved_namespaces",
            "Namespaces to serve that cannot be read: deleted, or without the operator's Role",
            registry=registry,
        )
        self.refused_namespaces = Gauge(
            f"{_PREFIX}refused_namespaces",
            "1 for a namespace whose jobs are ignored, because another release serves it, else 0",
            ["job_namespace"],
            registry=registry,
        )
        self.leader = Gauge(f"{_PREFIX}leader", "1 on the leader", registry=registry)

    def waiting(self) -> AbstractContextManager[object]:
        """Entered while a call to the API server waits for its turn."""
        waiting: AbstractContextManager[object] = self.queue_depth.track_inprogress()
        return waiting

    def called(self, verb: str, resource: str, code: int) -> None:
        """Count a call to the API server."""
        self.api_requests.labels(verb, resource, str(code)).inc()
