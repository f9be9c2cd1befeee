"""How many prompts a producer holds, and how many are worth a call."""

from dataclasses import replace
from pathlib import Path

import pytest

from grpo_trainer.driver.producer_client import ProducerSettings
from grpo_trainer.environments.episode import EpisodeLimits
from grpo_trainer.environments.producing import EnvironmentOptions
from grpo_trainer.messages import SamplingParams
from grpo_trainer.rollout.engine import EngineOptions
from grpo_trainer.spec import Backend


def settings(backend: Backend, batch: int = 64) -> ProducerSettings:
    engine = EngineOptions(
        model_path="model",
        tokenizer_path="model",
        dtype="float32",
        device="cpu",
        microbatch=8,
        microbatch_completions=64,
    )
    sampling = SamplingParams(max_new_tokens=4, temperature=1.0, top_k=0, top_p=1.0)
    return ProducerSettings(
        min_available=1,
        backend=backend,
        engine=engine,
        python=Path("python"),
        gpus=0,
        sampling=sampling,
        num_samples=8,
        microbatch=8,
        batch=batch,
        startup_seconds=60.0,
        call_seconds=60.0,
    )


def test_an_engine_of_micro_batches_is_called_with_whole_ones():
    assert settings(Backend.TRANSFORMERS).least_lease == 8


def test_an_engine_that_starts_prompts_one_by_one_is_called_with_one():
    assert settings(Backend.VLLM).least_lease == 1


@pytest.mark.parametrize(("batch", "most"), [(8, 8), (16, 16), (64, 24)])
def test_a_producer_holds_two_micro_batches_beside_the_one_at_work(batch: int, most: int):
    assert settings(Backend.VLLM, batch).most_leases == most


def test_episodes_fill_the_whole_batch_and_start_one_by_one():
    limits = EpisodeLimits(
        max_turns=2,
        max_prompt_tokens=8,
        max_episode_tokens=16,
        max_observation_tokens=8,
        step_seconds=1.0,
    )
    environment = EnvironmentOptions(
        url="http://localhost", limits=limits, unavailable_seconds=1.0, max_concurrent=4
    )
    episodes = replace(settings(Backend.TRANSFORMERS), environment=environment)

    assert (episodes.most_leases, episodes.least_lease) == (64, 1)
