"""Tables that come from the code: up to date, and complete."""

import runpy
from typing import Any

import pytest
from pydantic import BaseModel

from grpo_trainer.cli.flags import FLAGS
from grpo_trainer.reporting.metrics import METRICS
from grpo_trainer.spec import MUTABLE_FIELDS, GRPOJobSpec
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


def test_exactly_the_mutable_fields_are_marked():
    marked = [line.split("`")[1] for line in MANIFEST.splitlines() if "**Mutable.** |" in line]
    assert {f"spec.{path}" for path in marked} == MUTABLE_FIELDS


def test_every_flag_is_in_the_page_on_migration():
    page = (ROOT / "docs/migration.md").read_text()
    assert [name for flag in FLAGS for name in flag.names if f"`{name}`" not in page] == []


def test_every_metric_is_in_the_page_on_the_algorithm():
    page = (ROOT / "docs/algorithm.md").read_text()
    assert [m.name for m in METRICS if f"| `{m.name}" not in page] == []
