"""The view of all jobs and of the operator: what a platform engineer looks at."""

from panels import (
    Color,
    Column,
    Graph,
    Levels,
    Query,
    Row,
    Stat,
    Table,
    Unit,
    WeightRegistry,
    low_is_good,
)

_OPERATOR = "grpo_operator_"
_HOURS = "1h"
"""Starts and failures are rare: they are counted over an hour."""


def _rate(metric: str, by: str = "") -> str:
    return f"sum{f' by ({by}) ' if by else ''}(rate({_OPERATOR}{metric}[$window]))"


def _occurrences(metric: str, by: str) -> str:
    """Events of the last hour.

    A labelled counter appears with its first event, which `increase` does not see: a series that
    was not there an hour ago counts in full.
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
    """A gauge of every job."""
    return f"max by (namespace, grpojob) ({metric})"


_JOBS = Row(
    "Jobs",
    (
        Stat(
            "Jobs by phase",
            "All GRPOJobs that the acting operator knows. Failed ones count until they are "
            "deleted or their time to live is over.",
            (Query(f"sum by (phase) ({_OPERATOR}jobs)", "{{phase}}"),),
            width=24,
            height=4,
            nothing="no jobs",
        ),
        Table(
            "Running jobs",
            "What each driver tells; the name leads to the view of the job.",
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
            "Good: Starting and Retrying pass by. Bad: many Queued (no quota), Starting for long "
            "(images, quota, no accelerators) or Retrying.",
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
            "From a job's first start until its driver runs, over the last hour; empty when none "
            "started. Good: a minute or two, once images are on the nodes.",
            _quantiles("job_ready_seconds", _HOURS),
            Unit.SECONDS,
            low_is_good(300, 1200),
        ),
        Graph(
            "Failed attempts by reason",
            "Within the last hour. HeadLost, ClusterLost: nodes. Stalled: runs without steps. "
            "DriverFailed: read the driver's log.",
            (Query(_occurrences("retries_total", "reason"), "{{reason}}"),),
            stacked=True,
        ),
        Graph(
            "Accelerator time lost",
            "Accelerator seconds within the last hour whose work was lost: from the newest "
            "checkpoint to the failure, times the accelerators held. Much: lower "
            "checkpoint.interval, or find out why jobs fail.",
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
            "1 on the replica that acts. Good: exactly one at any time. Frequent changes: replicas "
            "that are restarted, or an API server that answers slowly.",
            (Query(f"max by (pod) ({_OPERATOR}leader)", "{{pod}}"),),
            maximum=1,
            decimals=0,
        ),
        Graph(
            "Calls that wait for their turn",
            "Calls to the API server beyond GRPO_CONCURRENCY at once. Good: 0 or nearly so. "
            "Growing: the API server answers slowly, or there are too many jobs for that number.",
            (Query(f"sum({_OPERATOR}queue_depth)", "queue"),),
            levels=low_is_good(50, 200),
        ),
        Graph(
            "Looks per second",
            "Each active job is looked at on every event, a running one also every 5 s. Bad: 0 "
            "while jobs run.",
            (Query(_rate("reconcile_seconds_count"), "looks"),),
            Unit.PER_SECOND,
        ),
        Graph(
            "Time of one look",
            "Reads, decision, actions and the write of the status. Good: below 1 s. A head that "
            "does not answer costs 2 s.",
            _quantiles("reconcile_seconds"),
            Unit.SECONDS,
            low_is_good(1, 5),
        ),
        Graph(
            "From an event to the status",
            "Time from waking for a job to its status being written: what a user waits for.",
            _quantiles("status_latency_seconds"),
            Unit.SECONDS,
            low_is_good(2, 10),
        ),
        Graph(
            "Errors by reason",
            "Looks that failed and actions that were refused, within the last hour. Each is tried "
            "again. Forbidden: rights or quota; others: the operator's log.",
            (Query(_occurrences("reconcile_errors_total", "reason"), "{{reason}}"),),
            stacked=True,
        ),
    ),
)

_API = Row(
    "API server",
    (
        Graph(
            "Calls",
            "The operator's calls by verb and resource, but for watches. A job at rest costs "
            "none; the Lease costs one a second, by each replica.",
            (Query(_rate("api_requests_total", "verb, resource"), "{{verb}} {{resource}}"),),
            Unit.PER_SECOND,
            stacked=True,
        ),
        Graph(
            "Calls by code",
            "Good: 200 and 201; a few 404 and 409 are normal. 403: a right is missing or a quota "
            "is used up. 429: the API server defends itself. 0: it did not answer.",
            (Query(_rate("api_requests_total", "code"), "{{code}}"),),
            Unit.PER_SECOND,
            stacked=True,
        ),
        Graph(
            "Calls that failed",
            "Share of calls that were not answered, or with 429 or 5xx. Good: 0.",
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

FLEET = WeightRegistry(
    uid="grpo-fleet",
    title="GRPO fleet",
    description="All training jobs, and the operator that runs them.",
    rows=(_JOBS, _FAILURES, _RECONCILING, _API),
)
