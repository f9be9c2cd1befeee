"""The dashboards of the chart: up to date, complete, and limited to exported metrics.

Aspects: generated from their source, every name in a query is exported, every metric is shown,
layout and identity of panels, descriptions, dashboard variables, thresholds.
"""

import json
import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from support.prometheus import DASHBOARDS, ROOT, panels
from unit.dashboards.metrics import exported, named

each_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda path: path.stem)


def expressions(dashboard: Path) -> list[str]:
    return [target["expr"] for panel in panels(dashboard) for target in panel["targets"]]


def test_the_dashboards_are_up_to_date_with_their_source() -> None:
    command = [sys.executable, str(ROOT / "hack/dashboards/generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"run hack/dashboards/generate.py\n{done.stdout}{done.stderr}"


def test_there_is_one_for_a_job_and_one_for_all_jobs() -> None:
    assert [path.stem for path in DASHBOARDS] == ["grpo-fleet", "grpo-job"]


@each_dashboard
def test_a_query_names_only_series_that_are_exported(dashboard: Path) -> None:
    assert named(expressions(dashboard)) - exported().keys() == set()


def test_every_metric_is_shown() -> None:
    series = exported()
    seen = named(e for dashboard in DASHBOARDS for e in expressions(dashboard))
    assert set(series.values()) - {series[name] for name in seen} == set()


@each_dashboard
def test_panels_and_their_queries_have_unique_ids(dashboard: Path) -> None:
    everything = json.loads(dashboard.read_text())["panels"]
    ids = [panel["id"] for panel in everything]
    assert len(ids) == len(set(ids))
    for panel in panels(dashboard):
        letters = [target["refId"] for target in panel["targets"]]
        assert all(letters) and len(letters) == len(set(letters)), panel["title"]


@each_dashboard
def test_panels_do_not_overlap_and_stay_within_the_width(dashboard: Path) -> None:
    everything = json.loads(dashboard.read_text())["panels"]
    assert all(p["gridPos"]["x"] + p["gridPos"]["w"] <= 24 for p in everything)
    assert [(a["title"], b["title"]) for a, b in combinations(everything, 2) if _meet(a, b)] == []


def _meet(one: dict[str, Any], other: dict[str, Any]) -> bool:
    a, b = one["gridPos"], other["gridPos"]
    beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
    below = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
    return not (beside or below)


@each_dashboard
def test_every_panel_has_a_description(dashboard: Path) -> None:
    assert [panel["title"] for panel in panels(dashboard) if not panel.get("description")] == []


@each_dashboard
def test_every_variable_of_a_query_is_defined(dashboard: Path) -> None:
    text = dashboard.read_text()
    offered = {v["name"] for v in json.loads(text)["templating"]["list"]}
    used = {name for e in expressions(dashboard) for name in re.findall(r"\$(\w+)", e)}
    assert used <= offered
    assert {target["datasource"]["uid"] for p in panels(dashboard) for target in p["targets"]} == {
        "${datasource}"
    }


def test_the_job_dashboard_selects_one_job_in_every_query() -> None:
    (dashboard,) = (path for path in DASHBOARDS if path.stem == "grpo-job")
    chosen = '{namespace="$namespace", grpojob="$grpojob"}'
    for expression in expressions(dashboard):
        selectors = re.findall(r"\bgrpo_[a-z_]+(\{[^}]*\})?", expression)
        assert set(selectors) == {chosen}, expression


def test_thresholds_of_idle_time_apply_to_consumers_only() -> None:
    job = next(path for path in DASHBOARDS if path.stem == "grpo-job")
    steps = {
        target["expr"]: len(panel["fieldConfig"]["defaults"]["thresholds"]["steps"])
        for panel in panels(job)
        for target in panel["targets"]
        if "_idle_ratio" in target["expr"]
    }
    assert {re.search(r"grpo_(\w+)_idle", e)[1]: n for e, n in steps.items()} == {
        "consumer": 3,
        "producer": 1,
    }


@each_dashboard
def test_a_rate_per_second_has_a_unit(dashboard: Path) -> None:
    bare = [
        panel["title"]
        for panel in panels(dashboard)
        if panel["type"] == "timeseries"
        and any(
            re.fullmatch(r"sum( by \(.*\) )?\(rate\([^/]*", t["expr"]) for t in panel["targets"]
        )
        and panel["fieldConfig"]["defaults"]["unit"] == "short"
    ]
    assert bare == []
