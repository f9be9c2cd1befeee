"""Jobs as rows of a table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from grpo_operator.model.observed import Job

from . import text


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the tables of `list` and `top`."""

    title: str
    cell: Callable[[Job, datetime], str]


def _steps(job: Job, _: datetime) -> str:
    progress = job.status.progress
    return f"{progress.step}/{progress.total_steps or '?'}"


def _left(job: Job, _: datetime) -> str:
    seconds = job.status.progress.eta_seconds
    return text.ABSENT if seconds is None else text.age(seconds)


def _buffer(job: Job, _: datetime) -> str:
    metrics = job.status.metrics
    return f"{metrics.buffer_depth}/{metrics.buffer_capacity}" if metrics.buffer_capacity else "-"


def _idle(job: Job, _: datetime) -> str:
    ratio = job.status.metrics.consumer_idle_ratio
    return text.ABSENT if ratio is None else f"{100 * ratio:.0f}%"


def _producers(job: Job, _: datetime) -> str:
    workers = job.status.workers
    return f"{workers.producers_ready}/{workers.producers_desired}"


def _consumers(job: Job, _: datetime) -> str:
    workers = job.status.workers
    return f"{workers.consumers_ready}/{workers.consumers_desired}"


def _checkpoint(job: Job, _: datetime) -> str:
    checkpoint = job.status.checkpoint
    return text.ABSENT if checkpoint is None else str(checkpoint.step)


_NAMESPACE = Column("NAMESPACE", lambda job, _: job.namespace)
_NAME = Column("NAME", lambda job, _: job.name)
_PHASE = Column("PHASE", lambda job, _: str(job.status.phase))
_STEP = Column("STEP", _steps)
_REWARD = Column("REWARD", lambda job, _: text.number(job.status.metrics.reward))
_ACCURACY = Column("ACCURACY", lambda job, _: text.number(job.status.metrics.accuracy))
_SAMPLES = Column("SAMPLES/S", lambda job, _: text.number(job.status.metrics.samples_per_second))
_LEFT = Column("LEFT", _left)
_ATTEMPT = Column("ATTEMPT", lambda job, _: str(job.status.attempt))
_AGE = Column("AGE", lambda job, now: text.age((now - job.created).total_seconds()))
_STALENESS = Column("STALENESS", lambda job, _: text.number(job.status.metrics.staleness))
_TOKENS = Column("TOKENS/S", lambda job, _: text.number(job.status.metrics.tokens_per_second))
_CLUSTER = Column("CLUSTER", lambda job, _: job.status.ray_cluster_name or text.ABSENT)
_LOAD = (
    Column("BUFFER", _buffer),
    _STALENESS,
    Column("IDLE", _idle),
    Column("PRODUCERS", _producers),
    Column("CONSUMERS", _consumers),
    Column("CHECKPOINT", _checkpoint),
)

NARROW = (_NAME, _PHASE, _STEP, _REWARD, _ACCURACY, _SAMPLES, _LEFT, _ATTEMPT, _AGE)
WIDE = (*NARROW[:-1], *_LOAD, _CLUSTER, _AGE)
LIVE = (_NAME, _PHASE, _STEP, _LEFT, _REWARD, _ACCURACY, _SAMPLES, _TOKENS, *_LOAD)


def render(
    jobs: Sequence[Job], columns: Sequence[Column], now: datetime, *, namespaces: bool
) -> list[str]:
    """The table, by namespace and name."""
    shown = (_NAMESPACE, *columns) if namespaces else tuple(columns)
    ordered = sorted(jobs, key=lambda job: (job.namespace, job.name))
    rows = [[column.cell(job, now) for column in shown] for job in ordered]
    return text.table([column.title for column in shown], rows)
