"""Tables that come from the code: up to date, and complete."""

import runpy
from typing import Any

import pytest
from pydantic import BaseModel

from grpo_trainer.cli.flags import FLAGS
from grpo_trainer.reporting.metrics import METRICS
from grpo_trainer.spec import MUTABILITY, GRPOJobSpec, Mutable, mutability
from unit.docs.pages import ROOT

GENERATED = runpy.run_path(str(ROOT / "docs/generate.py"))["pages"]()
MANIFEST = (ROOT / "docs/manifest.md").read_text()


def leaves(model: BaseModel, prefix: str = "") -> list[str]:
    """Paths of a record's fields, those of records inside it included."""
    paths = []
    for name, field in type(model).model_fields.items():
        value: Any = getattr(model, name)
        path = f"{prefix}{field.alias}"
        paths += leaves(value, f"{path}.") if isinstance(value, BaseModel) else [path]
    return paths


@pytest.mark.parametrize("page", GENERATED, ids=lambda page: page.name)
def test_a_page_holds_what_the_code_says(page):
    assert page.read_text() == GENERATED[page], "run `python docs/generate.py`"


@pytest.mark.parametrize("path", leaves(GRPOJobSpec()))
def test_every_field_of_the_spec_is_in_the_manifests_page(path):
    section, _, field = path.partition(".")
    in_pods = section in ("head", "producers", "consumers") and f"| `{field}` |" in MANIFEST
    assert f"| `{path}` |" in MANIFEST or in_pods


@pytest.mark.parametrize(
    ("mark", "when"),
    [("**Mutable.** |", Mutable.ALWAYS), ("**Mutable while suspended.** |", Mutable.SUSPENDED)],
)
def test_exactly_the_mutable_fields_are_marked(mark, when):
    marked = {line.split("`")[1] for line in MANIFEST.splitlines() if mark in line}
    in_pods = {path for path in marked if mutability(f"spec.head.{path}")}
    assert all(mutability(f"spec.{path}") is when for path in marked - in_pods)
    expected = {path.removeprefix("spec.") for path, found in MUTABILITY.items() if found is when}
    shown = marked | {f"{pool}.{p}" for pool in ("head", "producers", "consumers") for p in in_pods}
    assert [p for p in expected if not any(s == p or s.startswith(f"{p}.") for s in shown)] == []


def test_every_flag_is_in_the_page_on_migration():
    page = (ROOT / "docs/migration.md").read_text()
    assert [name for flag in FLAGS for name in flag.names if f"`{name}`" not in page] == []


def test_every_metric_is_in_the_page_on_the_algorithm():
    page = (ROOT / "docs/algorithm.md").read_text()
    assert [m.name for m in METRICS if f"| `{m.name}" not in page] == []
