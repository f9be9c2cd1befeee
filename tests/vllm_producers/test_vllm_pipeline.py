"""A whole pipeline with vLLM: weights in flight through long-tailed completions, step after step.

Aspects: each token is of the version that it names, whatever way the weights came; nothing of it is
left when the producer is killed before it has weights.
"""

import math

import numpy as np
import psutil
import pytest
import ray
import torch

from grpo_trainer.environment import vllm_python
from grpo_trainer.messages import GenerationRequest
from support.pipeline import pipeline
from support.producers import SECONDS, trained_logprobs
from unit.rollout.tiny_models import EOS, TOKENIZER, chain_model, token_ids

STEPS = 12
SHORT, TAIL = 4.0, 120.0
"""Mean lengths; one completion in eight is of the long kind."""
REWARD = """
def reward(completion, row):
    return 10.0 * (len(completion) % 2)
"""


def long_tailed_model():
    """A model whose completions begin with one of two letters, which continues or soon ends."""
    [short, tail] = token_ids("st")
    [assistant] = token_ids("<assistant>")
    odds = {
        assistant: {short: 7 / 8, tail: 1 / 8},
        short: {short: 1 - 1 / SHORT, EOS: 1 / SHORT},
        tail: {tail: 1 - 1 / TAIL, EOS: 1 / TAIL},
    }
    model = chain_model({}, sharpness=0.0)
    with torch.no_grad():
        # The last norm makes a unit vector this much longer.
        scale = math.sqrt(model.config.hidden_size)
        for token, following in odds.items():
            model.lm_head.weight[:, token] = -20 / scale
            for successor, share in following.items():
                model.lm_head.weight[successor, token] = math.log(share) / scale
    return model


@pytest.fixture
def sections(tmp_path):
    model, reward = tmp_path / "model", tmp_path / "reward.py"
    long_tailed_model().save_pretrained(model)
    TOKENIZER.save_pretrained(model)
    reward.write_text(REWARD)
    return {
        "model": {"path": str(model), "dtype": "float32", "gradientCheckpointing": False},
        "reward": {"type": "custom", "custom": {"module": str(reward), "function": "reward"}},
        "sampling": {"numGenerations": 8, "maxNewTokens": 200, "maxPromptTokens": 16},
        "buffer": {"maxStaleness": 4},
    }


@pytest.mark.parametrize("transport", ["objectStore", "collective"])
async def test_in_flight_each_token_of_a_run_is_of_the_version_it_names(
    cluster, tmp_path, sections, transport
):
    producers = {
        "replicas": 1,
        "backend": "vllm",
        "weightUpdate": "inFlight",
        "weightTransport": transport,
    }
    async with pipeline(tmp_path / "run", producers, sections, vllm_python()) as made:
        await made.producers(1)
        made.put.clear()
        models = {0: await made.model()}
        for _ in range(STEPS):
            await made.step()
            models[made.version] = await made.model()
        assert made.put == (list(range(1, STEPS + 1)) if transport == "objectStore" else [])
    split, errors = 0, []
    for group in made.groups:
        asked = GenerationRequest("r", group.prompt.token_ids, 8, 0, made.prepared.sampling)
        for completion in group.rollout.completions:
            versions = completion.versions
            assert (np.diff(versions) >= 0).all()
            split += len(set(versions)) > 1
            for version in set(versions.tolist()):
                expected = trained_logprobs(models[version], asked, completion)
                errors.append(np.abs(completion.logprobs - expected)[versions == version].max())
    assert split > 0
    assert max(errors) < 1e-4


def test_a_producer_killed_before_its_first_weights_leaves_no_process(start):
    producer = start()
    info = ray.get(producer.ready.remote(), timeout=SECONDS)
    actor = psutil.Process(info.pid)
    children = actor.children(recursive=True)
    assert children
    actor.kill()
    _, alive = psutil.wait_procs([actor, *children], timeout=20)
    assert not alive
