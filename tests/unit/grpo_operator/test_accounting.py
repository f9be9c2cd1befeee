"""Metrics of jobs. Aspects: phases, retries by reason, accelerator time that was lost."""

from dataclasses import replace

from grpo_operator.controller.accounting import Accounting
from grpo_operator.controller.decide import decide
from grpo_operator.metrics import Metrics
from grpo_trainer.spec import CheckpointStatus
from support.observations import NOW, at, job, observed, pods, ray_job, running

GPUS = 2 * 1 + 1 * 2
"""Two producers of one accelerator, one consumer pod of two."""


def value(accounting, name, **labels):
    return accounting.metrics.registry.get_sample_value(f"grpo_operator_{name}", labels)


def test_jobs_are_counted_by_their_present_phase():
    accounting = Accounting(Metrics())
    accounting.seen(job())
    accounting.seen(job(running()))
    assert value(accounting, "jobs", phase="Pending") == 0
    assert value(accounting, "jobs", phase="Running") == 1
    accounting.forget(("lab", "math"))
    assert value(accounting, "jobs", phase="Running") == 0


def test_a_head_that_does_not_respond_is_counted_until_it_does():
    accounting = Accounting(Metrics())
    silent = decide(observed(job(running()), ray_jobs=None, silent_since=at(-60)), NOW).status
    accounting.changed(job(running()), silent, latency=0.1)
    labels = {"job_namespace": "lab", "grpojob": "math"}
    assert value(accounting, "silent_heads", **labels) == 1
    accounting.changed(job(silent), running(), latency=0.1)
    assert value(accounting, "silent_heads", **labels) is None


def fail(state):
    accounting = Accounting(Metrics())
    subject = job(state)
    decision = decide(observed(subject, ray_jobs=(ray_job(1, "FAILED", 1),)), NOW)
    accounting.changed(subject, decision.status, latency=0.1)
    return accounting


def test_a_failure_costs_the_time_since_the_attempt_began():
    accounting = fail(running())
    assert value(accounting, "retries_total", reason="DriverFailed") == 1
    assert value(accounting, "lost_accelerator_seconds_total") == 600 * GPUS


def test_an_eviction_is_counted_apart_from_failures():
    accounting = Accounting(Metrics())
    evicted = tuple(replace(p, disruption="PreemptionByScheduler") for p in pods())
    ended = observed(job(running()), pods=evicted, ray_jobs=(ray_job(1, "FAILED", 1),))
    accounting.changed(job(running()), decide(ended, NOW).status, latency=0.1)
    assert value(accounting, "evictions_total", reason="Evicted") == 1
    assert value(accounting, "retries_total", reason="Evicted") is None
    assert value(accounting, "lost_accelerator_seconds_total") == 600 * GPUS


def test_a_checkpoint_saves_the_time_before_it():
    checkpoint = CheckpointStatus(step=5, path="checkpoints/step-5", time=at(-100))
    accounting = fail(running(checkpoint=checkpoint))
    assert value(accounting, "lost_accelerator_seconds_total") == 100 * GPUS


def test_the_failure_that_ends_a_job_counts_too():
    accounting = fail(running(restarts=3))
    assert value(accounting, "lost_accelerator_seconds_total") == 600 * GPUS
