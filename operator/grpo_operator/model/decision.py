"""Decisions: actions to perform, and the status that records them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from grpo_trainer.spec import (
    Condition,
    ConditionStatus,
    ConditionType,
    GRPOJobStatus,
    Phase,
    WorkersStatus,
)

from .conditions import Reason, find_condition, set_condition
from .images import recorded_images
from .naming import child_name, producer_selector
from .observed import Observed, Role

TERMINAL = frozenset({Phase.SUCCEEDED, Phase.FAILED})
_SETTLED = frozenset({Phase.RUNNING, Phase.SUSPENDED, Phase.SUCCEEDED})
_RECONCILING = frozenset(Phase) - _SETTLED - TERMINAL
MAX_MESSAGE = 2000


@dataclass(frozen=True, slots=True)
class CreateCluster:
    """Create the claim, ConfigMap, Secret and RayCluster, each unless it exists."""


@dataclass(frozen=True, slots=True)
class DeleteCluster:
    """Delete the RayCluster with this UID; its pods follow."""

    uid: str


@dataclass(frozen=True, slots=True)
class ScaleProducers:
    """Request another number of producers."""

    replicas: int


@dataclass(frozen=True, slots=True)
class Submit:
    """Start the driver of an attempt."""

    attempt: int


@dataclass(frozen=True, slots=True)
class StopDriver:
    """Stop the driver of an attempt without a checkpoint. Best effort."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Ask the driver to write a checkpoint and exit. Best effort."""


@dataclass(frozen=True, slots=True)
class DumpStacks:
    """Ask the driver to write the stacks of all its processes to the volume. Best effort."""


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the GRPOJob; everything it owns follows."""


Action = (
    CreateCluster
    | DeleteCluster
    | ScaleProducers
    | Submit
    | StopDriver
    | Drain
    | DumpStacks
    | DeleteJob
)


@dataclass(frozen=True, slots=True)
class Decision:
    """Perform the actions in order, then write the status, then reconcile again after a delay."""

    status: GRPOJobStatus
    actions: tuple[Action, ...] = ()
    requeue_after: float | None = None
    """Seconds; None waits for an event."""
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """Value, reason and message of a condition."""

    value: ConditionStatus
    reason: str
    message: str = ""


def true(reason: str, message: str = "") -> State:
    return State(ConditionStatus.TRUE, reason, message)


def false(reason: str, message: str = "") -> State:
    return State(ConditionStatus.FALSE, reason, message)


def unknown(reason: str, message: str = "") -> State:
    return State(ConditionStatus.UNKNOWN, reason, message)


def _either(holds: bool) -> Callable[[str, str], State]:
    return true if holds else false


@dataclass(frozen=True, slots=True)
class Transition:
    """The next phase of a job, with its reason and conditions."""

    observed: Observed
    now: datetime
    phase: Phase
    reason: str
    message: str = ""
    cluster_ready: State | None = None
    """None leaves the condition unchanged; likewise below."""
    training: State | None = None
    code_confined: State | None = None
    changes: dict[str, object] = field(default_factory=dict)

    def decision(self, *actions: Action, requeue_after: float | None = None) -> Decision:
        """The decision for this transition."""
        message = self.message[:MAX_MESSAGE]
        status = self._status(creating=CreateCluster() in actions)
        return Decision(status, actions, requeue_after, self.reason, message)

    def acknowledgement(self) -> Decision:
        """The decision that only records that the spec was read, or cannot be: nothing of a job
        that has ended, or whose spec is unreadable, changes otherwise."""
        job = self.observed.job
        found = {**self._health(), ConditionType.ACCEPTED: self._accepted()}
        status = self._with_conditions(job.status, found)
        status = status.model_copy(update={"observed_generation": job.generation})
        return Decision(status, reason=self.reason, message=self.message[:MAX_MESSAGE])

    def _status(self, *, creating: bool) -> GRPOJobStatus:
        job = self.observed.job
        created = creating and self.observed.problem is None
        exists = self.observed.cluster is not None or created
        name = child_name(job.name, job.uid) if exists else None
        update: dict[str, object] = {
            "phase": self.phase,
            "observed_generation": job.generation,
            "ray_cluster_name": name,
            "selector": producer_selector(name) if name is not None else None,
            "workers": self._workers(),
            "images": recorded_images(self.observed),
            "attempt": job.status.attempt,
        }
        if self.phase in (Phase.STARTING, Phase.RUNNING):
            update["start_time"] = job.status.start_time or self.now
            update["attempt"] = self.observed.attempt
        if self.phase in (Phase.QUEUED, Phase.SUSPENDED):
            # As in batch Job: the active deadline does not run, and starts again.
            update["start_time"] = None
        if self.phase in TERMINAL:
            update["completion_time"] = self.now
        status = job.status.model_copy(update=update | self.changes)
        return self._with_conditions(status, self._conditions())

    def _with_conditions(
        self, status: GRPOJobStatus, states: Mapping[ConditionType, State]
    ) -> GRPOJobStatus:
        for kind, state in states.items():
            condition = Condition(
                type=kind,
                status=state.value,
                # A kubelet or a controller of others may give none.
                reason=str(state.reason) or Reason.UNKNOWN,
                message=state.message[:MAX_MESSAGE],
                observed_generation=self.observed.job.generation,
            )
            status = set_condition(status, condition, self.now)
        return status

    def _workers(self) -> WorkersStatus:
        spec = self.observed.job.spec
        if spec is None or self.phase in TERMINAL:
            return WorkersStatus()
        return WorkersStatus(
            producers_ready=self.observed.ready(Role.PRODUCER),
            producers_desired=self.observed.producers,
            consumers_ready=self.observed.ready(Role.CONSUMER),
            consumers_desired=spec.consumers.replicas,
        )

    def _conditions(self) -> dict[ConditionType, State]:
        """Those that change; Suspended, Complete and Failed appear when they first apply."""
        here = (self.reason, self.message)
        found = {
            **self._health(),
            ConditionType.ACCEPTED: self._accepted(),
            ConditionType.CLUSTER_READY: self.cluster_ready,
            ConditionType.TRAINING: self.training,
            ConditionType.CODE_CONFINED: self.code_confined,
            ConditionType.SUSPENDED: self._suspended(),
            ConditionType.COMPLETE: true(*here) if self.phase is Phase.SUCCEEDED else None,
            ConditionType.FAILED: true(*here) if self.phase is Phase.FAILED else None,
        }
        return {kind: state for kind, state in found.items() if state is not None}

    def _health(self) -> dict[ConditionType, State]:
        """Ready, Reconciling and Stalled, by the rules of kstatus.

        Stalled: without a change of the spec no progress will be made. Ready: the job is as its
        spec asks, which includes suspended and succeeded.
        """
        faulty = self.observed.job.spec is None
        blind = self.phase is Phase.RUNNING and self._training_unknown()
        settled = self.phase in _SETTLED and not faulty
        found = {
            ConditionType.READY: unknown if blind and settled else _either(settled),
            ConditionType.RECONCILING: _either(self.phase in _RECONCILING and not faulty),
            ConditionType.STALLED: _either(self.phase is Phase.FAILED or faulty),
        }
        return {kind: state(*self._cause()) for kind, state in found.items()}

    def _cause(self) -> tuple[str, str]:
        """Reason and message of Ready: while the job waits for its pods, those of ClusterReady."""
        ready = self.cluster_ready
        waiting = self.phase in (Phase.QUEUED, Phase.STARTING)
        if ready is None or not waiting or ready.value is ConditionStatus.TRUE:
            return self.reason, self.message
        return ready.reason, ready.message

    def _training_unknown(self) -> bool:
        old = find_condition(self.observed.job.status, ConditionType.TRAINING)
        value = self.training.value if self.training is not None else old and old.status
        return value is ConditionStatus.UNKNOWN

    def _accepted(self) -> State:
        job = self.observed.job
        return (
            true(Reason.VALID) if job.spec is not None else false(Reason.INVALID_SPEC, job.faults)
        )

    def _suspended(self) -> State | None:
        if self.phase is Phase.SUSPENDED:
            return true(self.reason, self.message)
        if self.phase is Phase.SUSPENDING:
            return unknown(Reason.DRAINING)
        earlier = find_condition(self.observed.job.status, ConditionType.SUSPENDED)
        return false(Reason.RESUMED) if earlier is not None else None
