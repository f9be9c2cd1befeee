"""A Ray of the trainer's environment, and producers of the vLLM environment in it."""

import dataclasses
import os
import tempfile
from itertools import count

import pytest
import ray
from transformers import GenerationConfig

from grpo_trainer.environment import vllm_python
from support.producers import SECONDS, load, start_producer
from unit.rollout.tiny_models import EOS, options, save_directory, tiny_model, token_ids

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

CONTEXT = 1024
[EXTRA_EOS] = token_ids("!")


class Subject:
    """A producer for models with tied or untied embeddings."""

    def __init__(self, actor, tied):
        self.actor, self.tied = actor, tied
        self._versions = count()

    def load(self, model):
        """Hand it the model's weights as a new version, which is returned."""
        version = next(self._versions)
        load(self.actor, model, version)
        return version


@pytest.fixture(scope="package")
def cluster():
    with tempfile.TemporaryDirectory(prefix="ray") as temp:
        ray.init(
            num_cpus=2,
            resources={"grpo_producer": 1, "grpo_consumer": 1},
            runtime_env={"env_vars": {"OMP_NUM_THREADS": "1"}},
            include_dashboard=False,
            _temp_dir=temp,
            log_to_driver=False,
        )
        yield
        ray.shutdown()


@pytest.fixture(scope="package")
def start(cluster, tmp_path_factory):
    """A function that starts a producer; all end with the package."""
    actors = []

    def start_actor(*, tied=False, in_flight=True):
        path = tmp_path_factory.mktemp("model")
        model = tiny_model(tied)
        model.config.max_position_embeddings = CONTEXT
        # A second end of completions, and defaults for sampling that must not bend anything.
        defaults = GenerationConfig(eos_token_id=[EOS, EXTRA_EOS], do_sample=True, top_k=2)
        save_directory(model, path, generation_config=defaults)
        settings = dataclasses.replace(
            options(path),
            microbatch_completions=32,
            max_tokens=CONTEXT,
            in_flight_updates=in_flight,
        )
        actors.append(start_producer(vllm_python(), settings))
        return actors[-1]

    yield start_actor
    for actor in actors:
        ray.kill(actor)


@pytest.fixture(scope="package")
def subjects(start):
    """An untied one with updates in flight, a tied one with updates between requests.

    They start at once, for a start takes its time.
    """
    actors = {tied: start(tied=tied, in_flight=not tied) for tied in (False, True)}
    ray.get([actor.ready.remote() for actor in actors.values()], timeout=2 * SECONDS)
    return {tied: Subject(actor, tied) for tied, actor in actors.items()}
