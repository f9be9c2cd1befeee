"""The fleet dashboard and the operator's alerts on the metrics of a real operator.

Aspects: every panel and every alert has data, the number of series is bounded.
"""

import asyncio
from pathlib import Path

from kube.api_proxy import ApiProxy
from kube.fake_ray import FakeRay
from kube.harness import Cluster
from kube.operator_harness import Jobs, manifest, running_operator
from support.prometheus import CHART, Target, alert_query, alerts, running_prometheus, shown

SECONDS = 60
SERIES_OF_AN_OPERATOR = 200
"""Kinds of calls, reasons and phases: none for a job."""


async def test_every_panel_and_every_alert_has_data(
    cluster: Cluster, jobs: Jobs, ray: FakeRay, proxy: ApiProxy, tmp_path: Path
) -> None:
    kubeconfig = proxy.kubeconfig(cluster.kubeconfig, tmp_path / "proxied")
    # One error of each kind that is counted by its reason or code.
    proxy.fault = lambda call: 503 if call.resource == "configmaps" and not proxy.refused else None
    log = tmp_path / "operator.log"
    async with running_operator(
        kubeconfig, jobs.namespace, ray, log, GRPO_LEADER_ELECTION="true"
    ) as operator:
        await operator.until_ready()
        labels = {"namespace": "system", "pod": "grpo-operator-0"}
        target = Target(f"127.0.0.1:{operator.port}", labels)
        with running_prometheus(tmp_path / "prometheus", [target]) as prometheus:
            await jobs.create(manifest(backoffLimit=0))
            await jobs.until_phase("Running", timeout=60)
            (await ray.only_head()).end(1)
            await jobs.until_phase("Failed")
            await jobs.create(manifest("other"))
            await jobs.until_phase("Running", "other")
            (running,) = [head for head in ray.heads.values() if head.active]
            running.reachable = False
            queries = [alert_query(rule, SECONDS) for rule in alerts()]
            queries += shown(CHART / "dashboards" / "grpo-fleet.json", f"{SECONDS}s")
            own = [query for query in queries if "grpo_operator_" in query.expr]
            missing = await asyncio.to_thread(prometheus.until_all_have_data, own, 90)
            assert missing == [], log.read_text()[-8000:]
            (found,) = await asyncio.to_thread(prometheus.ask, 'count({__name__=~"grpo_.+"})')
            assert int(found["value"][1]) <= SERIES_OF_AN_OPERATOR
