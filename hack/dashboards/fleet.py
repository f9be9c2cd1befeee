"""The dashboard of all jobs and of the operator."""

from panels import (
    Color,
    Column,
    Dashboard,
    Graph,
    Levels,
    Query,
    Row,
    Stat,
    Table,
    Unit,
    low_is_good,
)

_OPERATOR = "grpo_operator_"
_HOURS = "1h"
"""Window of starts and failures, which are rare."""


def _rate(metric: str, by: str = "") -> str:
    return f"sum{f' by ({by}) ' if by else ''}(rate({_OPERATOR}{metric}[$window]))"


def _occurrences(metric: str, by: str) -> str:
    """Events of the last hour.

    A labelled counter appears with its first event, which `increase` does not count: a series
    that did not exist an hour ago counts in full.
    """
    series = f"{_OPERATOR}{metric}"
    return (
        f"sum by ({by}) (({series} unless {series} offset {_HOURS})"
        f" or increase({series}[{_HOURS}]))"
    )


def _quantiles(metric: str, window: str = "$window") -> tuple[Query, ...]:
    rate = f"sum by (le) (rate({_OPERATOR}{metric}_bucket[{window}]))"
    return tuple(
        Query(f"histogram_quantile({quantile}, {rate})", legend)
        for quantile, legend in ((0.5, "median"), (0.95, "95 %"), (0.99, "99 %"))
    )


def _each(metric: str) -> str:
    """A gauge, one series per job."""
    return f"max by (namespace, grpojob) ({metric})"


_JOBS = Row(
    "Jobs",
    (
        Stat(
            "Jobs by phase",
            "All GRPOJobs in the leader's cache. Terminal jobs count until they are deleted, by "
            "hand or by ttlSecondsAfterFinished.",
            (Query(f"sum by (phase) ({_OPERATOR}jobs)", "{{phase}}"),),
            width=24,
            height=4,
            nothing="no jobs",
        ),
        Table(
            "Running jobs",
            "Values of each driver. The name links to the dashboard of the job.",
            (
                Column("Step", _each("grpo_step"), decimals=0),
                Column(
                    "Progress",
                    f"{_each('grpo_step')} / {_each('grpo_total_steps')}",
                    Unit.SHARE,
                ),
                Column("Reward", _each("grpo_reward_mean"), decimals=2),
                Column("Accuracy", _each("grpo_accuracy_mean"), Unit.SHARE),
                Column(
                    "Samples/s",
                    "sum by (namespace, grpojob) (rate(grpo_samples_total[$window]))",
                ),
                Column(
                    "Consumers idle",
                    _each("grpo_consumer_idle_ratio"),
                    Unit.SHARE,
                    low_is_good(0.1, 0.3),
                ),
                Column("Producers idle", _each("grpo_producer_idle_ratio"), Unit.SHARE),
                Column(
                    "Buffer",
                    f"{_each('grpo_buffer_depth')} / {_each('grpo_buffer_capacity')}",
                    Unit.SHARE,
                ),
                Column("Steps at risk", f"{_each('grpo_step')} - {_each('grpo_checkpoint_step')}"),
            ),
        ),
        Graph(
            "Jobs by phase",
            "Good: Starting and Retrying are short. Bad: many jobs Queued (no quota), Starting for "
            "long (images, quota, no free accelerators) or Retrying.",
            (Query(f"sum by (phase) ({_OPERATOR}jobs)", "{{phase}}"),),
            width=24,
            stacked=True,
        ),
    ),
)

_FAILURES = Row(
    "Starts and failures",
    (
        Graph(
            "Time to ready",
            "From the start of a job until its driver runs, over the last hour; empty when no job "
            "started. Good: one or two minutes, once the images are on the nodes.",
            _quantiles("job_ready_seconds", _HOURS),
            Unit.SECONDS,
            low_is_good(300, 1200),
        ),
        Graph(
            "Attempts that ended early, by reason",
            "In the last hour. HeadLost, ClusterLost: node failures. Stalled: no step completed in "
            "time. DriverFailed: see the log of the driver. Evicted, Preempted, Drained are no "
            "failures: nodes or quota were needed for others.",
            (
                Query(_occurrences("retries_total", "reason"), "{{reason}}"),
                Query(_occurrences("evictions_total", "reason"), "{{reason}}"),
            ),
            stacked=True,
        ),
        Graph(
            "Heads that do not respond",
            "Jobs whose end and failures cannot be observed now; the runs continue. Good: 0. "
            "Otherwise see the NetworkPolicy and the log of the head.",
            (Query(f"sum({_OPERATOR}silent_heads) or vector(0)", "heads"),),
            levels=low_is_good(1, 1),
        ),
        Graph(
            "Accelerator time lost",
            "Accelerator seconds of the last hour whose work was lost: from the newest checkpoint "
            "to the failure, times the accelerators of the job. High: lower checkpoint.interval, "
            "or find out why jobs fail.",
            (Query(f"sum(increase({_OPERATOR}lost_accelerator_seconds_total[1h]))", "lost"),),
            Unit.SECONDS,
        ),
    ),
)

_RECONCILING = Row(
    "Operator",
    (
        Graph(
            "Leader",
            "1 on the replica that holds the Lease. Good: exactly one at any time. Frequent "
            "changes: replicas restart, or the API server responds slowly.",
            (Query(f"max by (pod) ({_OPERATOR}leader)", "{{pod}}"),),
            maximum=1,
            decimals=0,
        ),
        Graph(
            "Queued API calls",
            "Calls to the API server above the limit GRPO_CONCURRENCY. Good: near 0. Growing: the "
            "API server responds slowly, or the limit is too low for the number of jobs.",
            (Query(f"sum({_OPERATOR}queue_depth)", "calls"),),
            levels=low_is_good(50, 200),
        ),
        Graph(
            "Reconciles per second",
            "An active job is reconciled on every event, a running job also every 5 s. Bad: 0 "
            "while jobs run.",
            (Query(_rate("reconcile_seconds_count"), "reconciles"),),
            Unit.PER_SECOND,
        ),
        Graph(
            "Reconcile duration",
            "Observation, decision, actions and the write of the status. Good: below 1 s. A head "
            "that does not respond adds 2 s.",
            _quantiles("reconcile_seconds"),
            Unit.SECONDS,
            low_is_good(1, 5),
        ),
        Graph(
            "Status latency",
            "Time from an event to the write of the status: the delay that a user sees.",
            _quantiles("status_latency_seconds"),
            Unit.SECONDS,
            low_is_good(2, 10),
        ),
        Graph(
            "Errors by reason",
            "Reconciles that failed and actions that were rejected, in the last hour. Each is "
            "repeated. Forbidden: RBAC or quota; other reasons: the log of the operator.",
            (Query(_occurrences("reconcile_errors_total", "reason"), "{{reason}}"),),
            stacked=True,
        ),
        Graph(
            "Objects and namespaces left out",
            "Namespaces that cannot be read or that another release serves, objects with the job "
            "label that belong to no job, and events whose object is invalid, in the last hour. "
            "Good: 0.",
            (
                Query(f"max({_OPERATOR}unserved_namespaces)", "namespaces"),
                Query(f"sum({_OPERATOR}refused_namespaces)", "namespaces of another release"),
                Query(f"max({_OPERATOR}foreign_objects)", "foreign objects"),
                Query(f"sum({_occurrences('invalid_objects_total', 'resource')})", "invalid"),
            ),
        ),
        Graph(
            "Failed jobs",
            "1 for each job in the phase Failed, until it is deleted.",
            (
                Query(
                    f"max by (job_namespace, grpojob) ({_OPERATOR}failed_jobs)",
                    "{{job_namespace}}/{{grpojob}}",
                ),
            ),
            stacked=True,
        ),
    ),
)

_API = Row(
    "API server",
    (
        Graph(
            "API calls",
            "API calls of the operator by verb and resource, without watches. A job without events "
            "causes none; the Lease causes one per second and replica.",
            (Query(_rate("api_requests_total", "verb, resource"), "{{verb}} {{resource}}"),),
            Unit.PER_SECOND,
            stacked=True,
        ),
        Graph(
            "API calls by code",
            "Good: 200 and 201; a few 404 and 409 are normal. 403: missing RBAC rule or exhausted "
            "quota. 429: the API server throttles. 0: no response.",
            (Query(_rate("api_requests_total", "code"), "{{code}}"),),
            Unit.PER_SECOND,
            stacked=True,
        ),
        Graph(
            "Failed API calls",
            "Share of calls without a response, or with 429 or 5xx. Good: 0.",
            (
                Query(
                    f'1 - sum(rate({_OPERATOR}api_requests_total{{code!~"0|429|5.."}}[$window]))'
                    f" / {_rate('api_requests_total')}",
                    "failed",
                ),
            ),
            Unit.SHARE,
            Levels(Color.GREEN, ((0.01, Color.YELLOW), (0.05, Color.RED))),
            maximum=1,
        ),
    ),
)

FLEET = Dashboard(
    uid="grpo-fleet",
    title="GRPO fleet",
    description="All training jobs and the operator.",
    rows=(_JOBS, _FAILURES, _RECONCILING, _API),
)
