"""Every rule of the spec, broken: the fault names the field, its value and what is valid; all
faults of a manifest are reported at once; each rule's edge is valid."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_trainer.spec import API_VERSION, InvalidManifestError, parse_manifest

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


def manifest(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "GRPOJob",
        "metadata": {"name": "a"},
        "spec": spec,
    }


def faults_of(data: Any) -> list[str]:
    with pytest.raises(InvalidManifestError) as caught:
        parse_manifest(data)
    assert str(caught.value).splitlines() == [str(fault) for fault in caught.value.faults]
    return [str(fault) for fault in caught.value.faults]


RULES = [
    (
        {"consumers": {"replicas": 3, "processesPerReplica": 1, "tensorParallelSize": 2}},
        "consumers.processesPerReplica: Invalid value: 1: replicas x processesPerReplica (3) must "
        "be a multiple of tensorParallelSize x pipelineParallelSize (2)",
    ),
    (
        {"producers": {"autoscale": {"minReplicas": 3, "maxReplicas": 2}}},
        "producers.autoscale.minReplicas: Invalid value: 3: must be at most maxReplicas (2)",
    ),
    (
        {"producers": {"autoscale": {"minReplicas": 3, "maxReplicas": 4}}},
        "producers.replicas: Invalid value: 2: must be within autoscale's range (3 to 4)",
    ),
    (
        {"producers": {"replicas": 5, "autoscale": {"maxReplicas": 4}}},
        "producers.replicas: Invalid value: 5: must be within autoscale's range (1 to 4)",
    ),
    (
        {"producers": {"minAvailable": 2, "autoscale": {"maxReplicas": 4}}},
        "producers.minAvailable: Invalid value: 2: must be at most autoscale.minReplicas (1)",
    ),
    (
        {"producers": {"autoscale": {"maxReplicas": 4}}, "queueName": "gpus"},
        "queueName: Forbidden: with producers.autoscale: Kueue reserves quota for a fixed number "
        "of pods",
    ),
    (
        {"consumers": {"pipelineParallelSize": 2, "zeroStage": 2}},
        "consumers.zeroStage: Invalid value: 2: must be 0 or 1 with pipelineParallelSize > 1: a "
        "pipeline accumulates into gradients that stage 2 frees",
    ),
    (
        {"model": {"dtype": "float32"}, "consumers": {"tensorParallelSize": 2, "zeroStage": 1}},
        "consumers.zeroStage: Invalid value: 1: must be 0 with float32 and tensor or pipeline "
        "parallelism, or set model.dtype: bfloat16",
    ),
    (
        {"consumers": {"backend": "fsdp", "zeroStage": 2}},
        "consumers.zeroStage: Invalid value: 2: must be 0 with backend fsdp, which shards "
        "parameters, gradients and optimizer state over all processes",
    ),
    (
        {"consumers": {"backend": "fsdp", "pipelineParallelSize": 2}},
        "consumers.pipelineParallelSize: Invalid value: 2: must be 1 with backend fsdp; use "
        "tensorParallelSize, or backend: colossalai",
    ),
    (
        {"batch": {"trainBatchSize": 30}},
        "batch.trainBatchSize: Invalid value: 30: must be a multiple of trainMinibatchSize (8)",
    ),
    (
        {"batch": {"trainBatchSize": 4}},
        "batch.trainBatchSize: Invalid value: 4: must be a multiple of trainMinibatchSize (8)",
    ),
    (
        {"batch": {"inferenceBatchSize": 12}},
        "batch.inferenceBatchSize: Invalid value: 12: must be a multiple of "
        "inferenceMicrobatchSize (8)",
    ),
    (
        {"batch": {"trainMicrobatchSize": 65}},
        "batch.trainMicrobatchSize: Invalid value: 65: must be at most trainMinibatchSize x "
        "numGenerations (64) samples",
    ),
    (
        {"batch": {"trainMicrobatchTokens": 4095}},
        "batch.trainMicrobatchTokens: Invalid value: 4095: must be at least maxPromptTokens + "
        "maxNewTokens, or environment.maxEpisodeTokens, (4096), the longest sample",
    ),
    (
        {"algorithm": {"dynamicSampling": {"minAccuracy": 0.5, "maxAccuracy": 0.5}}},
        "algorithm.dynamicSampling.minAccuracy: Invalid value: 0.5: must be less than "
        "maxAccuracy (0.5)",
    ),
    (
        {"algorithm": {"learningRate": 0.5, "optimizer": {"minLearningRate": 0.75}}},
        "algorithm.optimizer.minLearningRate: Invalid value: 0.75: must be at most "
        "algorithm.learningRate (0.5)",
    ),
    (
        {"maxSteps": 5, "algorithm": {"optimizer": {"warmupSteps": 5}}},
        "algorithm.optimizer.warmupSteps: Invalid value: 5: must be less than maxSteps (5)",
    ),
    (
        {"algorithm": {"overlong": {"bufferTokens": 17}}, "sampling": {"maxNewTokens": 16}},
        "algorithm.overlong.bufferTokens: Invalid value: 17: must be at most "
        "sampling.maxNewTokens (16)",
    ),
    (
        {"reward": {"type": "custom"}},
        "reward.custom: Required value: type custom needs {module, function}",
    ),
    (
        {"reward": {"type": "boxed", "custom": {"module": "m"}}},
        "reward.custom: Forbidden: only with type custom",
    ),
    (
        {"reward": {"type": "boxed", "parts": [{"name": "a", "type": "boxed"}]}},
        "reward.type: Forbidden: with parts, which replace it",
    ),
    (
        {"evaluation": {"datasets": {"a": "a"}, "sets": [{"name": "a", "path": "b"}]}},
        'evaluation.sets: Invalid value: [{"path": "b", "promptColumn": "messages", '
        '"answerColumn": "gt_answer", "testsColumn": "test_cases", "name": "a"}]: must have a '
        "different name for each set, datasets included",
    ),
    (
        {"evaluation": {"reward": {"type": "custom"}}},
        "evaluation.reward.custom: Required value: type custom needs {module, function}",
    ),
    (
        {"dataset": {"path": "a.jsonl"}, "datasets": [{"path": "b.jsonl"}]},
        "dataset: Forbidden: with datasets, which replace it",
    ),
    (
        {"datasets": [{"path": "a.jsonl", "weight": 0}]},
        "datasets[0].weight: Invalid value: 0: must be greater than 0",
    ),
    (
        {"reward": {"type": "judge"}},
        "reward.judge: Required value: type judge needs {url, model, prompt, pattern}",
    ),
    (
        {"reward": {"http": {"url": "http://a"}}},
        "reward.http: Forbidden: only with type http",
    ),
    (
        {"reward": {"type": "http", "http": {"url": "a:5000"}}},
        'reward.http.url: Invalid value: "a:5000": must be an http or https URL; the pattern is '
        r"'^https?://[^/\s?#]+(/[^\s?#]*)?$'",
    ),
    (
        {"reward": {"parts": [{"name": "a", "type": "custom"}]}},
        'reward.parts: Invalid value: [{"name": "a", "type": "custom", "weight": 1.0}]: must have '
        "custom: {module, function} in the parts of type custom and in no other",
    ),
    (
        {"reward": {"parts": [{"name": "a", "type": "boxed"}, {"name": "a", "type": "code"}]}},
        'reward.parts: Invalid value: [{"name": "a", "type": "boxed", "weight": 1.0}, '
        '{"name": "a", "type": "code", "weight": 1.0}]: must have a different name for each part',
    ),
    (
        {"reward": {"parts": [{"name": "a", "type": "boxed", "weight": 0}]}},
        'reward.parts: Invalid value: [{"name": "a", "type": "boxed", "weight": 0.0}]: must have '
        "a part with a weight greater than 0",
    ),
    (
        {"reward": {"type": "environment"}, "environment": {}},
        "environment: Required value: must have url or module",
    ),
    (
        {
            "reward": {"type": "environment"},
            "environment": {"url": "http://a:8000", "module": "env.py:A"},
        },
        "environment.module: Forbidden: only without url",
    ),
    (
        {
            "reward": {"type": "environment"},
            "environment": {"url": "http://a:8000", "pods": {"replicas": 2}},
        },
        "environment.pods: Forbidden: only with module",
    ),
    (
        {
            "reward": {"type": "environment"},
            "environment": {"module": "env.py:A", "maxEpisodeTokens": 3000},
        },
        "environment.maxEpisodeTokens: Invalid value: 3000: must be at least sampling.maxNewTokens "
        "(3584), the length of one turn",
    ),
    (
        {"environment": {"module": "env.py:A"}},
        'reward.type: Invalid value: "think_answer_tags": must be environment with '
        "spec.environment, which scores its episodes",
    ),
    (
        {"reward": {"type": "environment"}},
        "environment: Required value: reward.type environment needs an environment with url or "
        "module",
    ),
    (
        {"producers": {"replicas": 2, "minAvailable": 3}},
        "producers.minAvailable: Invalid value: 3: must be at most replicas (2)",
    ),
    (
        {"producers": {"tensorParallelSize": 2}},
        "producers.tensorParallelSize: Invalid value: 2: must be 1, or set backend: vllm",
    ),
    (
        {"producers": {"weightUpdate": "inFlight"}},
        'producers.weightUpdate: Invalid value: "inFlight": must be betweenRequests, or set '
        "backend: vllm",
    ),
    (
        {"storage": {}},
        'storage: Invalid value: {"accessModes": ["ReadWriteOnce"], "retention": "Retain"}: must '
        "have exactly one of claimName and size",
    ),
    (
        {"storage": {"claimName": "c", "size": "1Gi", "accessModes": ["ReadWriteOnce"]}},
        'storage: Invalid value: {"claimName": "c", "size": "1Gi", "accessModes": '
        '["ReadWriteOnce"], "retention": "Retain"}: must have exactly one of claimName and size',
    ),
    (
        {"env": [{"name": "A"}, {"name": "B"}, {"name": "A"}]},
        'env: Invalid value: "A": must be unique',
    ),
]


@pytest.mark.parametrize(("spec", "message"), RULES)
def test_a_broken_rule_names_the_field_its_value_and_what_is_valid(spec, message):
    assert faults_of(manifest(**spec)) == [f"spec.{message}"]


@pytest.mark.parametrize(
    "spec",
    [
        {"consumers": {"replicas": 2, "processesPerReplica": 1, "tensorParallelSize": 2}},
        {"consumers": {"pipelineParallelSize": 2, "zeroStage": 1}},
        {"model": {"dtype": "float32"}, "consumers": {"zeroStage": 2}},
        {"batch": {"trainBatchSize": 8}},
        {"batch": {"trainMicrobatchSize": 64}},
        {"batch": {"trainMicrobatchTokens": 4096}},
        {"algorithm": {"overlong": {"bufferTokens": 16}}, "sampling": {"maxNewTokens": 16}},
        {"reward": {"type": "custom", "custom": {"module": "m"}}},
        {"reward": {"parts": [{"name": "a", "type": "custom", "custom": {"module": "m"}}]}},
        {"reward": {"type": "http", "http": {"url": "http://a:5000/get_reward"}}},
        {"producers": {"replicas": 2, "minAvailable": 2}},
        {"producers": {"tensorParallelSize": 2, "backend": "vllm"}},
        {"storage": {"claimName": "c"}},
        {"storage": {"size": "500Gi"}},
    ],
)
def test_the_edge_of_a_rule_is_valid(spec):
    parse_manifest(manifest(**spec))


@pytest.mark.parametrize(
    ("path", "value", "must"),
    [
        ("model.path", "", "at least 1 character"),
        ("model.dtype", "float16", "float32, bfloat16"),
        ("evaluation.interval", -1, "greater than or equal to 0"),
        ("algorithm.name", "PPO", "GRPO, DAPO"),
        ("algorithm.learningRate", 0, "greater than 0"),
        ("algorithm.learningRate", float("inf"), "finite"),
        ("algorithm.klCoefficient", -0.1, "greater than or equal to 0"),
        ("algorithm.clipLow", 1.0, "less than 1"),
        ("algorithm.importanceSamplingCap", 0.5, "greater than or equal to 1"),
        ("numEpisodes", 0, "greater than or equal to 1"),
        ("maxSteps", 0, "greater than or equal to 1"),
        ("reward.type", "exact", "boxed"),
        ("sampling.numGenerations", 1, "greater than or equal to 2"),
        ("sampling.temperature", 0, "greater than 0"),
        ("sampling.topK", 0, "greater than or equal to 1"),
        ("sampling.topP", 1.5, "less than or equal to 1"),
        ("buffer.maxPrompts", -2, "greater than or equal to -1"),
        ("buffer.maxStaleness", -1, "greater than or equal to 0"),
        ("producers.replicas", 0, "greater than or equal to 1"),
        ("producers.backend", "sglang", "transformers, vllm"),
        ("consumers.zeroStage", 3, "less than or equal to 2"),
        ("checkpoint.keepLast", 0, "greater than or equal to 1"),
        ("storage.size", "big", "pattern"),
        ("storage.retention", "Recycle", "Retain, Delete"),
        ("suspend", "perhaps", "boolean"),
        ("backoffLimit", -1, "greater than or equal to 0"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_range(path, value, must):
    spec: dict[str, Any] = {}
    node = spec
    *parents, last = path.split(".")
    for name in parents:
        node = node.setdefault(name, {})
    node[last] = value
    faults = [f for f in faults_of(manifest(**spec)) if f.startswith(f"spec.{path}: ")]
    assert len(faults) == 1
    assert f": Invalid value: {json.dumps(value)}: must " in faults[0]
    assert must in faults[0]


def test_a_volume_for_a_single_pod_is_refused_since_a_job_has_several():
    (fault,) = faults_of(manifest(storage={"size": "1Gi", "accessModes": ["ReadWriteOncePod"]}))
    assert fault == (
        'spec.storage.accessModes[0]: Invalid value: "ReadWriteOncePod": must be one of '
        "ReadWriteOnce, ReadWriteMany"
    )


def test_a_volume_without_an_access_mode_is_refused():
    (fault,) = faults_of(manifest(storage={"size": "1Gi", "accessModes": []}))
    assert fault == "spec.storage.accessModes: Invalid value: []: must have at least 1 item"


def test_faults_of_fields_and_across_fields_are_reported_together():
    faults = faults_of(
        manifest(
            sampling={"numGenerations": 1, "temprature": 1},
            algorithm={"name": "PPO", "learningRate": -1},
            batch={"trainBatchSize": 30},
            producers={"minAvailable": 3},
        )
    )
    assert {fault.split(":")[0] for fault in faults} == {
        "spec.sampling.numGenerations",
        "spec.sampling.temprature",
        "spec.algorithm.name",
        "spec.algorithm.learningRate",
        "spec.batch.trainBatchSize",
        "spec.producers.minAvailable",
    }
    assert len(faults) == 6


def test_an_unknown_field_is_refused_with_those_that_are_known_there():
    (fault,) = faults_of(manifest(buffer={"maxPrompt": 4}))
    assert fault == (
        "spec.buffer.maxPrompt: Forbidden: unknown field; did you mean maxPrompts? "
        "Known fields: maxPrompts, maxStaleness"
    )


@pytest.mark.parametrize("data", [None, [], "text", 1])
def test_a_manifest_is_a_mapping(data):
    (fault,) = faults_of(data)
    assert "must be a mapping with apiVersion, kind, metadata, spec" in fault


@pytest.mark.parametrize("missing", ["apiVersion", "kind", "metadata"])
def test_a_manifest_needs_version_kind_and_metadata(missing):
    data = manifest()
    del data[missing]
    assert faults_of(data)[0] == f"{missing}: Required value"


def test_a_manifest_must_have_a_name():
    assert faults_of({**manifest(), "metadata": {}}) == ["metadata.name: Required value"]


@pytest.mark.parametrize("name", ["a", "a1", "qwen25-7b", "a" * 44])
def test_a_name_that_fits_a_ray_cluster_is_valid(name):
    assert parse_manifest({**manifest(), "metadata": {"name": name}}).metadata.name == name


@pytest.mark.parametrize(
    "name", ["", "a" * 45, "1a", "-a", "a-", "A", "a.b", "a_b", "a\n", "axgbwrqlmz9-" * 4]
)
def test_a_name_that_does_not_fit_is_refused(name):
    prefix = f"metadata.name: Invalid value: {json.dumps(name)}: must "
    faults = faults_of({**manifest(), "metadata": {"name": name}})
    assert all(fault.startswith(prefix) for fault in faults)


def test_a_name_that_is_too_long_is_refused_with_the_limit():
    (fault,) = faults_of({**manifest(), "metadata": {"name": "a" * 45}})
    assert "44 characters" in fault


def test_fields_that_an_api_server_adds_are_accepted():
    data = manifest(seed=7)
    data["metadata"] |= {"uid": "u", "resourceVersion": "1", "generation": 2, "managedFields": []}
    data["status"] = {"phase": "Running"}
    assert parse_manifest(data) == parse_manifest(manifest(seed=7))


def test_validation_leaves_the_data_as_it_was():
    data = manifest(sampling={"numGenerations": 1})
    before = copy.deepcopy(data)
    faults_of(data)
    assert data == before


@settings(deadline=None)
@given(JSON | st.builds(lambda spec: {**manifest(), "spec": spec}, JSON))
def test_any_data_is_a_job_or_a_list_of_faults(data):
    try:
        parse_manifest(data)
    except InvalidManifestError as error:
        assert error.faults
        assert str(error)
