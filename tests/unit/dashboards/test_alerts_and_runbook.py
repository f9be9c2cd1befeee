"""The alert rules: exported series, texts, and a section of the runbook for each.

Whether they fire when they should is tested with Prometheus itself.
"""

import re
import shlex
from typing import Any

import pytest

from grpo_kubectl.cli import build_parser
from support.prometheus import ROOT, alerts
from unit.dashboards.metrics import exported, named

RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
COMMANDS = re.findall(r"^kubectl grpo (.+?)(?: +[#|].*)?$", RUNBOOK, re.MULTILINE)
each_alert = pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])


def section(alert: str) -> str:
    """The section of the runbook about an alert."""
    return RUNBOOK.partition(f"\n## {alert}\n")[2].partition("\n## ")[0]


@each_alert
def test_an_alert_reads_only_series_that_are_exported(rule: dict[str, Any]) -> None:
    assert named([rule["expr"]]) - exported().keys() == set()


@each_alert
def test_an_alert_has_texts_and_a_severity(rule: dict[str, Any]) -> None:
    assert rule["annotations"]["summary"] and rule["annotations"]["description"]
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}


@each_alert
def test_an_alert_links_to_its_section_of_the_runbook(rule: dict[str, Any]) -> None:
    assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{rule['alert'].lower()}"
    for heading in ("**Meaning.**", "**Causes.**", "**Diagnosis.**", "**Remedy.**"):
        assert heading in section(rule["alert"]), heading


def test_the_runbook_has_no_section_without_an_alert() -> None:
    sections = re.findall(r"^## (GRPO\w+)$", RUNBOOK, re.MULTILINE)
    assert sections == [rule["alert"] for rule in alerts()]


def test_the_page_on_monitoring_lists_all_alerts_with_their_severity() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()
    listed = re.findall(r"^\| \[(GRPO\w+)\]\(\S+\) \| (\w+) \|", page, re.MULTILINE)
    assert listed == [(rule["alert"], rule["labels"]["severity"]) for rule in alerts()]


@pytest.mark.parametrize("line", sorted(set(COMMANDS)))
def test_a_plugin_command_in_the_runbook_parses(line: str) -> None:
    build_parser().parse_args(shlex.split(line))
