"""A healthy run is never stopped by what the operator cannot observe.

Aspects: silence, readiness, clocks, specs and statuses of other versions; and, as an invariant over
every order of such observations, that nothing is deleted, stopped or ended.
"""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from grpo_operator.controller.decide import decide
from grpo_operator.model.decision import TERMINAL, DeleteCluster, StopDriver
from grpo_operator.model.observed import Observed, Problem, RayJob, RayJobState, Role
from grpo_trainer.spec import GRPOJobStatus, Phase, Progress, ProgressStatus, RunState
from support.observations import (
    NOTHING,
    NOW,
    at,
    cluster,
    job,
    observed,
    pod,
    pods,
    ray_job,
    running,
    state_of,
)


def test_an_unreadable_spec_of_a_started_job_changes_only_conditions_of_the_spec():
    subject = replace(job(running(), faults="spec.seed: Invalid value: -1"), generation=2)
    decision = decide(observed(subject, ray_jobs=(ray_job(),)), NOW)
    assert decision.actions == ()
    assert state_of(decision, "Accepted") == ("False", "InvalidSpec")
    changed = {"Accepted", "Ready", "Reconciling", "Stalled"}
    others = [c for c in decision.status.conditions if c.type not in changed]
    assert others == [c for c in subject.status.conditions if c.type not in changed]
    unchanged = {
        "conditions": subject.status.conditions,
        "observed_generation": subject.status.observed_generation,
    }
    assert decision.status.model_copy(update=unchanged) == subject.status
    readable = decide(observed(job(decision.status), ray_jobs=(ray_job(),)), NOW)
    assert state_of(readable, "Accepted") == ("True", "Valid")


def test_an_unreadable_job_whose_cluster_was_not_recorded_is_not_failed():
    decision = decide(observed(job(faults="spec.seed: Invalid value: -1")), NOW)
    assert (decision.actions, decision.status.phase) == ((), Phase.PENDING)


def test_a_head_is_compared_by_uid_and_not_by_clocks():
    skewed = (pod(Role.HEAD, created=at(-25)), *pods()[1:])
    decision = decide(observed(job(running()), pods=skewed, ray_jobs=(ray_job(),)), NOW)
    assert (decision.actions, decision.status.phase) == ((), Phase.RUNNING)


def test_a_job_of_an_older_version_records_its_head():
    state = running(head_pod_uid=None)
    decision = decide(observed(job(state), ray_jobs=(ray_job(),)), NOW)
    assert decision.status.head_pod_uid == pods()[0].uid
    assert decision.status.phase is Phase.RUNNING


def test_a_silent_head_is_reported_and_left_alone_however_long():
    subject = job(running(), stallTimeoutSeconds=60)
    early = observed(subject, ray_jobs=None, silent_since=at(-59))
    assert state_of(decide(early, NOW), "Training")[0] == "True"
    decision = decide(observed(subject, ray_jobs=None, silent_since=at(-99999)), NOW)
    assert (decision.actions, decision.status.phase) == ((), Phase.RUNNING)
    assert state_of(decision, "Training") == ("Unknown", "HeadNotAnswering")
    back = decide(observed(job(decision.status), ray_jobs=(ray_job(),)), NOW)
    assert state_of(back, "Training") == ("True", "Running")


def test_an_unready_head_of_a_silent_node_is_left_alone():
    heads = (pod(Role.HEAD, ready=False, ready_changed=at(-9999)), *pods()[1:])
    decision = decide(observed(job(running()), pods=heads, ray_jobs=None), NOW)
    assert (decision.actions, decision.status.phase) == ((), Phase.RUNNING)


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"ready": False, "stopped": True, "ready_changed": at(-9999)},
        {"deletion_deadline": at(30)},
        {"disruption": "EvictionByEvictionAPI"},
        {"problem": Problem("OOMKilled", "killed")},
    ],
    ids=["well", "stopped", "deleted", "evicted", "killed"],
)
@pytest.mark.parametrize("role", Role)
def test_a_copy_of_a_pod_with_its_labels_changes_nothing(role, state):
    """As of `kubectl debug --copy-to --keep-labels`, or of another tenant."""
    copy = pod(role, name="a-copy", uid="copy", controlled=False, **state)
    alone = decide(observed(job(running()), ray_jobs=(ray_job(),)), NOW)
    subject = observed(job(running()), pods=(copy, *pods()), ray_jobs=(ray_job(),))
    assert decide(subject, NOW) == alone


class Blindness(RuleBasedStateMachine):
    """A run that makes progress, and an operator that observes it badly."""

    @initialize(queued=st.booleans())
    def create(self, queued: bool) -> None:
        self.fields = {"backoffLimit": 0, "startupDeadlineSeconds": 60, "stallTimeoutSeconds": 60}
        self.fields |= {"queueName": "gpus"} if queued else {}
        self.status: GRPOJobStatus = running()
        self.now, self.step, self.step_at, self.heard_at = NOW, 0, NOW, NOW
        self.reachable, self.ready, self.skew, self.faults = True, True, 0, ""
        self.workers, self.problem = True, None
        self.decision = decide(self.observe(), self.now)

    def observe(self) -> Observed:
        heard = self.reachable and self.ready and not self.faults
        if heard:
            self.heard_at = self.now
        created = self.now + timedelta(seconds=self.skew)
        head = pod(Role.HEAD, ready=self.ready, created=created, ready_changed=created)
        workers = pods()[1:] if self.workers else ()
        report = Progress(
            state=RunState.RUNNING,
            attempt=self.status.attempt,
            progress=ProgressStatus(step=self.step, total_steps=10**6),
        )
        return Observed(
            job(self.status, faults=self.faults, **self.fields),
            cluster=cluster(),
            pods=(head, *workers),
            ray_jobs=(RayJob(self.status.attempt, RayJobState.RUNNING),) if heard else None,
            progress=report if heard else None,
            step_since=self.step_at if heard else None,
            silent_since=None if heard else self.heard_at,
            problem=self.problem,
        )

    @rule(lost=st.booleans())
    def reconcile(self, lost: bool) -> None:
        """`lost`: the operator ends before it writes the status."""
        self.decision = decide(self.observe(), self.now)
        if not lost:
            self.status = self.decision.status

    @rule(seconds=st.sampled_from([1, 50, 1000, 100_000]))
    def time_passes_with_steps(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        self.step, self.step_at = self.step + seconds, self.now

    @rule(reachable=st.booleans(), ready=st.booleans())
    def the_network_changes(self, reachable: bool, ready: bool) -> None:
        self.reachable, self.ready = reachable, ready

    @rule(skew=st.sampled_from([-3600, -15, 0, 15, 3600]))
    def a_clock_changes(self, skew: int) -> None:
        self.skew = skew

    @rule(faults=st.sampled_from(["", "spec.novelty: Forbidden: unknown field"]))
    def the_version_changes(self, faults: str) -> None:
        self.faults = faults

    @rule(workers=st.booleans())
    def workers_change(self, workers: bool) -> None:
        self.workers = workers

    @rule(problem=st.sampled_from([None, Problem("Forbidden", "no rights")]))
    def the_api_server_refuses(self, problem: Problem | None) -> None:
        self.problem = problem

    @invariant()
    def no_harm(self) -> None:
        assert not any(isinstance(a, DeleteCluster | StopDriver) for a in self.decision.actions)
        assert self.decision.status.phase not in TERMINAL
        assert self.decision.status.attempt == 1


Blindness.TestCase.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
TestBlindness = Blindness.TestCase


def test_the_invariant_would_notice_a_lost_cluster():
    decision = decide(observed(job(running(), backoffLimit=0), **NOTHING), NOW)
    assert decision.status.phase in TERMINAL
