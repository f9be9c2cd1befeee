"""A real Prometheus, and what the chart gives it: the dashboards' queries and the alert rules."""

import contextlib
import functools
import json
import math
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "grpo-operator"
RULES = CHART / "alerts" / "rules.yaml"
DASHBOARDS = sorted((CHART / "dashboards").glob("*.json"))

_CLUSTER = ROOT / "hack" / "cluster" / "cluster.py"
_STOP_SECONDS = 20


def alerts() -> list[dict[str, Any]]:
    """All alert rules."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels(dashboard: Path) -> list[dict[str, Any]]:
    """The panels of a dashboard, without the headings of its rows."""
    found: list[dict[str, Any]] = json.loads(dashboard.read_text())["panels"]
    return [panel for panel in found if panel["type"] != "row"]


@functools.cache
def program(name: str) -> Path:
    """A program of Prometheus' project, built when it has not been."""
    command = [sys.executable, str(_CLUSTER), "build", "monitoring"]
    printed = subprocess.check_output(command, text=True)
    return Path(printed.splitlines()[-1]) / name


@dataclass(frozen=True)
class Query:
    """An expression as Prometheus evaluates it, and where it stands."""

    where: str
    expr: str


def shown(dashboard: Path, window: str, **variables: str) -> list[Query]:
    """The queries of a dashboard, with the reader's choices filled in."""
    return [
        Query(
            f"{dashboard.stem}, {panel['title']}: {target['expr']}",
            _fill(target["expr"], {**variables, "window": window}),
        )
        for panel in panels(dashboard)
        for target in panel["targets"]
    ]


def alert_query(rule: Mapping[str, Any], seconds: int) -> Query:
    """What an alert looks at, so that there is data whether it fires or not.

    Comparisons tell true or false, what would silence it must be there, and hours become seconds.
    """
    expr = re.sub(r"\[\d+[mh]\]", f"[{seconds}s]", rule["expr"])
    expr = re.sub(r"offset \d+[mh]", f"offset {seconds // 2}s", expr)
    expr = re.sub(r" (==|!=|>=|<=|>|<)(?=\s)", r" \1 bool", expr)
    expr = expr.replace("unless", "and").replace("absent(", "(")
    return Query(f"alert {rule['alert']}: {expr}", expr)


def _fill(expr: str, variables: Mapping[str, str]) -> str:
    return re.sub(r"\$(\w+)", lambda found: variables[found[1]], expr)


@dataclass(frozen=True)
class Target:
    """An endpoint to scrape, with the labels that its monitor gives it in a cluster."""

    address: str
    labels: Mapping[str, str]


@dataclass(frozen=True)
class Prometheus:
    url: str

    def ask(self, expr: str) -> list[dict[str, Any]]:
        """The series of an instant query whose value is a number."""
        found = self._get("query", query=expr)["result"]
        return [series for series in found if not math.isnan(float(series["value"][1]))]

    def without_data(self, queries: Sequence[Query]) -> list[str]:
        """Where the queries stand that have nothing to show now."""
        return [query.where for query in queries if not self.ask(query.expr)]

    def until_all_have_data(self, queries: Sequence[Query], timeout: float) -> list[str]:
        """Waits until each has; returns those that do not in time."""
        deadline = time.monotonic() + timeout
        while missing := self.without_data(queries):
            if time.monotonic() > deadline:
                return missing
            time.sleep(1)  # a database can only be asked again
        return []

    def _get(self, path: str, **parameters: str) -> Any:
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error


@contextlib.contextmanager
def running_prometheus(directory: Path, targets: Sequence[Target]) -> Iterator[Prometheus]:
    """Prometheus as a process of its own that scrapes every second; ends with the block."""
    directory.mkdir()
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [
            {
                "job_name": "tests",
                "static_configs": [
                    {"targets": [target.address], "labels": dict(target.labels)}
                    for target in targets
                ],
            }
        ],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    arguments = [
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=data",
        f"--web.listen-address={address}",
    ]
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program("prometheus"), *arguments], cwd=directory, stderr=output, stdout=output
        )
    try:
        _until_ready(f"http://{address}/-/ready", process, log)
        yield Prometheus(f"http://{address}")
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


def _until_ready(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.1)  # a health endpoint can only be asked again
