"""The chart's monitors, alerts and dashboards under the Prometheus operator.

A Prometheus in a namespace of its own selects all monitors and rules.
Aspects: replicas of the operator and a job's driver are scraped, with the labels that dashboards
and alerts use; network policies allow no other connection; all alerts are loaded and evaluated; the
dashboards have the label of Grafana's sidecar, and data.
"""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest_asyncio

from e2e.deployment import OPERATOR_SELECTOR, RELEASE, RELEASE_NAMESPACE, Deployment
from e2e.runs import STEADY, Runs
from kube.harness import Object
from support.prometheus import DASHBOARDS, Prometheus, Query, alerts, shown

NAME = "prometheus"
VERSION = "v3.16.0"
IMAGE = f"localhost/prometheus:{VERSION}"
WINDOW = "30s"
SECONDS = 120
WITHOUT_CAUSE = {"Scoring errors", "Restarts"}
"""Panels that show faults, of which a sound job has none."""


@dataclass(frozen=True)
class Monitoring:
    """A Prometheus of the cluster, and what it watches."""

    runs: Runs
    namespace: str
    """Its own."""
    prometheus: Prometheus

    @property
    def deployment(self) -> Deployment:
        return self.runs.deployment

    def raw(self, path: str) -> Any:
        """The data of an answer of Prometheus' API."""
        url = f"{api_path(self.namespace)}/api/v1/{path}"
        return json.loads(self.deployment.kubectl("get", "--raw", url))["data"]

    async def without_data(self, *queries: Query) -> list[str]:
        """Which of the queries have nothing to show in time."""
        return await asyncio.to_thread(self.prometheus.until_all_have_data, queries, SECONDS)


def api_path(namespace: str) -> str:
    """Where the API server passes calls on to Prometheus."""
    return f"/api/v1/namespaces/{namespace}/pods/prometheus-{NAME}-0:9090/proxy"


def selecting_all() -> Object:
    """A Prometheus that takes all monitors and rules of all namespaces."""
    everything: Object = {
        f"{kind}{scope}Selector": {}
        for kind in ("serviceMonitor", "podMonitor", "rule")
        for scope in ("", "Namespace")
    }
    spec = {"image": IMAGE, "version": VERSION, "serviceAccountName": NAME}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "Prometheus",
        "metadata": {"name": NAME},
        "spec": {**everything, **spec, "evaluationInterval": "2s"},
    }


@contextmanager
def reached(deployment: Deployment) -> Iterator[str]:
    """The API server on a port of this machine, with the administrator's rights."""
    command = ["kubectl", "proxy", "--port=0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=deployment.environment
    ) as process:
        try:
            assert process.stdout is not None
            yield f"http://{process.stdout.readline().split()[-1]}"
        finally:
            process.terminate()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def monitoring(steady_runs: Runs, shared_namespace: str) -> AsyncIterator[Monitoring]:
    """A Prometheus that runs, with the rights of the role `view`."""
    deployment, where = steady_runs.deployment, ("-n", shared_namespace)
    deployment.kubectl("create", "serviceaccount", NAME, *where)
    account = f"--serviceaccount={shared_namespace}:{NAME}"
    binding = ("clusterrolebinding", shared_namespace)
    deployment.kubectl("create", *binding, "--clusterrole=view", account)
    deployment.kubectl("apply", *where, "-f", "-", given=selecting_all())
    available = ("--for=condition=Available", f"--timeout={SECONDS}s")
    deployment.kubectl("wait", f"prometheus/{NAME}", *where, *available)
    with reached(deployment) as url:
        prometheus = Prometheus(f"{url}{api_path(shared_namespace)}")
        yield Monitoring(steady_runs, shared_namespace, prometheus)
    deployment.kubectl("delete", *binding)


async def test_every_replica_of_the_operator_is_scraped_and_one_leads(
    monitoring: Monitoring,
) -> None:
    labels = f'namespace="{RELEASE_NAMESPACE}"'
    both = Query("replicas", f"count(up{{{labels}}} == 1) == 2")
    leader = Query("leader", f"sum(grpo_operator_leader{{{labels}}}) == 1")

    assert await monitoring.without_data(both, leader) == []

    names = monitoring.deployment.kubectl(
        *("get", "pods", "-n", RELEASE_NAMESPACE, f"-l={OPERATOR_SELECTOR}"),
        "-o=jsonpath={.items[*].metadata.name}",
    )
    found = monitoring.prometheus.ask(f"grpo_operator_leader{{{labels}}}")
    assert {series["metric"]["pod"] for series in found} == set(names.split())


async def test_the_driver_of_a_job_is_scraped_with_the_names_of_job_namespace_and_pod(
    monitoring: Monitoring,
) -> None:
    runs = monitoring.runs
    head = await runs.pod(STEADY, "head")
    labels = f'namespace="{runs.namespace}",grpojob="{STEADY}",pod="{head}"'

    target = Query("target", f"up{{{labels}}} == 1")
    progress = Query("progress", f"changes(grpo_step{{{labels}}}[{WINDOW}]) > 0")

    assert await monitoring.without_data(target, progress) == []


async def test_no_target_of_the_chart_is_down(monitoring: Monitoring) -> None:
    everything = Query("targets", 'count(up{job=~".*grpo-operator.*"} == 1) >= 3')
    assert await monitoring.without_data(everything) == []

    targets = monitoring.raw("targets?state=active")["activeTargets"]

    pools = {target["scrapePool"] for target in targets}
    release = f"{RELEASE_NAMESPACE}/{RELEASE}"
    assert pools == {f"serviceMonitor/{release}/0", f"podMonitor/{release}-drivers/0"}
    assert {(target["health"], target["lastError"]) for target in targets} == {("up", "")}


async def test_no_other_pod_can_connect_to_the_operator(monitoring: Monitoring) -> None:
    deployment, namespace = monitoring.deployment, monitoring.namespace
    url = f"http://{RELEASE}.{RELEASE_NAMESPACE}:8080/metrics"
    deployment.start_toolbox(namespace, "stranger")
    deployment.start_toolbox(namespace, "friend", **{"app.kubernetes.io/name": "prometheus"})

    assert deployment.reaches(namespace, "friend", url)
    assert not deployment.reaches(namespace, "stranger", url)


async def test_every_alert_of_the_chart_is_loaded_and_evaluates(monitoring: Monitoring) -> None:
    wanted = {rule["alert"] for rule in alerts()}

    async with asyncio.timeout(SECONDS):
        while True:
            groups = monitoring.raw("rules")["groups"]
            rules = [rule for group in groups for rule in group["rules"]]
            if rules and all(rule["health"] != "unknown" for rule in rules):
                break
            await asyncio.sleep(1)  # Prometheus can only be asked again

    assert {rule["name"] for rule in rules} == wanted
    assert {(rule["health"], rule.get("lastError", "")) for rule in rules} == {("ok", "")}
    states = {rule["name"]: rule["state"] for rule in rules}
    assert states["GRPOOperatorDown"] == states["GRPOOperatorNotLeading"] == "inactive"


async def test_the_dashboards_have_the_label_of_grafanas_sidecar(
    monitoring: Monitoring,
) -> None:
    printed = monitoring.deployment.kubectl(
        *("get", "configmaps", "-A", "-l=grafana_dashboard=1", "-o=json")
    )

    data = {}
    for item in json.loads(printed)["items"]:
        data |= item["data"]
    assert {key: json.loads(text) for key, text in data.items()} == {
        path.name: json.loads(path.read_text()) for path in DASHBOARDS
    }


async def test_the_panels_of_a_job_have_data(monitoring: Monitoring) -> None:
    (dashboard,) = (path for path in DASHBOARDS if path.stem == "grpo-job")
    names = {"namespace": monitoring.runs.namespace, "grpojob": STEADY}
    queries = [
        query
        for query in shown(dashboard, WINDOW, **names)
        if not any(f", {title}: " in query.where for title in WITHOUT_CAUSE)
    ]

    assert len(queries) > 30
    assert await monitoring.without_data(*queries) == []
