"""The fields of `algorithm.optimizer` reach the optimizer under every plugin."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from grpo_trainer.consumer.parallel_dims import ParallelDims
from grpo_trainer.spec import Dtype, OptimizerSpec, Schedule
from support.layouts import job, options, run, weights
from support.models import save_random_model

PLUGINS = {
    "DDP": {},
    "ZeRO": {"dims": ParallelDims(1, zero_stage=1)},
    "hybrid": {"dtype": Dtype.BFLOAT16},
}
SETTINGS = {
    "default": OptimizerSpec(),
    # Adam's eps is 1e-8: gradients far below it make no update.
    "norm": OptimizerSpec(max_gradient_norm=1e-12),
    "decay": OptimizerSpec(weight_decay=0.5),
    "momentum": OptimizerSpec(beta1=0.0),
    "constant": OptimizerSpec(schedule=Schedule.CONSTANT),
    "warm-up": OptimizerSpec(warmup_steps=9),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def trained(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp = tmp_path_factory.mktemp("trained")
    jobs = []
    for plugin, changes in PLUGINS.items():
        base = options(model, **changes)
        for name, optimizer in SETTINGS.items():
            algorithm = replace(base.algorithm, optimizer=optimizer)
            jobs.append(job(tmp, f"{plugin} {name}", replace(base, algorithm=algorithm)))
    run(jobs, world=1)
    return tmp


def distance(model: Path, end: Path) -> float:
    start = AutoModelForCausalLM.from_pretrained(model).state_dict()
    return float(sum(torch.dist(w.float(), start[n].float()) for n, w in weights(end).items()))


@pytest.mark.parametrize("plugin", PLUGINS)
def test_the_gradient_is_clipped_to_its_maximum_norm(model, trained, plugin):
    clipped, free = (distance(model, trained / f"{plugin}-{s}") for s in ("norm", "default"))
    # In bfloat16 the weights are rounded once.
    assert clipped < free / 5
    norms = json.loads((trained / f"{plugin}-norm" / "result-0.json").read_text())
    assert norms[0]["norm"] > 0.1, "the norm before clipping is reported"


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize("setting", ["decay", "momentum", "constant"])
def test_a_setting_changes_the_weights(trained, plugin, setting):
    changed, default = (weights(trained / f"{plugin}-{s}") for s in (setting, "default"))
    assert any(not torch.equal(changed[name], default[name]) for name in default)


@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_warm_up_makes_the_first_updates_smaller(model, trained, plugin):
    warm, default = (distance(model, trained / f"{plugin}-{s}") for s in ("warm-up", "default"))
    assert warm < 0.5 * default
