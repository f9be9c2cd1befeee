"""The records of the API: defaults as documented, frozen, camel case outside and snake case inside,
and the values derived from them."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from grpo_trainer.spec import (
    API_VERSION,
    GRPOJob,
    GRPOJobSpec,
    GRPOJobStatus,
    LossAggregation,
    Progress,
    parse_manifest,
    resolve_algorithm,
)

DEFAULTS = {
    "model.path": "Qwen/Qwen2.5-7B",
    "model.tokenizerPath": None,
    "model.dtype": "bfloat16",
    "model.gradientCheckpointing": True,
    "model.trustRemoteCode": False,
    "dataset.path": "data.jsonl",
    "evaluation.datasets": {},
    "evaluation.interval": 100,
    "algorithm.name": "GRPO",
    "algorithm.learningRate": 1e-6,
    "algorithm.klCoefficient": None,
    "algorithm.clipLow": None,
    "algorithm.clipHigh": None,
    "algorithm.importanceSamplingCap": 2.0,
    "numEpisodes": 1,
    "maxSteps": None,
    "seed": 42,
    "reward.type": "think_answer_tags",
    "reward.custom": None,
    "reward.systemPrompt": None,
    "sampling.numGenerations": 8,
    "sampling.temperature": 1.0,
    "sampling.topK": None,
    "sampling.topP": 1.0,
    "sampling.maxNewTokens": 3584,
    "sampling.maxPromptTokens": 512,
    "batch.inferenceBatchSize": 64,
    "batch.inferenceMicrobatchSize": 8,
    "batch.trainBatchSize": 32,
    "batch.trainMinibatchSize": 8,
    "batch.trainMicrobatchSize": 2,
    "buffer.maxPrompts": -1,
    "buffer.maxStaleness": 4,
    "producers.replicas": 2,
    "producers.minAvailable": 1,
    "producers.backend": "transformers",
    "producers.tensorParallelSize": 1,
    "producers.accelerator": "nvidia.com/gpu",
    "consumers.replicas": 1,
    "consumers.processesPerReplica": 2,
    "consumers.tensorParallelSize": 1,
    "consumers.pipelineParallelSize": 1,
    "consumers.zeroStage": 0,
    "consumers.accelerator": "nvidia.com/gpu",
    "checkpoint.interval": 100,
    "checkpoint.keepLast": 3,
    "checkpoint.resumeFrom": None,
    "rollouts.logInterval": 20,
    "rollouts.tokens": False,
    "storage": None,
    "tracking.tensorboard": True,
    "tracking.wandb": None,
    "tracking.mlflow": None,
    "tracking.trackio": None,
    "suspend": False,
    "backoffLimit": 3,
    "activeDeadlineSeconds": None,
    "startupDeadlineSeconds": 1800,
    "firstStepTimeoutSeconds": 7200,
    "stallTimeoutSeconds": 3600,
    "workerTimeoutSeconds": 1800,
    "ttlSecondsAfterFinished": None,
    "queueName": None,
    "priorityClassName": None,
    "imagePullSecrets": [],
    "env": [],
    "envFrom": [],
    "serviceAccountName": None,
}


def manifest(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "GRPOJob",
        "metadata": {"name": "a"},
        "spec": spec,
    }


def spec_of(**spec: Any) -> GRPOJobSpec:
    return parse_manifest(manifest(**spec)).spec


def records_under(model: type[BaseModel]) -> set[type[BaseModel]]:
    """A record and all records in its fields."""
    found = {model}
    for field in model.model_fields.values():
        pending = [field.annotation]
        while pending:
            kind = pending.pop()
            pending += getattr(kind, "__args__", ())
            if isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in found:
                found |= records_under(kind)
    return found


@pytest.mark.parametrize(("path", "value"), DEFAULTS.items(), ids=DEFAULTS)
def test_a_field_has_its_documented_default(path, value):
    node: Any = GRPOJobSpec().model_dump(mode="json", by_alias=True)
    for name in path.split("."):
        node = node[name]
    assert node == value


@pytest.mark.parametrize(
    "record",
    sorted(records_under(GRPOJob) | records_under(GRPOJobStatus), key=lambda r: r.__name__),
    ids=lambda record: record.__name__,
)
def test_every_record_is_frozen_strict_about_names_and_camel_case_outside(record):
    assert record.model_config["frozen"] is True
    assert record.model_config["extra"] == "forbid"
    assert record.model_config["allow_inf_nan"] is False
    for name, field in record.model_fields.items():
        head, *tail = name.split("_")
        assert field.alias == head + "".join(part.capitalize() for part in tail)


def test_a_job_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        GRPOJob().spec.seed = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        (
            {"name": "GRPO"},
            {
                "kl_coefficient": 0.01,
                "clip_low": 0.2,
                "clip_high": 0.2,
                "loss_aggregation": LossAggregation.SAMPLE,
                "dynamic_sampling": False,
                "overlong": False,
                "mask_truncated": False,
            },
        ),
        (
            {"name": "DAPO"},
            {
                "kl_coefficient": 0.0,
                "clip_low": 0.2,
                "clip_high": 0.28,
                "loss_aggregation": LossAggregation.TOKEN,
                "dynamic_sampling": True,
                "min_accuracy": 0.0,
                "max_accuracy": 1.0,
                "overlong": True,
                "overlong_buffer_tokens": 896,
                "mask_truncated": True,
            },
        ),
    ],
    ids=["GRPO", "DAPO"],
)
def test_defaults_of_the_algorithm_are_filled_in(algorithm, expected):
    resolved = resolve_algorithm(spec_of(algorithm=algorithm))
    assert {name: getattr(resolved, name) for name in expected} == expected


def test_a_field_that_is_set_replaces_the_presets():
    resolved = resolve_algorithm(
        spec_of(
            algorithm={
                "name": "DAPO",
                "klCoefficient": 0.5,
                "clipHigh": 0.3,
                "lossAggregation": "sample",
                "dynamicSampling": {"enabled": False},
                "overlong": {"enabled": False, "bufferTokens": 7, "maskTruncated": False},
            }
        )
    )
    assert (resolved.kl_coefficient, resolved.clip_high) == (0.5, 0.3)
    assert resolved.loss_aggregation is LossAggregation.SAMPLE
    assert (resolved.dynamic_sampling, resolved.overlong, resolved.mask_truncated) == (
        False,
        False,
        False,
    )
    assert resolved.overlong_buffer_tokens == 7


def test_a_coefficient_of_zero_is_not_an_absent_one():
    assert resolve_algorithm(spec_of(algorithm={"klCoefficient": 0})).kl_coefficient == 0


@pytest.mark.parametrize(("limit", "tokens"), [(8192, 1024), (4096, 1024), (400, 100), (3, 1)])
def test_the_penalty_for_long_completions_begins_a_quarter_or_1024_tokens_before_the_limit(
    limit, tokens
):
    spec = spec_of(algorithm={"name": "DAPO"}, sampling={"maxNewTokens": limit})
    assert resolve_algorithm(spec).overlong_buffer_tokens == tokens


def test_sizes_follow_from_the_parallel_layout():
    spec = spec_of(
        consumers={"replicas": 2, "processesPerReplica": 8, "tensorParallelSize": 4},
        batch={"trainBatchSize": 16, "trainMinibatchSize": 4},
    )
    assert (spec.consumer_processes, spec.data_parallel_size) == (16, 4)
    assert (spec.groups_per_step, spec.buffer_capacity) == (64, 32)
    assert spec_of(buffer={"maxPrompts": 5}).buffer_capacity == 5


def test_a_manifest_contains_only_fields_that_differ_from_the_defaults():
    job = parse_manifest(manifest(seed=42, sampling={"numGenerations": 8, "topP": 0.5}))
    assert job.to_manifest() == manifest(sampling={"topP": 0.5})


def test_progress_is_the_same_after_json():
    progress = Progress(state="running", message="a\u2028b", attempt=1)
    assert Progress.model_validate_json(progress.model_dump_json(by_alias=True)) == progress


def undocumented(record: type[BaseModel], path: str) -> list[str]:
    """Fields without a word, below a record; a section speaks by its own fields."""
    found = []
    for name, field in record.model_fields.items():
        here = f"{path}.{field.alias or name}"
        kinds = [field.annotation, *getattr(field.annotation, "__args__", ())]
        inner = [k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)]
        section = field.annotation in inner
        if field.description is None and not section:
            found.append(here)
        for kind in inner:
            found += undocumented(kind, here)
    return found


def test_every_field_of_a_spec_has_a_description():
    assert undocumented(GRPOJobSpec, "spec") == []
