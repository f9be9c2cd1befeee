"""The table of presets: a row for each algorithm, with its paper in the documentation."""

from dataclasses import fields
from pathlib import Path

import pytest

from grpo_trainer.spec import (
    PRESETS,
    AlgorithmName,
    GRPOJob,
    GRPOJobSpec,
    Preset,
    parse_manifest,
    resolve_algorithm,
    resolve_plan,
    resolved_spec,
)

PAGE = (Path(__file__).resolve().parents[3] / "docs/algorithm.md").read_text()


def resolved(name: AlgorithmName):
    return resolve_algorithm(GRPOJobSpec.model_validate({"algorithm": {"name": name}}))


def test_every_algorithm_has_a_row():
    assert list(PRESETS) == list(AlgorithmName)


@pytest.mark.parametrize("name", AlgorithmName)
def test_the_row_gives_the_defaults_of_the_algorithm(name):
    algorithm = resolved(name)
    for field in fields(Preset):
        if field.name != "source":
            assert getattr(algorithm, field.name) == getattr(PRESETS[name], field.name)
    assert algorithm.mask_truncated is PRESETS[name].overlong


@pytest.mark.parametrize("name", AlgorithmName)
def test_a_part_of_a_preset_can_be_replaced(name):
    parts = {"advantage": "leaveOneOut", "klForm": "k1", "clipLow": 0.5, "lossForm": "weighted"}
    spec = {"algorithm": {"name": name, **parts}}
    algorithm = resolve_algorithm(GRPOJobSpec.model_validate(spec))
    assert (algorithm.advantage, algorithm.kl_form) == ("leaveOneOut", "k1")
    assert (algorithm.clip_low, algorithm.loss_form) == (0.5, "weighted")
    assert algorithm.clip_high == PRESETS[name].clip_high


@pytest.mark.parametrize("name", AlgorithmName)
def test_the_documentation_names_the_paper(name):
    assert PRESETS[name].source in PAGE


@pytest.mark.parametrize("name", AlgorithmName)
def test_a_resolved_spec_is_valid_and_means_the_same(name):
    given = GRPOJobSpec.model_validate({"algorithm": {"name": name}})
    filled = resolved_spec(given)
    read = parse_manifest(GRPOJob(spec=filled).plain()).spec
    assert read.plain() == filled.plain() == resolved_spec(read).plain()
    assert resolve_algorithm(filled).clip_high == resolve_algorithm(given).clip_high
    assert resolve_plan(filled).lines() == resolve_plan(given).lines()
