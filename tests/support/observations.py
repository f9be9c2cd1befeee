"""Builders of what the operator observes: a healthy job, and its variations."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from grpo_operator.model.decision import Decision
from grpo_operator.model.observed import Cluster, Job, Observed, Pod, RayJob, RayJobState, Role
from grpo_trainer.spec import (
    Condition,
    ConditionStatus,
    ConditionType,
    GRPOJobSpec,
    GRPOJobStatus,
    Phase,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
UID = "0a1b2c3d-1111-2222-3333-444455556666"
STORAGE = {"claimName": "volume"}


def at(seconds: float) -> datetime:
    """A moment relative to NOW."""
    return NOW + timedelta(seconds=seconds)


def spec(**fields: Any) -> GRPOJobSpec:
    """A valid spec, with fields in camel case."""
    return _spec(json.dumps({"storage": STORAGE, **fields}))


@lru_cache
def _spec(fields: str) -> GRPOJobSpec:
    return GRPOJobSpec.model_validate_json(fields)


def condition(kind: str, value: str, since: datetime = NOW, reason: str = "Reason") -> Condition:
    return Condition(
        type=ConditionType(kind),
        status=ConditionStatus(value),
        reason=reason,
        last_transition_time=since,
        observed_generation=1,
    )


def status(phase: Phase, *conditions: Condition, **fields: Any) -> GRPOJobStatus:
    return GRPOJobStatus(phase=phase, conditions=conditions, **fields)


def running(**fields: Any) -> GRPOJobStatus:
    """The status of a job whose driver runs."""
    since = at(-600)
    values: dict[str, Any] = {
        "attempt": 1,
        "start_time": since,
        "head_pod_uid": f"{Role.HEAD}-0-uid",
        **fields,
    }
    return status(
        Phase.RUNNING,
        condition("Accepted", "True"),
        condition("ClusterReady", "True", since),
        condition("Training", "True", since),
        **values,
    )


def job(state: GRPOJobStatus | None = None, faults: str = "", **fields: Any) -> Job:
    return Job(
        namespace="lab",
        name="math",
        uid=UID,
        resource_version="1",
        generation=1,
        created=at(-3600),
        deleting=False,
        spec=None if faults else spec(**fields),
        faults=faults,
        status=state or GRPOJobStatus(),
    )


def cluster(**fields: Any) -> Cluster:
    values: dict[str, Any] = {
        "name": "math-0a1b2c3d",
        "uid": "cluster-uid",
        "deleting": False,
        "suspended": False,
        "producers": 2,
        "service": "math-0a1b2c3d-head-svc",
    }
    return Cluster(**{**values, **fields})


def pod(role: Role, number: int = 0, **fields: Any) -> Pod:
    values: dict[str, Any] = {
        "name": f"{role}-{number}",
        "uid": f"{role}-{number}-uid",
        "role": role,
        "created": at(-1200),
        "ready": True,
        "ready_changed": at(-1100),
        "node": "node-0",
    }
    return Pod(**{**values, **fields})


def pods(**fields: Any) -> tuple[Pod, ...]:
    """Head, one consumer, two producers."""
    return (
        pod(Role.HEAD, **fields),
        pod(Role.CONSUMER, **fields),
        pod(Role.PRODUCER, 0, **fields),
        pod(Role.PRODUCER, 1, **fields),
    )


def ray_job(attempt: int = 1, state: str = "RUNNING", exit_code: int | None = None) -> RayJob:
    return RayJob(attempt, RayJobState(state), exit_code, "")


def observed(subject: Job, **fields: Any) -> Observed:
    """A job with a healthy cluster and a Ray without attempts."""
    values: dict[str, Any] = {"cluster": cluster(), "pods": pods(), "ray_jobs": ()}
    return Observed(subject, **{**values, **fields})


def state_of(decision: Decision, kind: str) -> tuple[str, str]:
    """Status and reason of a condition; empty when it is absent."""
    found: Iterable[Condition] = decision.status.conditions
    return next(((str(c.status), c.reason) for c in found if c.type == kind), ("", ""))


NOTHING: dict[str, Any] = {"cluster": None, "pods": (), "ray_jobs": None}


def retrying(failed: float, restarts: int = 1) -> GRPOJobStatus:
    """The status of a job whose first attempt failed at a moment."""
    return status(
        Phase.RETRYING,
        condition("ClusterReady", "Unknown", at(failed)),
        condition("Training", "False", at(failed)),
        attempt=2,
        restarts=restarts,
        start_time=at(-600),
    )


def starting(since: float = -10) -> GRPOJobStatus:
    """The status of a job whose pods have been awaited since a moment."""
    return status(
        Phase.STARTING,
        condition("ClusterReady", "False", at(since)),
        condition("Training", "False", at(since)),
        attempt=1,
        start_time=at(since),
    )
