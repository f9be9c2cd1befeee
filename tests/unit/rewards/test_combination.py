"""Parts of a reward become one score: weights, accuracy, parts that do not apply or fail."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_trainer.messages import Score
from grpo_trainer.rewards.combine import combine
from grpo_trainer.rewards.worker import Failure, FailureReason
from grpo_trainer.spec import RewardPart, RewardSpec, resolve_reward

NONE = Score(None, 0.0, 0.0, "none")


def parts(*weights: float) -> tuple[RewardPart, ...]:
    made = [
        {"name": f"part{i}", "type": "boxed", "weight": weight} for i, weight in enumerate(weights)
    ]
    return resolve_reward(RewardSpec.model_validate({"parts": made}))


def named(weights: list[float], results: list[Score | Failure]) -> Score:
    return combine(parts(*weights), results, named=True)


def test_the_reward_is_the_weighted_sum_and_the_first_part_gives_accuracy_and_format():
    score = named([2.0, -0.5], [Score(1.0, 0.0, 1.0), Score(0.5, 1.0, 0.5)])
    assert score == Score(1.75, 0.0, 1.0, None, {"part0": 1.0, "part1": 0.5})


def test_a_part_without_weight_is_recorded_and_changes_nothing():
    score = named([1.0, 0.0], [Score(1.0, 1.0, 1.0), Score(0.25, 1.0, 0.25)])
    assert (score.reward, score.parts["part1"]) == (1.0, 0.25)


def test_a_part_that_does_not_apply_leaves_the_sum_and_the_next_gives_accuracy():
    score = named([1.0, 3.0], [NONE, Score(0.5, 1.0, 1.0)])
    assert score == Score(1.5, 1.0, 1.0, None, {"part1": 0.5})


def test_a_completion_to_which_no_part_applies_is_unscored():
    assert named([1.0, 1.0], [NONE, NONE]) == NONE


@pytest.mark.parametrize("failing", [0, 1])
def test_a_part_that_fails_leaves_the_completion_unscored_and_is_named(failing):
    results: list[Score | Failure] = [Score(1.0, 1.0, 1.0)] * 2
    results[failing] = Failure(FailureReason.TIMEOUT)
    score = named([1.0, 1.0], results)
    assert (score.reward, score.accuracy) == (None, 0.0)
    assert score.error == f"part{failing}: timeout"
    assert score.parts == {f"part{1 - failing}": 1.0}


def test_a_single_type_is_one_part_without_a_name():
    single = resolve_reward(RewardSpec.model_validate({"type": "boxed"}))
    assert combine(single, [Score(1.0, 1.0, 1.0)], named=False) == Score(10.0, 1.0, 1.0)
    failed = combine(single, [Failure(FailureReason.CRASH)], named=False)
    assert failed == Score(None, 0.0, 0.0, "crash")


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(0, 1)), min_size=1, max_size=5))
def test_the_reward_is_linear_in_the_weights(pairs):
    weights, values = zip(*pairs, strict=True)
    results = [Score(value, 1.0, value) for value in values]
    score = named(list(weights), list(results))
    expected = sum(w * v for w, v in pairs)
    assert score.reward == pytest.approx(expected, abs=1e-9)


def test_deadline_and_confinement_are_those_of_the_reward_unless_a_part_has_its_own():
    spec = RewardSpec.model_validate(
        {
            "timeoutSeconds": 7,
            "parts": [
                {"name": "a", "type": "boxed"},
                {"name": "b", "type": "boxed", "timeoutSeconds": 2},
            ],
        }
    )
    first, second = resolve_reward(spec, "spec.evaluation.reward")
    assert (first.timeout_seconds, second.timeout_seconds) == (7, 2)
    assert first.timeout_field == "spec.evaluation.reward.timeoutSeconds"
    assert second.timeout_field == "spec.evaluation.reward.parts[1].timeoutSeconds"
