"""What an evaluation asks of the producers and reports of each set."""

import numpy as np
import pytest

from grpo_trainer.data import EncodedPrompts
from grpo_trainer.driver.evaluated_sets import EvaluatedSet, report, requests
from grpo_trainer.events import EvaluatedSample
from grpo_trainer.messages import Prompt, Row, SamplingParams
from grpo_trainer.spec import GRPOJobSpec, evaluation_reward, evaluation_sets

GREEDY = SamplingParams(0.0, None, 1.0, 8)
SAMPLED = SamplingParams(0.6, None, 0.95, 8)


def prompts(count: int) -> EncodedPrompts:
    made = (Prompt(Row(f"row {i}", ()), np.array([i], np.int32)) for i in range(count))
    return EncodedPrompts(tuple(made), dropped=0)


def sample(source: str, accuracy: float, reward: float | None = 1.0) -> EvaluatedSample:
    return EvaluatedSample(source, "?", "!", "1", reward, accuracy, 1.0, 2, "stop")


SETS = {
    "greedy": EvaluatedSet(prompts(3), 1, GREEDY),
    "sampled": EvaluatedSet(prompts(3), 4, SAMPLED),
}


def test_every_sample_of_every_row_is_one_request_with_a_seed_of_its_own():
    made = requests(SETS, seed=100)
    assert len(made) == 3 + 3 * 4
    assert len({request.request_id for request in made}) == len(made)
    assert sorted(request.seed for request in made) == list(range(100, 115))
    assert [request.sampling for request in made] == [GREEDY] * 3 + [SAMPLED] * 12


def test_the_samples_of_a_row_are_one_observation():
    rows = [("a", (1.0, 1.0, 0.0, 0.0)), ("b", (0.0,) * 4), ("c", (1.0,) * 4)]
    samples = [sample(source, value) for source, values in rows for value in values]
    made = report(7, "sampled", SETS["sampled"], samples, seconds=2.0)
    assert (made.step, made.dataset, made.samples_per_row) == (7, "sampled", 4)
    assert made.accuracy == pytest.approx(0.5)
    assert made.pass_at == {2: pytest.approx((5 / 6 + 0 + 1) / 3), 4: pytest.approx(2 / 3)}
    assert made.standard_error == pytest.approx(0.5 / np.sqrt(3))


def test_a_completion_without_a_score_is_not_wrong():
    samples = [sample("a", 1.0), sample("b", 0.0, reward=None), sample("c", 0.0)]
    assert report(1, "greedy", SETS["greedy"], samples, 1.0).accuracy == 0.5


def test_sets_have_the_sampling_of_the_evaluation_unless_they_have_their_own():
    evaluation = {
        "datasets": {"held-out": "held.jsonl"},
        "samples": 4,
        "topP": 0.9,
        "sets": [
            {"name": "greedy", "path": "b.jsonl", "samples": 1, "temperature": 0},
            {"name": "own", "path": "b.jsonl", "promptColumn": "q"},
        ],
        "reward": {"type": "boxed"},
    }
    dataset = {"path": "train.jsonl", "answerColumn": "a"}
    spec = GRPOJobSpec.model_validate({"dataset": dataset, "evaluation": evaluation})
    held, greedy, own = evaluation_sets(spec)
    assert (held.name, held.data.path, held.data.answer_column) == ("held-out", "held.jsonl", "a")
    assert (held.samples, held.temperature, held.top_p) == (4, 0.6, 0.9)
    assert (greedy.samples, greedy.temperature) == (1, 0.0)
    assert (own.data.prompt_column, own.data.answer_column) == ("q", "gt_answer")
    assert evaluation_reward(spec).type == "boxed"
