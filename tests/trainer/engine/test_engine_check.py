"""The comparison of engines with the trainer, on real engines whose weights are wrong on purpose.

Aspects: equal weights differ by rounding only; one changed tensor, a tensor that an update did not
reach and a stale version end a run when all engines have them; one wrong engine of two restarts.
"""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from grpo_trainer.driver.engine_check import EngineCheck
from grpo_trainer.errors import RunFailedError
from grpo_trainer.messages import Message, Prompt, Row, SamplingParams
from grpo_trainer.pipeline import ChangeSignal
from grpo_trainer.rollout.transformers_engine import TransformersEngine
from grpo_trainer.spec import GRPOJobSpec
from unit.rollout.tiny_models import bundle, options, save_directory, tiny_model, token_ids

VERSION = 3


class Client:
    """Calls to an engine in this process."""

    def __init__(self, engine):
        self.engine, self.killed = engine, False

    async def rollouts(self, requests):
        for answer in asyncio.as_completed([self.engine.generate(r) for r in requests]):
            yield await answer

    def kill(self):
        self.killed = True


class Consumers:
    """What a consumer group computes, by the model itself."""

    def __init__(self, model):
        self.model = model

    async def logprobs(self, batches):
        return [self._logprobs(batch) for batch in batches]

    def _logprobs(self, batch):
        with torch.no_grad():
            logits = self.model(torch.from_numpy(batch.input_ids)).logits[:, :-1]
        ids = torch.from_numpy(batch.input_ids)[:, 1:, None]
        found = logits.log_softmax(-1).gather(2, ids).squeeze(2)
        return np.where(batch.mask, np.pad(found.numpy(), ((0, 0), (1, 0))), 0.0)


@pytest.fixture
def directory(tmp_path):
    return save_directory(tiny_model(), tmp_path)


def context(model, names):
    prompts = [
        Prompt(
            Row("row", (Message("user", text),), answer="1"), np.array(token_ids(text), np.int32)
        )
        for text in ("1+1=", "What is 12+34?", "a")
    ]
    sampling = SamplingParams(1.0, None, 1.0, 8)
    return SimpleNamespace(
        spec=GRPOJobSpec(),
        prepared=SimpleNamespace(sampling=sampling, train=SimpleNamespace(prompts=prompts)),
        publisher=SimpleNamespace(applied_versions=dict.fromkeys(names, VERSION)),
        changed=ChangeSignal(),
        consumers=Consumers(model),
        reporter=SimpleNamespace(message=lambda text: None),
    )


async def check(directory, model, *loaded):
    """Check engines that have loaded the weights of these models; returns check and clients."""
    clients = []
    for weights in loaded:
        engine = TransformersEngine(options(directory))
        await engine.load_weights([bundle(weights, VERSION)])
        clients.append(Client(engine))
    sessions = [SimpleNamespace(name=f"p{i}", client=c) for i, c in enumerate(clients)]
    pool = SimpleNamespace(sessions=sessions)
    checked = EngineCheck(context(model, [s.name for s in sessions]), pool)
    try:
        await checked.run(VERSION)
    finally:
        for client in clients:
            await client.engine.close()
    return checked, clients


def changed(name, change):
    """The model with one tensor changed."""
    model = tiny_model()
    with torch.no_grad():
        change(model.get_parameter(name))
    return model


WRONG = {
    "one tensor is scaled": lambda: changed(
        "model.layers.1.mlp.up_proj.weight", lambda t: t.mul_(3)
    ),
    "rows are in another order": lambda: changed(
        "model.layers.0.self_attn.q_proj.weight", lambda t: t.copy_(t.flip(0))
    ),
    "the head is not updated": lambda: changed("lm_head.weight", lambda t: t.zero_()),
    "all weights are stale": lambda: tiny_model(seed=1),
}


async def test_engines_with_the_weights_of_the_trainer_differ_by_rounding(directory):
    checked, clients = await check(directory, tiny_model(), tiny_model(), tiny_model())
    assert 0 < checked.mismatch < 1e-5
    assert not any(client.killed for client in clients)


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
async def test_engines_with_other_weights_end_the_run_with_the_difference(directory, wrong):
    with pytest.raises(RunFailedError, match=r"p0 .* differ from the trainer's by [\d.]+ nats"):
        await check(directory, tiny_model(), wrong())


async def test_one_wrong_engine_of_two_restarts(directory):
    _, (right, wrong) = await check(directory, tiny_model(), tiny_model(), tiny_model(seed=1))
    assert (right.killed, wrong.killed) == (False, True)


@pytest.mark.parametrize(("interval", "due"), [(0, []), (2, [2, 4]), (3, [3])])
def test_a_check_is_due_at_every_interval(interval, due):
    spec = GRPOJobSpec.model_validate({"producers": {"engineCheck": {"interval": interval}}})
    checked = EngineCheck(SimpleNamespace(spec=spec), None)
    assert [version for version in range(1, 5) if checked.due(version)] == due
