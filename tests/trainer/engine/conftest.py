"""The transformers engine for a model that a test made."""

import pytest

from grpo_trainer.rollout.factory import create_engine
from unit.rollout.tiny_models import TOKENIZER, bundle, options, save_directory


@pytest.fixture
async def start(tmp_path):
    """A function that starts an engine for a model and, by default, loads its weights."""
    engines = []

    async def start_engine(model, *, weights=True, tokenizer=TOKENIZER, config=None, **settings):
        save_directory(model, tmp_path, tokenizer, config)
        engine = create_engine("transformers", options(tmp_path, **settings))
        engines.append(engine)
        if weights:
            await engine.load_weights([bundle(model)])
        return engine

    yield start_engine
    for engine in engines:
        await engine.close()
