"""A cluster small enough to simulate: API server, KubeRay, Ray and a driver, without time passing
by itself. It refuses, by assertion, whatever the operator must never do."""

import copy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from grpo_operator.controller.decide import decide
from grpo_operator.model.decision import (
    TERMINAL,
    Action,
    CreateCluster,
    Decision,
    DeleteCluster,
    DeleteJob,
    Drain,
    DumpStacks,
    ScaleProducers,
    StopDriver,
    Submit,
)
from grpo_operator.model.observed import Cluster, Observed, Pod, RayJob, RayJobState, Role
from grpo_trainer.spec import GRPOJobStatus, Progress, RunState

from .observations import NOW, cluster, job, pod

GRACE = timedelta(seconds=30)


_ACKNOWLEDGING = frozenset({"Accepted", "Ready", "Reconciling", "Stalled"})


def outcome(status: GRPOJobStatus) -> GRPOJobStatus:
    """What may not change once a job has ended: all but what acknowledges its spec."""
    kept = tuple(c for c in status.conditions if c.type not in _ACKNOWLEDGING)
    return status.model_copy(update={"conditions": kept, "observed_generation": 0})


@dataclass
class SimulatedCluster:
    """One job and all that belongs to it."""

    fields: dict[str, Any]
    """Of the job's spec."""
    now: datetime = NOW
    status: GRPOJobStatus = field(default_factory=GRPOJobStatus)
    cluster: Cluster | None = None
    pods: tuple[Pod, ...] = ()
    drivers: dict[int, RayJob] = field(default_factory=dict)
    """The attempts that Ray on the present head lists."""
    draining: bool = False
    answers: bool = True
    """Whether the head can be reached."""
    step_since: datetime = NOW
    deleted: bool = False
    serial: int = 0
    started: set[int] = field(default_factory=set)
    """Attempts that the status has recorded as started."""

    def observe(self) -> Observed:
        heads = [p for p in self.pods if p.role is Role.HEAD and p.ready and not p.deleting]
        reached = bool(heads) and self.answers
        state = RunState.DRAINING if self.draining else RunState.RUNNING
        return Observed(
            job(self.status, **self.fields),
            cluster=self.cluster,
            pods=self.pods,
            ray_jobs=tuple(self.drivers.values()) if reached else None,
            progress=Progress(state=state, attempt=self.status.attempt) if reached else None,
            step_since=self.step_since,
        )

    # What the operator does

    def reconcile(self, actions: int | None = None) -> Decision:
        """Reconcile; `actions` ends the operator after so many, before it writes the status."""
        decision = decide(self.observe(), self.now)
        for action in decision.actions[:actions]:
            self.perform(action)
        if actions is None:
            self.write(decision.status)
        return decision

    def write(self, new: GRPOJobStatus) -> None:
        old = self.status
        assert old.phase not in TERMINAL or outcome(new) == outcome(old), "an end was changed"
        assert new.attempt >= old.attempt
        assert new.attempt - old.attempt <= 1
        assert old.restarts <= new.restarts <= self.fields["backoffLimit"]
        self.status = new
        if any(c.type == "Training" and c.status == "True" for c in new.conditions):
            self.started.add(new.attempt)

    def perform(self, action: Action) -> None:
        match action:
            case CreateCluster():
                assert self.cluster is None, "a second cluster"
                assert not self.pods, "a cluster beside the pods of another"
                assert self.status.phase not in TERMINAL
                self.serial += 1
                queued = "queueName" in self.fields
                self.cluster = cluster(
                    uid=f"cluster-{self.serial}", suspended=queued, queued=queued
                )
            case DeleteCluster(uid):
                assert self.cluster is not None
                assert uid == self.cluster.uid
                self.lose_cluster()
            case ScaleProducers(replicas):
                assert self.cluster is not None
                self.cluster = replace(self.cluster, producers=replicas)
            case Submit(attempt):
                assert not any(d.active for d in self.drivers.values()), "two drivers at once"
                assert attempt not in {*self.drivers, *self.started}, "an attempt was started twice"
                assert self.status.phase not in TERMINAL
                self.drivers[attempt] = RayJob(attempt, RayJobState.PENDING)
                self.draining = False
            case StopDriver(attempt):
                if attempt in self.drivers:
                    self.drivers[attempt] = RayJob(attempt, RayJobState.STOPPED)
            case Drain():
                self.draining = True
            case DeleteJob():
                assert self.status.phase in TERMINAL
                self.deleted = True
            case DumpStacks():
                pass

    def settles(self, seconds: float) -> bool:
        """Whether repeated decisions after a while, without events, converge."""
        twin = copy.copy(self)
        twin.drivers, twin.started = dict(self.drivers), set(self.started)
        twin.now += timedelta(seconds=seconds)
        for _ in range(12):
            before = twin.status
            decision = twin.reconcile()
            if twin.deleted or (not decision.actions and twin.status == before):
                return True
        return False

    # What happens to it

    def create_pods(self) -> None:
        """KubeRay creates missing pods."""
        if self.cluster is None or self.cluster.suspended:
            return
        required = [(Role.HEAD, 1), (Role.CONSUMER, 1), (Role.PRODUCER, self.cluster.producers)]
        for role, count in required:
            have = sum(p.role is role for p in self.pods)
            for _ in range(count - have):
                self.serial += 1
                new = {"created": self.now, "ready": False, "ready_changed": self.now}
                self.pods += (pod(role, self.serial, **new),)

    def make_ready(self, ready: bool) -> None:
        changed = {"ready": ready, "ready_changed": self.now}
        self.pods = tuple(p if p.ready is ready else replace(p, **changed) for p in self.pods)

    def lose_cluster(self) -> None:
        self.cluster = None
        self.drivers = {}
        self.pods = tuple(replace(p, deletion_deadline=self.now + GRACE) for p in self.pods)

    def lose_head(self) -> None:
        self.drivers = {}
        self.pods = tuple(
            replace(p, deletion_deadline=self.now + GRACE) if p.role is Role.HEAD else p
            for p in self.pods
        )

    def restart_head(self) -> None:
        """The container restarts in the same pod."""
        self.drivers = {}

    def remove_leaving_pods(self) -> None:
        self.pods = tuple(p for p in self.pods if not p.deleting)

    def preempt(self) -> None:
        if self.cluster is not None:
            self.cluster = replace(self.cluster, suspended=True)
            self.drivers = {}
            self.pods = ()

    def admit(self) -> None:
        if self.cluster is not None:
            self.cluster = replace(self.cluster, suspended=False)

    def end_driver(self, state: RayJobState, code: int | None) -> None:
        self.drivers = {
            n: replace(d, state=state, exit_code=code) if d.active else d
            for n, d in self.drivers.items()
        }

    def start_driver(self) -> None:
        self.drivers = {
            n: replace(d, state=RayJobState.RUNNING) if d.active else d
            for n, d in self.drivers.items()
        }

    def step(self) -> None:
        self.step_since = self.now
