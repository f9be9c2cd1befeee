"""The dashboard and the alerts of a job, with a real Prometheus that scrapes a real run.

Aspects: every panel and every alert has data, the number of series is bounded.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from grpo_trainer.reporting.metrics import METRICS
from support.prometheus import (
    CHART,
    Prometheus,
    Query,
    Target,
    alert_query,
    alerts,
    running_prometheus,
    shown,
)
from support.runs import Run, manifest

JOB = {"namespace": "team", "grpojob": "sums"}
SECONDS = 20
SERIES_OF_A_JOB = 80
"""One per metric and value of its label: none per step, none per worker."""

REWARD = '''
def reward(completion, row):
    """Share of correct digits; some completions cannot be scored."""
    said = completion.removeprefix("\\\\boxed{").removesuffix("}")
    if sum(map(ord, said)) % 11 == 0:
        raise ValueError(said)
    return sum(a == b for a, b in zip(said, row["answer"])) / len(row["answer"])
'''


@dataclass(frozen=True)
class Watched:
    run: Run
    prometheus: Prometheus


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """A running job after an evaluation, a checkpoint, scoring errors and a lost producer."""
    tmp = tmp_path_factory.mktemp("watched")
    (tmp / "rewards.py").write_text(REWARD)
    custom = {"module": str(tmp / "rewards.py"), "function": "reward"}
    part = {"name": "sum", "type": "custom", "custom": custom}
    file = manifest(
        tmp / "job.yaml",
        maxSteps=100_000,
        numEpisodes=1000,
        algorithm={"klCoefficient": 0.01},
        evaluation={
            "datasets": {"held-out": "builtin://addition-held-out"},
            "interval": 50,
            "samples": 2,
        },
        reward={"type": "think_answer_tags", "parts": [part]},
        producers={"replicas": 2, "weightTransport": "delta"},
        buffer={"maxStaleness": 2},
        checkpoint={"interval": 20},
    )
    run = Run(tmp / "run", str(file))
    try:
        run.until(lambda: run.steps >= 3)
        endpoint = (run.directory / "endpoint").read_text().strip()
        target = Target(endpoint.removeprefix("http://"), {**JOB, "pod": "sums-head"})
        with running_prometheus(tmp / "prometheus", [target]) as prometheus:
            run.actors("Producer")[0].kill()
            yield Watched(run, prometheus)
    finally:
        run.end()


def test_every_panel_of_the_job_has_data(watched: Watched) -> None:
    queries = shown(CHART / "dashboards" / "grpo-job.json", f"{SECONDS}s", **JOB)
    assert watched.prometheus.until_all_have_data(queries, 120) == [], watched.run.output[-3000:]


def test_every_alert_on_a_job_has_data(watched: Watched) -> None:
    queries = [
        alert_query(rule, SECONDS) for rule in alerts() if "grpo_operator_" not in rule["expr"]
    ]
    assert watched.prometheus.until_all_have_data(queries, 120) == [], watched.run.output[-3000:]


def test_the_table_of_all_jobs_has_data(watched: Watched) -> None:
    queries = [
        query
        for query in shown(CHART / "dashboards" / "grpo-fleet.json", f"{SECONDS}s")
        if "grpo_operator_" not in query.expr
    ]
    assert watched.prometheus.until_all_have_data(queries, 120) == []


def test_every_metric_of_the_catalogue_is_exported(watched: Watched) -> None:
    names = [Query(m.name, f'{{__name__=~"{m.name}(_count)?"}}') for m in METRICS]
    assert watched.prometheus.until_all_have_data(names, 120) == []


def test_a_job_has_few_series(watched: Watched) -> None:
    (found,) = watched.prometheus.ask('count({__name__=~"grpo_.*", grpojob="sums"})')
    assert len(METRICS) < int(found["value"][1]) <= SERIES_OF_A_JOB
