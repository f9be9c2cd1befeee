"""The page of `status`: facts, reason and message, conditions, pods, events, next steps."""

import re

import pytest

from grpo_kubectl.advice import next_steps
from grpo_kubectl.changes import owner_of_replicas
from grpo_kubectl.jobs import suggestion
from grpo_kubectl.live import described, screen
from grpo_kubectl.status import MAX_EVENTS, pod_state, render
from grpo_operator.model.conditions import Reason
from grpo_operator.model.observed import Problem, Role
from grpo_trainer.spec import CheckpointStatus, Phase, ProgressStatus
from support.observations import NOW, at, condition, job, pod, pods, retrying, running, spec, status

CHECKPOINT = CheckpointStatus(step=100, path="/data/runs/math/checkpoints/step-100", time=at(-60))


def page(state, pods=(), events=(), **fields):
    return "\n".join(render(job(state, **fields), pods, events, NOW))


def failed(reason: str, message: str = "", **fields):
    ended = condition("Failed", "True", reason=reason).model_copy(update={"message": message})
    return status(Phase.FAILED, condition("Accepted", "True"), ended, **fields)


def event(number: int) -> dict:
    return {
        "metadata": {"creationTimestamp": "2026-01-02T03:00:00Z"},
        "lastTimestamp": at(-number).isoformat(),
        "type": "Warning",
        "reason": f"Reason{number}",
        "message": "words",
    }


def test_a_running_job_shows_progress_checkpoint_and_attempt():
    shown = page(
        running(
            progress=ProgressStatus(step=120, total_steps=150, percent=80, eta_seconds=94),
            checkpoint=CHECKPOINT,
            restarts=2,
        )
    )
    assert "Name:        math (namespace lab, 60m old)" in shown
    assert "Phase:       Running" in shown
    assert "step 120 of 150 (80%), episode 0, 94s left" in shown
    assert "Checkpoint:  step 100, 60s ago, /data/runs/math/checkpoints/step-100" in shown
    assert "Attempt:     1, 2 of 3 allowed failures" in shown


def test_a_job_without_a_checkpoint_says_so():
    assert "Checkpoint:  none" in page(running())


def test_a_failed_job_shows_reason_and_every_line_of_the_message():
    shown = page(failed("InvalidSpec", "first fault\nsecond fault"))
    assert "Phase:       Failed (InvalidSpec)" in shown
    assert "Message:     first fault; second fault" in shown


def test_a_job_that_starts_shows_what_keeps_its_pods():
    waiting = condition("ClusterReady", "False", reason="ImagePullBackOff")
    assert "Phase:       Starting (ImagePullBackOff)" in page(status(Phase.STARTING, waiting))


def test_a_job_that_is_submitted_shows_that_and_not_its_ready_pods():
    ready = condition("ClusterReady", "True", reason="PodsReady")
    submitted = condition("Training", "True", reason="Submitted")
    assert "Starting (Submitted)" in page(status(Phase.STARTING, ready, submitted))


def test_pods_are_shown_with_node_and_problem():
    problem = Problem("OOMKilled", "pod head-0, container ray: OOMKilled, exit code 137")
    shown = page(running(), [*pods(), pod(Role.HEAD, 7, ready=False, problem=problem)])
    assert re.search(r"producers-1 +producers +Ready +20m +node-0 +-", shown)
    assert re.search(r"head-7 +head +OOMKilled +20m +node-0 +pod head-0, container ray", shown)


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "Ready"),
        ({"ready": False}, "NotReady"),
        ({"ready": False, "problem": Problem("Unschedulable", "")}, "Unschedulable"),
        ({"deletion_deadline": NOW, "problem": Problem("Error", "")}, "Terminating"),
    ],
)
def test_a_pods_state_is_one_word(fields, state):
    assert pod_state(pod(Role.HEAD, **fields)) == state


def test_the_newest_events_are_shown():
    shown = page(running(), events=[event(number) for number in range(30, 0, -1)])
    assert f"{1}s    Warning   Reason1 " in shown
    assert f"Reason{MAX_EVENTS} " in shown
    assert f"Reason{MAX_EVENTS + 1} " not in shown


@pytest.mark.parametrize("phase", Phase)
def test_there_is_something_to_do_next_whatever_the_phase_and_reason(phase):
    kinds = ("ClusterReady", "Training", "Suspended", "Complete", "Failed")
    for reason in Reason:
        conditions = [condition(kind, "False", reason=reason) for kind in kinds]
        lines = next_steps(job(status(phase, *conditions)))
        assert lines
        assert not re.search(r"[{}]|None", "".join(lines))


def test_a_failed_job_is_followed_by_one_that_resumes_from_its_checkpoint():
    (line,) = next_steps(job(failed("BackoffLimitExceeded", checkpoint=CHECKPOINT)))
    assert f"checkpoint.resumeFrom: {CHECKPOINT.path} and storage.claimName: volume" in line


def test_the_claim_that_the_operator_made_is_named():
    state = failed("BackoffLimitExceeded", checkpoint=CHECKPOINT)
    (line,) = next_steps(job(state, storage={"size": "1Gi"}))
    assert "storage.claimName: math-0a1b2c3d" in line


def test_a_failed_attempt_is_followed_by_its_log():
    state = retrying(-5)
    training = condition("Training", "False", reason="DriverFailed")
    state = state.model_copy(update={"conditions": (training,)})
    assert "kubectl grpo logs math --attempt 1" in next_steps(job(state))


def test_a_job_of_another_controller_says_so():
    (line,) = next_steps(job(managedBy="example.com/other"))
    assert line == "The job is managed by example.com/other, not by the GRPO operator."


def test_a_job_that_no_operator_has_seen_says_so():
    assert "does it serve namespace lab?" in next_steps(job())[0]


def test_a_job_is_described_in_a_line():
    assert (
        described(job(failed("BadInput", "no data")))
        == "math: Failed at step 0 (BadInput: no data)"
    )


def test_the_live_table_of_no_jobs_says_so():
    assert screen([], everywhere=False) == ["no GRPOJobs"]


@pytest.mark.parametrize(
    ("name", "names", "hint"),
    [
        ("quickstrat", ["quickstart", "dapo"], "; did you mean quickstart?"),
        ("math", ["nightly-math-sweep", "dapo"], "; did you mean nightly-math-sweep?"),
        ("x", ["dapo", "alpha"], "; existing jobs: alpha, dapo"),
        ("x", [], "; it has no GRPOJobs"),
    ],
)
def test_an_unknown_name_is_answered_with_similar_names(name, names, hint):
    assert suggestion(name, names) == hint


def test_the_number_of_producers_is_the_users_unless_something_else_keeps_it():
    autoscale = {"minReplicas": 1, "maxReplicas": 4}
    assert owner_of_replicas(spec()) == ""
    assert owner_of_replicas(spec(queueName="team")).startswith("Kueue reserved quota for 2")
    keeper = owner_of_replicas(spec(producers={"autoscale": autoscale}))
    assert keeper == "autoscale keeps them between 1 and 4"
