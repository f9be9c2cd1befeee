"""Names, label keys, quantities and tolerations follow Kubernetes' own grammar."""

import copy
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_trainer.spec import API_VERSION, InvalidManifestError, parse_manifest
from grpo_trainer.spec.kubernetes import quantity_value


def parse(spec: dict[str, Any]) -> None:
    head = {"apiVersion": API_VERSION, "kind": "GRPOJob", "metadata": {"name": "a"}}
    parse_manifest({**head, "spec": copy.deepcopy(spec)})


def faults(spec: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidManifestError) as caught:
        parse(spec)
    return [str(fault) for fault in caught.value.faults]


def at(path: str, value: Any) -> dict[str, Any]:
    name, dot, rest = path.partition(".")
    return {name: at(rest, value) if dot else value}


OBJECTS = {
    "queueName": lambda name: at("queueName", name),
    "priorityClassName": lambda name: at("priorityClassName", name),
    "serviceAccountName": lambda name: at("serviceAccountName", name),
    "imagePullSecrets[0].name": lambda name: at("imagePullSecrets", [{"name": name}]),
    "storage.claimName": lambda name: at("storage.claimName", name),
    "storage.storageClassName": lambda name: {"storage": {"size": "1Gi", "storageClassName": name}},
    "tracking.wandb.secretName": lambda name: at("tracking.wandb.secretName", name),
    "envFrom[0].secretRef.name": lambda name: at("envFrom", [{"secretRef": {"name": name}}]),
    "envFrom[0].configMapRef.name": lambda name: at("envFrom", [{"configMapRef": {"name": name}}]),
    "env[0].valueFrom.secretKeyRef.name": lambda name: at(
        "env", [{"name": "A", "valueFrom": {"secretKeyRef": {"name": name, "key": "k"}}}]
    ),
}


@pytest.mark.parametrize("path", OBJECTS)
@pytest.mark.parametrize(
    "name", ["My Queue!", "Upper", "-a", "a-", "a..b", "a_b", "a/b", "ä", "a\n"]
)
def test_the_name_of_another_object_is_one_that_it_can_have(path, name):
    (fault,) = faults(OBJECTS[path](name))
    assert fault.startswith(f"spec.{path}: Invalid value: ")
    assert ": must be a name of lower-case letters" in fault


@pytest.mark.parametrize("path", OBJECTS)
@pytest.mark.parametrize("name", ["a", "team-a.gpus", "0-1", "a" * 63])
def test_valid_names_of_other_objects_are_accepted(path, name):
    parse(OBJECTS[path](name))


def test_a_queue_name_fits_a_label():
    (fault,) = faults(at("queueName", "a" * 64))
    assert "spec.queueName: Invalid value" in fault


def test_an_empty_storage_class_is_kubernetes_own_value():
    parse({"storage": {"size": "1Gi", "storageClassName": ""}})


@pytest.mark.parametrize("key", ["", "a b", "-a", "Example.com/a", "a/b/c", "a" * 64, "x/"])
def test_a_node_selector_key_is_a_label_key(key):
    (fault,) = faults(at("head.nodeSelector", {key: "v"}))
    assert fault.startswith(f"spec.head.nodeSelector.{key}: Invalid value: ")


@pytest.mark.parametrize("value", ["a b", "-a", "a" * 64, "é"])
def test_a_node_selector_value_is_a_label_value(value):
    (fault,) = faults(at("producers.nodeSelector", {"k": value}))
    assert "must be a label value" in fault


def test_label_keys_have_an_optional_prefix():
    parse(at("head.nodeSelector", {"node.kubernetes.io/instance-type": "p5.48xlarge", "zone": ""}))


@pytest.mark.parametrize("size", ["32mi", "1GB", "1 Gi", "Gi", "-1Gi", "1ki", "1.2.3", "1e"])
@pytest.mark.parametrize("path", ["storage.size", "head.resources.limits.memory"])
def test_a_quantity_follows_kubernetes_grammar(path, size):
    (fault,) = faults(at(path, size))
    assert fault.startswith(f"spec.{path}: Invalid value: ")
    assert "a quantity such as 500m, 2 or 32Gi" in fault


@pytest.mark.parametrize("size", ["32Mi", "1G", "500m", "1.5Gi", ".5Gi", "5.Gi", "1e3", "1E"])
def test_every_form_of_a_quantity_is_accepted(size):
    parse(at("head.resources.limits", {"memory": size}))


@pytest.mark.parametrize(
    ("quantity", "value"),
    [
        ("32Gi", 32 * 2**30),
        ("500m", Decimal("0.5")),
        ("1k", 1000),
        ("1E", 10**18),
        ("1Ei", 2**60),
        ("1e3", 1000),
        ("2E-1", Decimal("0.2")),
        ("3n", Decimal("3e-9")),
        (7, 7),
    ],
)
def test_a_quantity_stands_for_a_number(quantity, value):
    assert quantity_value(quantity) == value


@pytest.mark.parametrize("name", ["gpu", "CPU", "nvidia.com/", "/gpu", "a b/c"])
def test_a_resource_is_a_standard_one_or_has_a_domain(name):
    (fault,) = faults(at("head.resources", {"limits": {name: "1"}}))
    assert "an extended resource such as nvidia.com/gpu" in fault


@pytest.mark.parametrize("name", ["gpu", "CPU", "nvidia.com/"])
def test_an_accelerator_is_cpu_or_an_extended_resource(name):
    (fault,) = faults(at("consumers.accelerator", name))
    assert fault.startswith("spec.consumers.accelerator: Invalid value: ")


@pytest.mark.parametrize("amount", ["0.5", "500m", "1e-1"])
@pytest.mark.parametrize("pool", ["head", "producers", "consumers"])
def test_extended_resources_are_whole(pool, amount):
    (fault,) = faults(at(f"{pool}.resources.limits", {"nvidia.com/gpu": amount}))
    assert fault.startswith(f"spec.{pool}.resources: Invalid value: ")
    assert fault.endswith(": must have whole numbers of extended resources")


@pytest.mark.parametrize(
    ("requests", "limits"),
    [
        ({"memory": "2Gi"}, {"memory": "2G"}),
        ({"cpu": 2}, {"cpu": "1900m"}),
        ({"cpu": "1", "memory": "1Ti"}, {"cpu": 1, "memory": "1023Gi"}),
    ],
)
def test_requests_are_at_most_the_limits(requests, limits):
    (fault,) = faults(at("consumers.resources", {"requests": requests, "limits": limits}))
    assert fault.startswith("spec.consumers.resources.requests: Invalid value: ")
    assert fault.endswith(": must be at most the limits")


def test_equal_requests_and_limits_are_accepted_in_any_form():
    resources = {"requests": {"cpu": "2000m", "memory": "1Gi"}, "limits": {"cpu": 2}}
    parse(at("head.resources", resources))


@pytest.mark.parametrize("limits", [{}, {"example.com/nic": 2}])
def test_requests_of_extended_resources_equal_their_limits(limits):
    spec = at("producers.resources", {"requests": {"example.com/nic": 1}, "limits": limits})
    (fault,) = faults(spec)
    assert fault.endswith(": must equal the limits for extended resources and huge pages")


@pytest.mark.parametrize("limits", [{"memory": "1Gi"}, {"hugepages-2Mi": "4Mi", "cpu": 1}])
def test_requests_of_huge_pages_equal_their_limits(limits):
    requests = {"hugepages-2Mi": "2Mi"}
    (fault,) = faults(at("head.resources", {"requests": requests, "limits": limits}))
    assert fault.endswith(": must equal the limits for extended resources and huge pages")


def test_huge_pages_in_two_forms_are_the_same_amount():
    requests = {"hugepages-2Mi": "4Mi", "memory": "1Gi"}
    parse(at("head.resources", {"requests": requests, "limits": {"hugepages-2Mi": "4096Ki"}}))


def test_huge_pages_are_beside_cpu_or_memory():
    (fault,) = faults(at("consumers.resources.limits", {"hugepages-1Gi": "2Gi"}))
    assert fault.endswith(": must have cpu or memory beside huge pages")


@pytest.mark.parametrize("name", ["hugepages-", "hugepages-big", "hugepages-2", "hugepages-0Mi"])
def test_huge_pages_have_a_size(name):
    (fault,) = faults(at("head.resources.limits", {name: "2Mi", "cpu": 1}))
    assert "must be cpu, memory, ephemeral-storage, hugepages-<size>" in fault


@pytest.mark.parametrize("size", ["0", "0Gi", "0.0", "0e3"])
def test_a_claim_has_a_size(size):
    (fault,) = faults(at("storage.size", size))
    assert fault == f'spec.storage.size: Invalid value: "{size}": must be greater than 0'


@pytest.mark.parametrize("pool", ["head", "producers", "consumers"])
@pytest.mark.parametrize(
    "image",
    [
        "",
        " ",
        "my image",
        "a/B",
        "name:",
        "name:a b",
        "name@sha256:0",
        "/a",
        "a//b",
        "a:b:c",
        "a\n",
    ],
)
def test_an_image_is_one_that_a_node_can_pull(pool, image):
    (fault,) = faults(at(f"{pool}.image", image))
    assert fault.startswith(f"spec.{pool}.image: Invalid value: ")
    assert ": must be an image such as registry.example.com/team/name:tag" in fault


@pytest.mark.parametrize(
    "image",
    [
        "busybox",
        "localhost:5000/rl/trainer:7",
        "REGISTRY/grpo-trainer:TAG",
        "ghcr.io/a/b_c/d--e@sha256:" + "0" * 64,
        "a.b/c:v1.0-rc_1@sha256:" + "a" * 64,
        "[2001:db8::1]:5000/a",
    ],
)
def test_every_form_of_an_image_is_accepted(image):
    parse(at("head.image", image))


@pytest.mark.parametrize(
    ("toleration", "must"),
    [
        ({"value": "a"}, "must have operator Exists where key is absent"),
        ({"key": "a", "operator": "Exists", "value": "b"}, "must have no value with operator"),
        ({"key": "a", "tolerationSeconds": 3}, "must have effect NoExecute"),
        ({"key": "a b"}, "must be a label key, or empty"),
        ({"key": "a", "value": "b c"}, "must be a label value"),
    ],
)
def test_a_toleration_is_one_that_a_pod_can_have(toleration, must):
    (fault,) = faults(at("head.tolerations", [toleration]))
    assert must in fault


@pytest.mark.parametrize(
    "variable",
    [
        {"name": "A", "value": "x", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "A", "valueFrom": {}},
    ],
)
def test_a_variable_has_one_source(variable):
    (fault,) = faults(at("env", [variable]))
    assert "must have either a value or one source in valueFrom" in fault


def test_a_group_of_variables_has_one_source():
    (fault,) = faults(at("envFrom", [{"prefix": "A_"}]))
    assert "must have one of secretRef and configMapRef" in fault


@given(st.integers(0, 10**6), st.sampled_from(["", "m", "k", "M", "Ki", "Gi", "e2"]))
def test_more_of_a_suffix_is_more(number, suffix):
    assert quantity_value(f"{number + 1}{suffix}") > quantity_value(f"{number}{suffix}")
