"""Training numerics that toys do not show.

Aspects: log-probabilities of long sequences in bfloat16 are the engine's under every layout and
rotary variant; gradients that are not finite change nothing; dropout is off.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from grpo_trainer.consumer.parallel_dims import ParallelDims
from grpo_trainer.rollout.engine import EngineOptions
from grpo_trainer.rollout.model import build_model
from grpo_trainer.spec import Dtype
from support.layouts import job, options, run, steps, weights
from support.models import save_random_model

LENGTH = 4096
VOCABULARY = 128
NOISE = 0.05
"""Nats. bfloat16 itself is 0.08 to 0.12 away from single precision here, for every variant."""
ROTARY = {
    "default": None,
    "linear": {"rope_type": "linear", "factor": 2.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 1024,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024},
}
LAYOUTS = {
    "data parallel": ParallelDims(2),
    "ZeRO 1": ParallelDims(2, zero_stage=1),
    "ZeRO 2": ParallelDims(2, zero_stage=2),
    "tensor parallel": ParallelDims(2, tensor_parallel=2),
    "pipeline parallel": ParallelDims(2, pipeline_parallel=2),
}


def save_rotary_model(path: Path, scaling: dict | None) -> Path:
    """A Llama whose predictions depend on positions thousands of tokens away."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=2 * LENGTH,
        rope_scaling=scaling,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(path)
    return path


def scored_ids() -> np.ndarray:
    return np.random.default_rng(0).integers(2, VOCABULARY, (1, LENGTH))


def engine_logprobs(model: Path) -> np.ndarray:
    """[B, L - 1] as the transformers engine has them in bfloat16."""
    built = build_model(EngineOptions(str(model), str(model), "bfloat16", "cpu", 1))
    built.load_state_dict(AutoModelForCausalLM.from_pretrained(model).state_dict(), strict=False)
    ids = torch.from_numpy(scored_ids())
    with torch.no_grad():
        logits = built(input_ids=ids).logits[:, :-1].float()
    return logits.log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2).numpy()


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    """Mean difference over the second half, where angles have grown."""
    return float(np.abs(found - expected)[:, LENGTH // 2 :].mean())


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {name: save_rotary_model(root / name, rope) for name, rope in ROTARY.items()}


@pytest.fixture(scope="module")
def scores(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every rotary variant data parallel, and every other layout with the default one."""
    tmp = tmp_path_factory.mktemp("scores")
    cases = [(name, "data parallel") for name in ROTARY]
    cases += [("default", name) for name in LAYOUTS if name != "data parallel"]
    jobs = []
    for rotary, layout in cases:
        model = models[rotary]
        whole = options(
            model,
            LAYOUTS[layout],
            dtype=Dtype.BFLOAT16,
            reference_path=str(model),
            microbatch=1,
            temperature=1.0,
        )
        jobs.append(job(tmp, f"{rotary} {layout}", whole, steps=(), score=scored_ids()))
    run(jobs, world=2)
    return tmp


def loaded(scores: Path, rotary: str, layout: str) -> dict[str, np.ndarray]:
    """Of the last rank: with pipeline stages it is the one that has them."""
    return dict(np.load(scores / f"{rotary} {layout}".replace(" ", "-") / "scores-1.npz"))


@pytest.mark.parametrize("rotary", ROTARY)
def test_a_long_bfloat16_sequence_scores_as_in_the_engine(models, scores, rotary):
    expected, found = engine_logprobs(models[rotary]), loaded(scores, rotary, "data parallel")
    assert distance(found["policy"], expected) < NOISE
    assert distance(found["reference"], expected) < NOISE


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_scores_a_long_bfloat16_sequence_as_the_engine(models, scores, layout):
    expected, found = engine_logprobs(models["default"]), loaded(scores, "default", layout)
    assert distance(found["policy"], expected) < NOISE
    assert distance(found["reference"], expected) < NOISE


@pytest.mark.parametrize("rotary", ROTARY)
def test_rounded_frequencies_would_be_noticed(models, rotary):
    model = AutoModelForCausalLM.from_pretrained(models[rotary]).to(torch.bfloat16)
    ids = torch.from_numpy(scored_ids())
    with torch.no_grad():
        logits = model(input_ids=ids).logits[:, :-1].float()
    found = logits.log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2).numpy()
    assert distance(found, engine_logprobs(models[rotary])) > 10 * NOISE


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rotary_frequencies_stay_in_single_precision(scores, layout):
    found = loaded(scores, "default", layout)
    assert found["policy_buffers"].tolist() == ["torch.float32"]
    assert found["reference_buffers"].tolist() == ["torch.float32"]


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three steps of which the second has a NaN gradient, and the same without that step."""
    tmp = tmp_path_factory.mktemp("poisoned")
    model = save_random_model(tmp / "model")
    jobs = []
    for dtype in Dtype:
        for name, layout in LAYOUTS.items():
            whole = options(model, layout, dtype=dtype)
            first, _, third = steps(whole)
            jobs.append(job(tmp, f"{dtype} {name} poisoned", whole, poisoned_step=1))
            jobs.append(job(tmp, f"{dtype} {name} without", whole, steps=(first, third)))
    run(jobs, world=2)
    return tmp


@pytest.mark.parametrize("dtype", Dtype)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_step_with_a_gradient_that_is_not_finite_changes_nothing(poisoned, layout, dtype):
    directory = poisoned / f"{dtype} {layout} poisoned".replace(" ", "-")
    without = poisoned / f"{dtype} {layout} without".replace(" ", "-")
    for rank in range(2):
        steps = json.loads((directory / f"result-{rank}.json").read_text())
        assert [step["skipped"] for step in steps] == [False, True, False]
    found, expected = weights(directory), weights(without)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_dropout_is_off_in_training(tmp_path):
    model = save_rotary_model(tmp_path / "dropout", None)
    config = json.loads((model / "config.json").read_text())
    plain = options(model, ParallelDims(1), temperature=1.0)
    (model / "config.json").write_text(json.dumps(config | {"attention_dropout": 0.5}))
    ids = scored_ids()[:, :64]
    whole = replace(plain, reference_path=str(model))
    run([job(tmp_path, "run", whole, steps=(), score=ids)], world=1)
    found = np.load(tmp_path / "run" / "scores-0.npz")
    np.testing.assert_allclose(found["policy"], found["reference"], atol=1e-5)
