"""Ready, Reconciling and Stalled of a job, and how kstatus reads them.

Aspects: one state after another; reasons; a spec that has changed; ends; statuses of earlier
versions.
"""

from dataclasses import replace

import pytest

from grpo_operator.controller.decide import decide
from grpo_operator.model.decision import Decision
from grpo_operator.model.observed import Job, Problem
from grpo_trainer.spec import ConditionType, GRPOJobStatus, Phase
from support.kstatus import CURRENT, FAILED, IN_PROGRESS, TERMINATING, kstatus
from support.observations import (
    NOTHING,
    NOW,
    at,
    condition,
    job,
    observed,
    pods,
    ray_job,
    retrying,
    running,
    starting,
    state_of,
    status,
)


def manifest(subject: Job, state: GRPOJobStatus) -> dict:
    """The job as the API server returns it."""
    return {
        "metadata": {"generation": subject.generation}
        | ({"deletionTimestamp": "2026-01-02T03:04:05Z"} if subject.deleting else {}),
        "status": state.model_dump(mode="json", by_alias=True, exclude_none=True),
    }


def health(subject: Job, **world) -> tuple[str, Decision]:
    """The decision on a job, and how kstatus reads its status."""
    decision = decide(observed(subject, **world), NOW)
    return kstatus(manifest(subject, decision.status)), decision


SILENT = {"ray_jobs": None, "silent_since": at(-3600)}


@pytest.mark.parametrize(
    ("subject", "world", "expected"),
    [
        pytest.param(job(), NOTHING, IN_PROGRESS, id="new"),
        pytest.param(job(queueName="gpus"), NOTHING, IN_PROGRESS, id="queued"),
        pytest.param(job(starting()), {"pods": ()}, IN_PROGRESS, id="without pods"),
        pytest.param(job(starting()), {}, IN_PROGRESS, id="submitted"),
        pytest.param(job(running()), {"ray_jobs": (ray_job(),)}, CURRENT, id="running"),
        pytest.param(job(running()), SILENT, IN_PROGRESS, id="head silent"),
        pytest.param(
            job(running()), {"ray_jobs": (ray_job(1, "FAILED", 1),)}, IN_PROGRESS, id="retried"
        ),
        pytest.param(job(retrying(-1)), NOTHING, IN_PROGRESS, id="backing off"),
        pytest.param(job(running(), suspend=True), {}, IN_PROGRESS, id="suspending"),
        pytest.param(job(suspend=True), NOTHING, CURRENT, id="suspended"),
        pytest.param(
            job(running()), {"ray_jobs": (ray_job(1, "SUCCEEDED", 0),)}, CURRENT, id="succeeded"
        ),
        pytest.param(
            job(running()), {"ray_jobs": (ray_job(1, "FAILED", 64),)}, FAILED, id="bad input"
        ),
        pytest.param(
            job(running(), backoffLimit=0),
            {"ray_jobs": (ray_job(1, "FAILED", 1),)},
            FAILED,
            id="retries used up",
        ),
        pytest.param(job(faults="spec.seed: Required value"), NOTHING, FAILED, id="invalid"),
        pytest.param(
            job(running(), faults="spec.seed: Required value"), {}, FAILED, id="unreadable"
        ),
        pytest.param(replace(job(running()), deleting=True), {}, TERMINATING, id="deleted"),
    ],
)
def test_kstatus_reads_the_state_of_a_job(subject, world, expected):
    assert health(subject, **world)[0] == expected


def test_a_job_that_was_not_reconciled_yet_is_in_progress():
    """The definition's defaults of the status are there from the creation."""
    assert kstatus(manifest(job(), GRPOJobStatus())) == IN_PROGRESS


def test_the_reason_why_a_job_is_not_ready_is_that_of_its_pods():
    problem = Problem("ImagePullBackOff", "pod head-0: no such image")
    broken = tuple(replace(p, ready=False, problem=problem) for p in pods())
    decision = decide(observed(job(starting()), pods=broken, ray_jobs=None), NOW)
    assert state_of(decision, "Ready") == ("False", "ImagePullBackOff")


def test_a_job_that_backs_off_keeps_the_reason_of_its_failure():
    failed = decide(observed(job(running()), ray_jobs=(ray_job(1, "FAILED", 1),)), NOW)
    waiting = decide(observed(job(failed.status)), NOW)
    assert state_of(waiting, "Ready") == ("False", "DriverFailed")
    assert waiting.status == failed.status


def test_a_head_that_does_not_respond_makes_a_running_job_neither_ready_nor_stalled():
    _, decision = health(job(running()), **SILENT)
    assert state_of(decision, "Ready") == ("Unknown", "HeadNotAnswering")
    assert state_of(decision, "Stalled")[0] == "False"


@pytest.mark.parametrize(
    "phase", [Phase.RUNNING, Phase.SUCCEEDED, Phase.FAILED], ids=lambda phase: phase.lower()
)
def test_a_new_generation_is_acknowledged_in_every_phase(phase):
    ends = {Phase.SUCCEEDED: "Complete", Phase.FAILED: "Failed"}
    state = running().model_copy(update={"phase": phase, "observed_generation": 1})
    if phase in ends:
        state = status(phase, condition(ends[phase], "True"), observed_generation=1)
    subject = replace(job(state), generation=2)
    assert kstatus(manifest(subject, state)) == IN_PROGRESS
    found, decision = health(subject, ray_jobs=(ray_job(),))
    assert found == (FAILED if phase is Phase.FAILED else CURRENT)
    assert decision.status.observed_generation == 2


@pytest.mark.parametrize(
    ("phase", "kind", "expected"),
    [(Phase.SUCCEEDED, "Complete", CURRENT), (Phase.FAILED, "Failed", FAILED)],
)
def test_a_job_that_ended_under_an_earlier_version_gets_the_conditions_of_this_one(
    phase, kind, expected
):
    ended = condition(kind, "True", at(-9999), "Earlier")
    state = status(phase, ended, observed_generation=1, completion_time=at(-9999))
    found, decision = health(job(state), **NOTHING)
    assert (found, decision.actions) == (expected, ())
    assert state_of(decision, "Ready")[1] == "Earlier"
    assert decision.status.completion_time == at(-9999)
    assert ended in decision.status.conditions


def test_no_condition_is_written_without_reason_and_time():
    nameless = Problem("", "a controller of others gave no reason")
    decision = decide(observed(job(starting()), problem=nameless, **NOTHING), NOW)
    for found in decision.status.conditions:
        assert found.reason
        assert found.last_transition_time is not None
    assert state_of(decision, "Ready") == ("False", "Unknown")
    assert {c.type for c in decision.status.conditions} >= {
        ConditionType.READY,
        ConditionType.RECONCILING,
        ConditionType.STALLED,
    }
