"""The CustomResourceDefinition that is generated from the spec.

Aspects: it is up to date, structural and small; bounds and defaults are the records' own; what may
change and what may not; every rule across fields has its CEL; columns and subresources exist.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_operator.crd import crd, render
from grpo_trainer.spec import MUTABILITY, RULES, GRPOJobSpec, GRPOJobStatus, Mutable

ROOT = Path(__file__).resolve().parents[3]
STORED, VERSION = crd()["spec"]["versions"]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]["properties"]
SPEC = SCHEMA["spec"]
ROOT_RULES = VERSION["schema"]["openAPIV3Schema"]["x-kubernetes-validations"]
MUTABLE = frozenset(path.removeprefix("spec.") for path in MUTABILITY)
SUSPENDED = [path for path, when in MUTABILITY.items() if when is Mutable.SUSPENDED]


def nodes(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}".lstrip("."))
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            yield from nodes(schema[inner], f"{path}[]")


def at(path: str, schema: dict[str, Any] = SPEC) -> dict[str, Any]:
    for name in path.split("."):
        schema = schema["properties"][name]
    return schema


def test_the_committed_file_is_up_to_date():
    committed = (ROOT / "crds" / "grpojobs.yaml").read_text()
    assert committed == render(), "run `python -m grpo_operator.crd > crds/grpojobs.yaml`"


def test_it_fits_into_the_annotation_of_kubectl_apply():
    assert len(json.dumps(crd())) < 256 * 1024


def test_both_versions_differ_in_name_storage_and_texts_alone():
    """Only then conversion may consist of another apiVersion."""
    assert crd()["spec"]["conversion"] == {"strategy": "None"}
    assert [(v["name"], v["served"], v["storage"]) for v in (STORED, VERSION)] == [
        ("v1alpha1", True, True),
        ("v1beta1", True, False),
    ]
    for part in ("subresources", "additionalPrinterColumns"):
        assert STORED[part] == VERSION[part]
    assert without_texts(STORED["schema"]) == without_texts(VERSION["schema"])
    assert STORED["schema"] == without_texts(STORED["schema"])


def without_texts(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    kept = {key: value for key, value in node.items() if not isinstance(node.get(key), str)}
    kept |= {k: v for k, v in node.items() if isinstance(v, str) and k != "description"}
    return {key: without_texts(value) for key, value in kept.items()}


def test_it_is_structural():
    for path, node in [*nodes(SPEC), *nodes(SCHEMA["status"])]:
        assert "$ref" not in node, path
        assert "$defs" not in node, path
        assert "title" not in node, path
        assert node.get("type") or node.get("x-kubernetes-int-or-string"), path
        assert isinstance(node.get("exclusiveMinimum", True), bool), path


def test_all_values_that_cel_may_read_are_bounded():
    for path, node in nodes(SPEC):
        if node.get("type") == "string" and "enum" not in node:
            assert "maxLength" in node, path
        if node.get("type") == "array":
            assert "maxItems" in node, path
        if "additionalProperties" in node:
            assert "maxProperties" in node, path


def test_it_has_every_field_of_the_records():
    for record, schema in ((GRPOJobSpec, SPEC), (GRPOJobStatus, SCHEMA["status"])):
        names = {field.alias for field in record.model_fields.values()}
        assert set(schema["properties"]) == names


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("algorithm.learningRate", {"default": 1e-6, "minimum": 0, "exclusiveMinimum": True}),
        ("algorithm.clipLow", {"maximum": 1, "exclusiveMaximum": True}),
        ("sampling.numGenerations", {"minimum": 2, "default": 8}),
        ("producers.replicas", {"minimum": 1, "default": 2}),
        (
            "reward.type",
            {
                "enum": [
                    *("think_answer_tags", "boxed", "code", "custom"),
                    *("environment", "http", "judge"),
                ]
            },
        ),
        ("buffer", {"default": {"maxPrompts": -1, "maxStaleness": 4}}),
        ("maxSteps", {"type": "integer", "minimum": 1}),
        ("env", {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}),
        ("producers.podTemplate", {"x-kubernetes-preserve-unknown-fields": True}),
    ],
)
def test_types_bounds_and_defaults_are_those_of_the_records(path, expected):
    assert {key: at(path).get(key) for key in expected} == expected


def test_every_field_has_a_description_for_kubectl_explain():
    fields = [node for node in nodes(VERSION["schema"]["openAPIV3Schema"]) if node[0][-2:] != "[]"]
    # The API server describes the metadata itself.
    assert [path for path, node in fields if not node.get("description")] == ["metadata"]


NAMES_OF_OTHERS = {"algorithm.name", "storage.accessModes[]", "storage.retention"}
"""Enumerations whose values algorithms and Kubernetes have named."""


def test_values_of_enumerations_are_lower_camel_case():
    others = {
        (path, value)
        for path, node in nodes(SPEC)
        if path not in NAMES_OF_OTHERS
        for value in node.get("enum", ())
        if not re.fullmatch("[a-z][a-zA-Z0-9]*", value)
    }
    assert {value for _, value in others} <= {"think_answer_tags"}, "it is the original's"


def test_numbers_have_a_format():
    kinds = {"integer": "int64", "number": "double"}
    for path, node in [*nodes(SPEC), *nodes(SCHEMA["status"])]:
        if node.get("type") in kinds:
            assert node["format"] == kinds[node["type"]], path


def test_conditions_require_what_the_operator_always_writes():
    condition = at("conditions", SCHEMA["status"])["items"]
    assert condition["required"] == ["type", "status", "reason", "lastTransitionTime"]
    assert condition["properties"]["reason"]["minLength"] == 1
    assert "default" not in condition["properties"]["reason"]


def test_a_new_job_has_a_status_that_has_observed_no_generation():
    assert SCHEMA["status"]["default"] == {"phase": "Pending", "observedGeneration": 0}


def test_descriptions_are_the_docstrings_of_the_fields():
    assert at("sampling.numGenerations")["description"] == "Completions per prompt (the group)."


def test_the_volume_is_required_in_a_cluster():
    assert SPEC["required"] == ["storage"]


def immutable_paths() -> set[str]:
    found = set()
    for _, node in nodes(SPEC):
        for rule in node.get("x-kubernetes-validations", ()):
            match = re.match(r"spec\.(\S+) is immutable", rule.get("message", ""))
            found |= {match[1]} if match else set()
    return found


def test_everything_but_the_mutable_fields_has_a_transition_rule():
    frozen = immutable_paths()
    for path, node in nodes(SPEC):
        inside = any(path.startswith((f"{outer}.", f"{outer}[")) for outer in frozen)
        group = any(inner.startswith(f"{path}.") for inner in frozen | MUTABLE)
        mutable = any(path == p or path.startswith((f"{p}.", f"{p}[")) for p in MUTABLE)
        covered = path in frozen or inside or group
        assert covered or mutable or not path, path
        assert "properties" in node or not (mutable and covered), path
    assert len(frozen) > 70


@pytest.mark.parametrize("path", sorted(MUTABLE))
def test_mutable_fields_exist_and_are_not_immutable(path):
    assert at(path)["type"]
    assert path not in immutable_paths()


def test_a_rule_of_the_root_guards_each_field_that_may_change_while_suspended():
    guarded = [rule["fieldPath"] for rule in ROOT_RULES if "fieldPath" in rule]
    assert guarded == [f".{path}" for path in sorted(SUSPENDED)]


def test_rules_across_fields_name_fields_that_exist():
    for rule in RULES:
        at(rule.field)


def test_scale_and_status_are_subresources():
    scale = VERSION["subresources"]["scale"]
    assert VERSION["subresources"]["status"] == {}
    assert at(scale["specReplicasPath"].removeprefix(".spec."))["type"] == "integer"
    for path in (scale["statusReplicasPath"], scale["labelSelectorPath"]):
        at(path.removeprefix(".status."), SCHEMA["status"])


def test_columns_read_fields_of_their_type():
    narrow = [c["name"] for c in VERSION["additionalPrinterColumns"] if "priority" not in c]
    assert narrow == ["Phase", "Reason", "Step", "Reward", "Samples/s", "Buffer", "Attempt", "Age"]
    for column in VERSION["additionalPrinterColumns"]:
        if re.fullmatch(r"\.status\.[A-Za-z.]+", column["jsonPath"]):
            node = at(column["jsonPath"].removeprefix(".status."), SCHEMA["status"])
            assert node["type"] == column["type"], column["name"]
