"""A valid job, whichever fields it sets, is the same job after it is written and read."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_trainer.spec import (
    API_VERSION,
    Advantage,
    AlgorithmName,
    ImportanceRatio,
    InvalidManifestError,
    KlForm,
    LossAggregation,
    LossForm,
    parse_manifest,
)


def manifest(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "GRPOJob",
        "metadata": {"name": "a"},
        "spec": spec,
    }


# Each field is absent or drawn from its valid range; related fields are drawn together.
text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
counts = st.integers(1, 64)
fractions = st.floats(0.01, 0.99)
seconds = st.integers(1, 10**6)
names = st.from_regex(r"[a-z]([-a-z0-9]{0,6}[a-z0-9])?", fullmatch=True)
images = st.builds("{}:{}".format, names, counts)
labels = st.dictionaries(names.map("example.com/{}".format) | names, names, max_size=2)


def section(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


@st.composite
def batches(draw: st.DrawFn) -> dict[str, Any]:
    minibatch, microbatch = draw(counts), draw(counts)
    return {
        "trainMinibatchSize": minibatch,
        "trainBatchSize": minibatch * draw(counts),
        "inferenceMicrobatchSize": microbatch,
        "inferenceBatchSize": microbatch * draw(counts),
        "trainMicrobatchSize": draw(st.integers(1, minibatch * 2)),
    }


@st.composite
def producers(draw: st.DrawFn) -> dict[str, Any]:
    replicas = draw(counts)
    return {
        **draw(pools()),
        "replicas": replicas,
        "minAvailable": draw(st.integers(1, replicas)),
        "backend": "vllm",
        "tensorParallelSize": draw(counts),
    }


@st.composite
def consumers(draw: st.DrawFn) -> dict[str, Any]:
    tensor, pipeline = draw(counts), draw(st.integers(1, 2))
    return {
        **draw(pools()),
        "replicas": draw(counts),
        "processesPerReplica": tensor * pipeline * draw(counts),
        "tensorParallelSize": tensor,
        "pipelineParallelSize": pipeline,
        "zeroStage": draw(st.integers(0, 1)),
        "accelerator": draw(st.sampled_from(["cpu", "nvidia.com/gpu"])),
    }


def pools() -> st.SearchStrategy[dict[str, Any]]:
    quantities = st.sampled_from(["500m", "2", "64Gi", "1.5", "1e3"]) | st.integers(1, 9)
    operators = st.fixed_dictionaries({"operator": st.just("Exists")}, optional={"key": names})
    keys = st.fixed_dictionaries({"key": names}, optional={"value": names})
    effects = section(effect=st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"]))
    evictions = st.builds(lambda s: {"effect": "NoExecute", "tolerationSeconds": s}, seconds)
    tolerations = st.builds(lambda a, b: {**a, **b}, operators | keys, effects | evictions)
    resources = st.sampled_from(["cpu", "memory", "ephemeral-storage"])
    return section(
        image=images,
        resources=section(
            requests=st.dictionaries(resources, st.sampled_from(["1m", "0.1"]), max_size=2),
            limits=st.dictionaries(resources, quantities, max_size=2),
        ),
        nodeSelector=labels,
        tolerations=st.lists(tolerations, max_size=2),
        podTemplate=st.just({"spec": {"containers": [{"name": "worker", "env": [1, None]}]}}),
    )


def parts() -> st.SearchStrategy[list[dict[str, Any]]]:
    optional = {"weight": st.floats(-9, 9), "timeoutSeconds": st.floats(0.1, 99)}
    name = st.from_regex(r"[a-z][a-z_-]{0,5}", fullmatch=True)
    built_in = st.fixed_dictionaries(
        {"name": name, "type": st.sampled_from(["boxed", "code"])}, optional=optional
    )
    custom = st.fixed_dictionaries(
        {
            "name": name,
            "type": st.just("custom"),
            "custom": st.fixed_dictionaries({"module": text}, optional={"batch": st.booleans()}),
        },
        optional=optional,
    )
    several = st.lists(built_in | custom, min_size=1, max_size=3, unique_by=lambda p: p["name"])
    return several.map(lambda given: [{**given[0], "weight": 1.0}, *given[1:]])


def specs() -> st.SearchStrategy[dict[str, Any]]:
    variable = st.fixed_dictionaries(
        {"name": st.from_regex(r"[A-Z_][A-Z0-9_]{0,5}", fullmatch=True)},
        optional={
            "value": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
            "valueFrom": st.just({"secretKeyRef": {"name": "s", "key": "k"}}),
        },
    )
    variables = st.lists(variable, max_size=2, unique_by=lambda v: v["name"]).map(
        lambda many: [v for v in many if not {"value", "valueFrom"} <= set(v)]
    )
    return section(
        model=section(
            path=text,
            tokenizerPath=text,
            dtype=st.just("bfloat16"),
            gradientCheckpointing=st.booleans(),
            trustRemoteCode=st.booleans(),
        ),
        dataset=section(path=text, promptColumn=text, answerColumn=text, testsColumn=text),
        evaluation=section(
            datasets=st.dictionaries(text, text, max_size=2),
            interval=st.integers(0, 9),
            temperature=st.floats(0, 2),
        ),
        algorithm=section(
            name=st.sampled_from(AlgorithmName),
            advantage=st.sampled_from(Advantage),
            importanceRatio=st.sampled_from(ImportanceRatio),
            lossForm=st.sampled_from(LossForm),
            klForm=st.sampled_from(KlForm),
            learningRate=st.floats(1e-9, 1),
            klCoefficient=st.floats(0, 1),
            clipLow=fractions,
            clipHigh=fractions,
            lossAggregation=st.sampled_from(LossAggregation),
            dynamicSampling=section(
                enabled=st.booleans(), minAccuracy=st.floats(0, 0.4), maxAttempts=counts
            ),
            overlong=section(enabled=st.booleans(), maskTruncated=st.booleans()),
            importanceSamplingCap=st.floats(1, 10),
        ),
        numEpisodes=counts,
        maxSteps=counts,
        seed=st.integers(0, 2**31 - 1),
        reward=st.one_of(
            section(
                type=st.sampled_from(["think_answer_tags", "boxed", "code"]),
                systemPrompt=st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
                timeoutSeconds=st.floats(0.1, 99),
            ),
            st.fixed_dictionaries(
                {"type": st.just("custom"), "custom": st.fixed_dictionaries({"module": text})}
            ),
            section(parts=parts()),
        ),
        sampling=section(
            numGenerations=st.integers(2, 64),
            temperature=st.floats(0.1, 2),
            topK=counts,
            topP=fractions,
            maxNewTokens=counts,
            maxPromptTokens=counts,
            stopStrings=st.lists(text, max_size=2),
        ),
        batch=batches(),
        buffer=section(maxPrompts=st.integers(-1, 9), maxStaleness=st.integers(0, 9)),
        producers=producers(),
        consumers=consumers(),
        head=pools(),
        checkpoint=section(interval=st.integers(0, 9), keepLast=counts, resumeFrom=text),
        rollouts=section(logInterval=st.integers(0, 9), tokens=st.booleans()),
        storage=st.one_of(
            st.fixed_dictionaries({"claimName": names}),
            st.fixed_dictionaries(
                {"size": st.just("1Ti")},
                optional={
                    "storageClassName": names | st.just(""),
                    "accessModes": st.just(["ReadWriteMany"]),
                    "retention": st.sampled_from(["Retain", "Delete"]),
                },
            ),
        ),
        tracking=section(
            project=text,
            tensorboard=st.booleans(),
            wandb=section(entity=text, secretName=names),
            mlflow=section(trackingUri=text),
            trackio=section(spaceId=text),
            profiling=st.booleans(),
        ),
        suspend=st.booleans(),
        backoffLimit=st.integers(0, 9),
        activeDeadlineSeconds=seconds,
        startupDeadlineSeconds=seconds,
        stallTimeoutSeconds=seconds,
        ttlSecondsAfterFinished=seconds,
        queueName=names,
        priorityClassName=names,
        imagePullSecrets=st.lists(st.fixed_dictionaries({"name": names}), max_size=2),
        env=variables,
        envFrom=st.lists(
            st.fixed_dictionaries(
                {"secretRef": st.just({"name": "s"})}, optional={"prefix": names}
            ),
            max_size=2,
        ),
        serviceAccountName=names,
    )


@settings(deadline=None)
@given(specs())
def test_a_valid_job_is_the_same_after_its_manifest_its_yaml_and_its_json(spec):
    job = parse_manifest(manifest(**spec))
    data = job.to_manifest()
    assert parse_manifest(data) == job
    assert parse_manifest(json.loads(json.dumps(data))) == job
    assert parse_manifest(yaml.safe_load(yaml.safe_dump(data))) == job


@settings(deadline=None)
@given(specs(), st.sampled_from(["temprature", "num_generation", "spec", ""]))
def test_no_spec_with_an_unknown_field_is_accepted(spec, unknown):
    with pytest.raises(InvalidManifestError):
        parse_manifest(manifest(**spec, **{unknown: 1}))


def test_both_versions_of_the_api_are_the_same_job():
    body = {"kind": "GRPOJob", "metadata": {"name": "math"}, "spec": {"seed": 3}}
    old, new = (
        parse_manifest({"apiVersion": f"grpo-operator.io/{version}", **body})
        for version in ("v1alpha1", "v1beta1")
    )
    assert old.spec == new.spec
    assert new.to_manifest()["apiVersion"] == "grpo-operator.io/v1beta1"
