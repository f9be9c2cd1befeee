"""Every rule of the spec, broken: the fault names the field, its value and what would be legal; all
faults of a manifest come at once; each rule's edge is legal."""

import copy
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


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        (
            {"consumers": {"replicas": 3, "processesPerReplica": 1, "tensorParallelSize": 2}},
            "spec.consumers.processesPerReplica: 1 is not legal: replicas x processesPerReplica "
            "(3) must be a multiple of tensorParallelSize x pipelineParallelSize (2)",
        ),
        (
            {"producers": {"autoscale": {"minReplicas": 3, "maxReplicas": 2}}},
            "spec.producers.autoscale.minReplicas: 3 is not legal: at most maxReplicas (2)",
        ),
        (
            {"producers": {"autoscale": {"minReplicas": 3, "maxReplicas": 4}}},
            "spec.producers.replicas: 2 is not legal: within autoscale's range (3 to 4)",
        ),
        (
            {"producers": {"replicas": 5, "autoscale": {"maxReplicas": 4}}},
            "spec.producers.replicas: 5 is not legal: within autoscale's range (1 to 4)",
        ),
        (
            {"producers": {"minAvailable": 2, "autoscale": {"maxReplicas": 4}}},
            "spec.producers.minAvailable: 2 is not legal: at most autoscale.minReplicas (1)",
        ),
        (
            {"producers": {"autoscale": {"maxReplicas": 4}}, "queueName": "gpus"},
            "spec.queueName: 'gpus' is not legal: absent with producers.autoscale: Kueue reserves "
            "quota for a fixed number of pods",
        ),
        (
            {"consumers": {"pipelineParallelSize": 2, "zeroStage": 2}},
            "spec.consumers.zeroStage: 2 is not legal: 0 or 1 with pipelineParallelSize > 1",
        ),
        (
            {
                "model": {"dtype": "float32"},
                "consumers": {"tensorParallelSize": 2, "zeroStage": 1},
            },
            "spec.consumers.zeroStage: 1 is not legal: 0 with float32 and tensor or pipeline "
            "parallelism, or set model.dtype: bfloat16",
        ),
        (
            {"batch": {"trainBatchSize": 30}},
            "spec.batch.trainBatchSize: 30 is not legal: a multiple of trainMinibatchSize (8)",
        ),
        (
            {"batch": {"trainBatchSize": 4}},
            "spec.batch.trainBatchSize: 4 is not legal: a multiple of trainMinibatchSize (8)",
        ),
        (
            {"batch": {"inferenceBatchSize": 12}},
            "spec.batch.inferenceBatchSize: 12 is not legal: a multiple of "
            "inferenceMicrobatchSize (8)",
        ),
        (
            {"batch": {"trainMicrobatchSize": 65}},
            "spec.batch.trainMicrobatchSize: 65 is not legal: at most trainMinibatchSize x "
            "numGenerations (64) samples",
        ),
        (
            {"algorithm": {"dynamicSampling": {"minAccuracy": 0.5, "maxAccuracy": 0.5}}},
            "spec.algorithm.dynamicSampling.minAccuracy: 0.5 is not legal: less than "
            "maxAccuracy (0.5)",
        ),
        (
            {"algorithm": {"overlong": {"bufferTokens": 17}}, "sampling": {"maxNewTokens": 16}},
            "spec.algorithm.overlong.bufferTokens: 17 is not legal: at most "
            "sampling.maxNewTokens (16)",
        ),
        (
            {"reward": {"type": "custom"}},
            "spec.reward.custom: None is not legal: type custom needs {module, function}",
        ),
        (
            {"reward": {"type": "boxed", "custom": {"module": "m"}}},
            "spec.reward.type: 'boxed' is not legal: custom, when reward.custom is given",
        ),
        (
            {"producers": {"replicas": 2, "minAvailable": 3}},
            "spec.producers.minAvailable: 3 is not legal: at most replicas (2)",
        ),
        (
            {"producers": {"tensorParallelSize": 2}},
            "spec.producers.tensorParallelSize: 2 is not legal: 1, or set backend: vllm",
        ),
        ({"storage": {}}, "exactly one of claimName and size"),
        (
            {"storage": {"claimName": "c", "size": "1Gi"}},
            "spec.storage: {'claimName': 'c', 'size': '1Gi'} is not legal: exactly one of "
            "claimName and size",
        ),
        (
            {"env": [{"name": "A"}, {"name": "B"}, {"name": "A"}]},
            "spec.env: 'A' is not legal: each name once",
        ),
    ],
)
def test_a_broken_rule_names_field_value_and_what_is_legal(spec, fault):
    (told,) = faults_of(manifest(**spec))
    assert fault in told


@pytest.mark.parametrize(
    "spec",
    [
        {"consumers": {"replicas": 2, "processesPerReplica": 1, "tensorParallelSize": 2}},
        {"consumers": {"pipelineParallelSize": 2, "zeroStage": 1}},
        {"model": {"dtype": "float32"}, "consumers": {"zeroStage": 2}},
        {"batch": {"trainBatchSize": 8}},
        {"batch": {"trainMicrobatchSize": 64}},
        {"algorithm": {"overlong": {"bufferTokens": 16}}, "sampling": {"maxNewTokens": 16}},
        {"reward": {"type": "custom", "custom": {"module": "m"}}},
        {"producers": {"replicas": 2, "minAvailable": 2}},
        {"producers": {"tensorParallelSize": 2, "backend": "vllm"}},
        {"storage": {"claimName": "c"}},
        {"storage": {"size": "500Gi"}},
    ],
)
def test_the_edge_of_a_rule_is_legal(spec):
    parse_manifest(manifest(**spec))


@pytest.mark.parametrize(
    ("path", "value", "legal"),
    [
        ("model.path", "", "at least 1 character"),
        ("model.dtype", "float16", "'float32' or 'bfloat16'"),
        ("evaluation.interval", -1, "greater than or equal to 0"),
        ("algorithm.name", "PPO", "'GRPO' or 'DAPO'"),
        ("algorithm.learningRate", 0, "greater than 0"),
        ("algorithm.learningRate", float("inf"), "finite"),
        ("algorithm.klCoefficient", -0.1, "greater than or equal to 0"),
        ("algorithm.clipLow", 1.0, "less than 1"),
        ("algorithm.importanceSamplingCap", 0.5, "greater than or equal to 1"),
        ("numEpisodes", 0, "greater than or equal to 1"),
        ("maxSteps", 0, "greater than or equal to 1"),
        ("reward.type", "exact", "'boxed'"),
        ("sampling.numGenerations", 1, "greater than or equal to 2"),
        ("sampling.temperature", 0, "greater than 0"),
        ("sampling.topK", 0, "greater than or equal to 1"),
        ("sampling.topP", 1.5, "less than or equal to 1"),
        ("buffer.maxPrompts", -2, "greater than or equal to -1"),
        ("buffer.maxStaleness", -1, "greater than or equal to 0"),
        ("producers.replicas", 0, "greater than or equal to 1"),
        ("producers.backend", "sglang", "'transformers' or 'vllm'"),
        ("consumers.zeroStage", 3, "less than or equal to 2"),
        ("checkpoint.keepLast", 0, "greater than or equal to 1"),
        ("storage.size", "big", "pattern"),
        ("storage.retention", "Recycle", "'Retain' or 'Delete'"),
        ("suspend", "perhaps", "boolean"),
        ("backoffLimit", -1, "greater than or equal to 0"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_range(path, value, legal):
    spec: dict[str, Any] = {}
    node = spec
    *parents, last = path.split(".")
    for name in parents:
        node = node.setdefault(name, {})
    node[last] = value
    told = [fault for fault in faults_of(manifest(**spec)) if fault.startswith(f"spec.{path}: ")]
    assert len(told) == 1
    assert f"{value!r} is not legal" in told[0]
    assert legal in told[0]


def test_a_volume_for_a_single_pod_is_refused_since_a_job_has_several():
    (told,) = faults_of(manifest(storage={"size": "1Gi", "accessModes": ["ReadWriteOncePod"]}))
    assert told == (
        "spec.storage.accessModes[0]: 'ReadWriteOncePod' is not legal: should be 'ReadWriteOnce' "
        "or 'ReadWriteMany'"
    )


def test_a_volume_without_an_access_mode_is_refused():
    (told,) = faults_of(manifest(storage={"size": "1Gi", "accessModes": []}))
    assert told == "spec.storage.accessModes: [] is not legal: should name at least one"


def test_faults_of_fields_and_across_fields_come_in_one_go():
    told = faults_of(
        manifest(
            sampling={"numGenerations": 1, "temprature": 1},
            algorithm={"name": "PPO", "learningRate": -1},
            batch={"trainBatchSize": 30},
            producers={"minAvailable": 3},
        )
    )
    assert {fault.split(":")[0] for fault in told} == {
        "spec.sampling.numGenerations",
        "spec.sampling.temprature",
        "spec.algorithm.name",
        "spec.algorithm.learningRate",
        "spec.batch.trainBatchSize",
        "spec.producers.minAvailable",
    }
    assert len(told) == 6


def test_an_unknown_field_is_refused_with_those_that_are_known_there():
    (told,) = faults_of(manifest(buffer={"maxPrompt": 4}))
    assert told == (
        "spec.buffer.maxPrompt: 4 is not legal: unknown field; known here: maxPrompts, maxStaleness"
    )


@pytest.mark.parametrize("data", [None, [], "text", 1])
def test_what_is_no_mapping_is_no_manifest(data):
    (told,) = faults_of(data)
    assert "a mapping with apiVersion, kind, metadata, spec" in told


@pytest.mark.parametrize("missing", ["apiVersion", "kind", "metadata"])
def test_a_manifest_must_say_what_it_is(missing):
    data = manifest()
    del data[missing]
    assert faults_of(data)[0] == f"{missing}: None is not legal: required in a manifest"


def test_a_manifest_must_have_a_name():
    told = faults_of({**manifest(), "metadata": {}})
    assert told == ["metadata.name: None is not legal: required in a manifest"]


@pytest.mark.parametrize("name", ["a", "a1", "qwen25-7b", "a" * 44])
def test_a_name_that_fits_a_ray_cluster_is_legal(name):
    assert parse_manifest({**manifest(), "metadata": {"name": name}}).metadata.name == name


@pytest.mark.parametrize(
    "name", ["", "a" * 45, "1a", "-a", "a-", "A", "a.b", "a_b", "a\n", "axgbwrqlmz9-" * 4]
)
def test_a_name_that_does_not_fit_is_refused(name):
    told = faults_of({**manifest(), "metadata": {"name": name}})
    assert all(fault.startswith(f"metadata.name: {name!r} is not legal") for fault in told)


def test_a_name_that_is_too_long_is_told_the_limit():
    (told,) = faults_of({**manifest(), "metadata": {"name": "a" * 45}})
    assert "44 characters" in told


def test_what_an_api_server_adds_is_no_fault():
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
def test_whatever_data_comes_it_is_a_job_or_a_list_of_faults(data):
    try:
        parse_manifest(data)
    except InvalidManifestError as error:
        assert error.faults
        assert str(error)
