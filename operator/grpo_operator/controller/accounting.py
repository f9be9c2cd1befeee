"""Metrics and backoff of jobs, from how their statuses change."""

from dataclasses import dataclass, field
from datetime import datetime

from grpo_trainer.spec import ConditionStatus, ConditionType, GRPOJobStatus, Phase

from ..metrics import Metrics
from ..model.conditions import attempt_started, find_condition
from ..model.observed import Job, Problem
from ..policies.retry import backoff
from ..render import accelerators
from .cache import Key


@dataclass
class Accounting:
    """Counts changes of jobs. A restart loses only counts."""

    metrics: Metrics
    _phases: dict[Key, Phase] = field(default_factory=dict)
    _silent: set[Key] = field(default_factory=set)
    _refusals: dict[Key, int] = field(default_factory=dict)

    def seen(self, job: Job) -> None:
        """Update the number of jobs in each phase."""
        self._set_status((job.namespace, job.name), job.status)

    def forget(self, key: Key) -> None:
        """Drop the records of a job that is gone."""
        self._set_status(key, None)
        self._refusals.pop(key, None)

    def changed(self, job: Job, new: GRPOJobStatus, latency: float) -> None:
        """A status was written; `latency` is in seconds since the event that caused it."""
        self.metrics.status_latency_seconds.observe(latency)
        old = job.status
        self._set_status((job.namespace, job.name), new)
        first = old.progress.step == 0 and old.restarts == 0
        if new.phase is Phase.RUNNING and old.phase is not Phase.RUNNING and first:
            waited = _elapsed(new.start_time, _training_since(new))
            self.metrics.job_ready_seconds.observe(waited)
        failed = find_condition(new, ConditionType.TRAINING)
        gave_up = new.phase is Phase.FAILED and old.phase is not Phase.FAILED
        evicted = new.evictions > old.evictions
        if failed is not None and (evicted or gave_up or new.restarts > old.restarts):
            counter = self.metrics.evictions if evicted else self.metrics.retries
            counter.labels(failed.reason).inc()
            self.metrics.lost_accelerator_seconds.inc(_lost(job, failed.last_transition_time))

    def refused(self, problem: Problem) -> None:
        """An action was refused."""
        self.metrics.reconcile_errors.labels(problem.reason).inc()

    def accepted(self, job: Job) -> None:
        """Actions succeeded: the next refusal is the first again."""
        self._refusals.pop((job.namespace, job.name), None)

    def backoff(self, job: Job) -> float:
        """Seconds until a refused action is retried."""
        key = (job.namespace, job.name)
        self._refusals[key] = self._refusals.get(key, 0) + 1
        return backoff(job.uid, self._refusals[key])

    def _set_status(self, key: Key, status: GRPOJobStatus | None) -> None:
        training = find_condition(status, ConditionType.TRAINING) if status is not None else None
        if training is not None and training.status is ConditionStatus.UNKNOWN:
            self._silent.add(key)
            self.metrics.silent_heads.labels(*key).set(1)
        elif key in self._silent:
            self._silent.remove(key)
            self.metrics.silent_heads.remove(*key)
        self._set_phase(key, status.phase if status is not None else None)

    def _set_phase(self, key: Key, phase: Phase | None) -> None:
        old = self._phases.pop(key, None)
        if old is not None:
            self.metrics.jobs.labels(old).dec()
        if phase is not None:
            self._phases[key] = phase
            self.metrics.jobs.labels(phase).inc()
        if phase is Phase.FAILED:
            self.metrics.failed_jobs.labels(*key).set(1)
        elif old is Phase.FAILED:
            self.metrics.failed_jobs.remove(*key)


def _training_since(status: GRPOJobStatus) -> datetime | None:
    training = find_condition(status, ConditionType.TRAINING)
    return training.last_transition_time if training and attempt_started(status) else None


def _elapsed(start: datetime | None, end: datetime | None) -> float:
    return max(0.0, (end - start).total_seconds()) if start and end else 0.0


def _lost(job: Job, failed: datetime | None) -> float:
    """Accelerator seconds from the newest checkpoint, or the attempt's start, to its failure."""
    began = _training_since(job.status)
    if job.spec is None or began is None:
        return 0.0
    checkpoint = job.status.checkpoint
    kept = max(began, checkpoint.time) if checkpoint is not None else began
    producers, consumers = job.spec.producers, job.spec.consumers
    held = producers.replicas * accelerators(producers)
    held += consumers.replicas * accelerators(consumers)
    return held * _elapsed(kept, failed)
