"""The books of a run: totals, accuracies, the summary's ratios, and how many steps are planned."""

from dataclasses import asdict

import pytest

from grpo_trainer.driver.accounting import Ledger, PhaseClock, PhaseName
from grpo_trainer.events import EvaluationReport, Outcome, StepReport, Summary
from grpo_trainer.spec import GRPOJobSpec, parse_manifest, planned_steps
from support.reports import step_report


def step(number: int, *, seconds: float = 2.0, idle: float = 0.25, reward: float = 5) -> StepReport:
    return step_report(
        step=number,
        seconds=seconds,
        phase_seconds={"take": idle * seconds},
        samples=8,
        reward_mean=reward,
        accuracy_mean=reward / 10,
    )


def evaluation(accuracy: float) -> EvaluationReport:
    return EvaluationReport(0, "held", accuracy, 1.0, 5.0, 1.0, ())


def summary(ledger: Ledger) -> Summary:
    return ledger.summary(
        Outcome.SUCCEEDED,
        message="",
        steps=2,
        total_steps=2,
        wall_seconds=5.0,
        newest_checkpoint=None,
        run_directory="runs/x",
    )


def test_the_summary_divides_by_the_time_of_the_steps() -> None:
    ledger = Ledger(producer_seconds=3.6)
    for number in (1, 2):
        ledger.add_step(step(number), consumer_seconds=1.5)
    found = summary(ledger)
    assert found.samples_per_second == 16 / 4
    assert found.consumer_idle_ratio == 0.25
    # The busier side sets the pace: 3.6 s of generation against 3 s of training, in 4 s.
    assert found.efficiency == pytest.approx(0.9)


def test_without_evaluations_the_rollouts_stand_for_accuracy() -> None:
    ledger = Ledger()
    ledger.add_step(step(1, reward=2), 1.0)
    ledger.add_step(step(2, reward=8), 1.0)
    assert summary(ledger).first_accuracy == {"train": 0.2}
    assert summary(ledger).last_accuracy == {"train": 0.8}


def test_evaluations_take_the_place_of_rollouts() -> None:
    ledger = Ledger()
    ledger.add_step(step(1), 1.0)
    ledger.add_evaluation(evaluation(0.4))
    ledger.add_step(step(2), 1.0)
    ledger.add_evaluation(evaluation(0.9))
    assert summary(ledger).first_accuracy == {"held": 0.4}
    assert summary(ledger).last_accuracy == {"held": 0.9}


def test_a_run_that_never_trained_has_a_summary_too() -> None:
    found = summary(Ledger())
    assert (found.samples_per_second, found.efficiency, found.first_reward) == (0.0, 0.0, None)


def test_the_books_survive_a_checkpoint() -> None:
    ledger = Ledger()
    ledger.add_step(step(1), 1.0)
    assert Ledger(**asdict(ledger)) == ledger


def test_a_lap_has_every_phase_and_starts_again() -> None:
    clock = PhaseClock()
    with clock.phase(PhaseName.TRAIN):
        pass
    wall, phases = clock.lap()
    assert set(phases) == set(PhaseName)
    assert phases[PhaseName.TRAIN] <= wall
    assert clock.lap()[1][PhaseName.TRAIN] == 0


def spec(**fields: object) -> GRPOJobSpec:
    batch = {"trainBatchSize": 8, "trainMinibatchSize": 8}
    manifest = {
        "apiVersion": "grpo-operator.io/v1alpha1",
        "kind": "GRPOJob",
        "metadata": {"name": "test"},
        "spec": {"batch": batch, "consumers": {"processesPerReplica": 2}, **fields},
    }
    return parse_manifest(manifest).spec


def test_a_last_partial_batch_is_a_step() -> None:
    assert planned_steps(spec(), prompts=33) == 3


def test_episodes_are_laid_end_to_end() -> None:
    assert planned_steps(spec(numEpisodes=3), prompts=24) == 5


def test_max_steps_ends_a_run_sooner_but_never_later() -> None:
    assert planned_steps(spec(maxSteps=2), prompts=64) == 2
    assert planned_steps(spec(maxSteps=100), prompts=64) == 4
