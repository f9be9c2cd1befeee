"""The alert rules, evaluated by promtool on synthetic series.

Aspects: the file and its templates are valid; so is the configuration in the documentation; each
alert fires when it should, and stays silent in similar cases.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from support.prometheus import ROOT, RULES, alerts, program

TWO_HOURS = "x120"
"""Samples of two hours, one a minute."""


def job(metric: str, **labels: str) -> str:
    """A series of the job `a`."""
    return _series(metric, namespace="team", grpojob="a", pod="a-head", **labels)


def operator(metric: str, pod: str = "op-1", **labels: str) -> str:
    return _series(f"grpo_operator_{metric}", namespace="system", pod=pod, **labels)


def _series(metric: str, **labels: str) -> str:
    shown = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{metric}{{{shown}}}"


def waiting(take: int, stale: int) -> dict[str, str]:
    """A job of a minute a step: so many seconds of it waiting, samples so many versions old."""
    return {
        job("grpo_phase_seconds_total", phase="take"): f"0+{take}{TWO_HOURS}",
        job("grpo_phase_seconds_total", phase="train"): f"0+{60 - take}{TWO_HOURS}",
        job("grpo_staleness_versions_sum"): f"0+{8 * stale}{TWO_HOURS}",
    }


def buffer(depth: str, consumers: float, producers: float, stale: int = 1) -> dict[str, str]:
    return {
        job("grpo_buffer_depth"): depth,
        job("grpo_buffer_capacity"): f"16{TWO_HOURS}",
        job("grpo_consumer_idle_ratio"): f"{consumers}{TWO_HOURS}",
        job("grpo_producer_idle_ratio"): f"{producers}{TWO_HOURS}",
        job("grpo_staleness_versions_sum"): f"0+{8 * stale}{TWO_HOURS}",
    }


def stale(versions: int, low: float, high: float) -> dict[str, str]:
    return {
        job("grpo_staleness_versions_sum"): f"0+{8 * versions}{TWO_HOURS}",
        job("grpo_staleness_versions_count"): f"0+8{TWO_HOURS}",
        job("grpo_clip_ratio", side="low"): f"{low}{TWO_HOURS}",
        job("grpo_clip_ratio", side="high"): f"{high}{TWO_HOURS}",
    }


def scoring(errors: int) -> dict[str, str]:
    return {
        job("grpo_scoring_errors_total", reason="timeout"): f"0+{errors}{TWO_HOURS}",
        job("grpo_samples_total"): f"0+100{TWO_HOURS}",
    }


def calls(failed: int, code: str = "503") -> dict[str, str]:
    return {
        operator("api_requests_total", verb="get", code="200"): f"0+100{TWO_HOURS}",
        operator("api_requests_total", verb="get", code=code): f"0+{failed}{TWO_HOURS}",
    }


@dataclass(frozen=True)
class Case:
    alert: str
    story: str
    series: dict[str, str]
    fires: bool
    at: str = "2h"

    def __str__(self) -> str:
        return f"{self.alert}-{self.story}".replace(" ", "-")


def fires(alert: str, story: str, series: dict[str, str], at: str = "2h") -> Case:
    return Case(alert, story, series, True, at)


def silent(alert: str, story: str, series: dict[str, str], at: str = "2h") -> Case:
    return Case(alert, story, series, False, at)


STEP, CHECKPOINT = job("grpo_step"), job("grpo_checkpoint_step")
LOSS, NORM = job("grpo_loss"), job("grpo_gradient_norm")
ENTROPY, RESTARTS = job("grpo_entropy"), job("grpo_restarts_total", role="producer")
LEADER, OTHER = operator("leader"), operator("leader", "op-2")
LOOKS, RUNNING = operator("reconcile_seconds_count"), operator("jobs", phase="Running")
ENDED = operator("jobs", phase="Succeeded")
FAILED = operator("failed_jobs", job_namespace="team", grpojob="a")
FAILED_BEFORE = operator("failed_jobs", job_namespace="team", grpojob="b")
UNSERVED = operator("unserved_namespaces")
CLAIMED = operator("refused_namespaces", job_namespace="lab")
ERRORS = operator("reconcile_errors_total", reason="Forbidden")
SILENT = operator("silent_heads", job_namespace="team", grpojob="a")
RETRIES = operator("retries_total", reason="HeadLost")

CASES = [
    fires("GRPOJobStalled", "no step for half an hour", {STEP: "0+1x60 60x59"}),
    silent("GRPOJobStalled", "no step for a quarter of an hour", {STEP: "0+1x105 105x14"}),
    silent("GRPOJobStalled", "a step every eight minutes", {STEP: "0x7 1x7 2x7 3x7 4x7 5x7 6x7"}),
    silent("GRPOJobStalled", "the job has ended", {STEP: "0+1x60 60x5 stale"}),
    fires("GRPOHeadNotAnswering", "for an hour", {SILENT: "_x59 1x60"}),
    silent("GRPOHeadNotAnswering", "for five minutes", {SILENT: "_x114 1x5"}),
    fires("GRPOConsumersIdle", "half of the time is waiting", waiting(30, stale=1)),
    silent("GRPOConsumersIdle", "a tenth of the time is waiting", waiting(6, stale=1)),
    silent("GRPOConsumersIdle", "a synchronous job waits by design", waiting(30, stale=0)),
    fires("GRPOBufferEmpty", "empty and waited for", buffer("0x120", 0.3, 0)),
    silent("GRPOBufferEmpty", "empty but just in time", buffer("0x120", 0.02, 0)),
    silent("GRPOBufferEmpty", "now and then a group waits", buffer("0x50 2x10 0x60", 0.3, 0)),
    silent("GRPOBufferEmpty", "a synchronous job", buffer("0x120", 0.3, 0.5, stale=0)),
    fires("GRPOProducersIdle", "the buffer is full", buffer("16x120", 0, 0.8)),
    fires("GRPOProducersIdle", "the bound on staleness holds them", buffer("8x118 0 8", 0, 0.8)),
    silent("GRPOProducersIdle", "the buffer is empty, too", buffer("0x120", 0.5, 0.8)),
    silent("GRPOProducersIdle", "full but producers at work", buffer("16x120", 0, 0.1)),
    fires("GRPOSamplesStale", "old and clipped", stale(3, 0.15, 0.15)),
    silent("GRPOSamplesStale", "old but harmless", stale(3, 0.01, 0.02)),
    silent("GRPOSamplesStale", "clipped for another reason", stale(0, 0.2, 0.2)),
    fires("GRPOScoringErrors", "one completion in ten", scoring(10)),
    silent("GRPOScoringErrors", "one completion in a hundred", scoring(1)),
    fires("GRPOWorkersRestarting", "every ten minutes", {RESTARTS: "1+0.1x120"}),
    silent("GRPOWorkersRestarting", "twice in two hours", {RESTARTS: "1x59 2x60"}),
    fires("GRPOCheckpointOld", "two hours old", {STEP: "0+1x200", CHECKPOINT: "50x200"}, "3h"),
    fires("GRPOCheckpointOld", "there is none", {STEP: "0+1x200"}, "3h"),
    silent(
        "GRPOCheckpointOld", "one an hour", {STEP: "0+1x200", CHECKPOINT: "_x60 60x59 120x60"}, "3h"
    ),
    silent("GRPOCheckpointOld", "a young job without one", {STEP: "0+1x90"}, "90m"),
    silent("GRPOCheckpointOld", "no steps to lose", {STEP: "50x200", CHECKPOINT: "50x200"}, "3h"),
    fires("GRPOLossNotFinite", "the loss is no number", {LOSS: "NaN NaN", NORM: "1 1"}, "1m"),
    fires("GRPOLossNotFinite", "the gradient is infinite", {LOSS: "0 0", NORM: "Inf Inf"}, "1m"),
    silent("GRPOLossNotFinite", "both are numbers", {LOSS: "-0.01x120", NORM: "0.7x120"}),
    fires("GRPOKLHigh", "two nats per token", {job("grpo_kl"): "0+0.02x120"}),
    silent("GRPOKLHigh", "a hundredth", {job("grpo_kl"): "0.01x120"}),
    fires("GRPOEntropyCollapsed", "from 0.8 to nothing", {ENTROPY: "0.8x60 0.001x60"}),
    silent("GRPOEntropyCollapsed", "low from the start", {ENTROPY: "0.015x120"}),
    silent("GRPOEntropyCollapsed", "a slow decline", {ENTROPY: "0.8-0.004x120"}),
    fires("GRPONoGradient", "only empty steps", {NORM: "0x120", STEP: "0+1x120"}),
    silent("GRPONoGradient", "some empty steps", {NORM: "0x110 0.5x10", STEP: "0+1x120"}),
    silent("GRPONoGradient", "no steps at all", {NORM: "0x120", STEP: "3x120"}),
    fires("GRPOOperatorDown", "none is scraped", {"up": "1x120"}),
    fires("GRPOOperatorDown", "it is gone", {LEADER: "1x60 stale _x59"}),
    silent("GRPOOperatorDown", "a replica that only waits is there", {LEADER: "0x120"}),
    fires("GRPOOperatorNotLeading", "both wait", {LEADER: "1x60 0x59", OTHER: "0x120"}),
    fires("GRPOOperatorNotLeading", "both act", {LEADER: "1x120", OTHER: "1x120"}),
    silent(
        "GRPOOperatorNotLeading",
        "two releases with a leader each",
        {
            LEADER: "1x120",
            operator("leader").replace("system", "lab"): "1x120",
        },
    ),
    silent("GRPOOperatorNotLeading", "one acts", {LEADER: "1x120", OTHER: "0x120"}),
    silent("GRPOOperatorNotLeading", "a handover", {LEADER: "1x59 0x59", OTHER: "0x60 1x58"}),
    fires("GRPOOperatorStuck", "jobs but no look", {LOOKS: "0+9x60 540x59", RUNNING: "2x120"}),
    silent("GRPOOperatorStuck", "it looks at them", {LOOKS: "0+9x120", RUNNING: "2x120"}),
    silent("GRPOOperatorStuck", "all jobs are over", {LOOKS: "540x120", ENDED: "2x120"}),
    fires("GRPOOperatorRestarting", "four times", {LOOKS: "0+9x70 0+9x9 0+9x9 0+9x9 0+9x9"}),
    silent("GRPOOperatorRestarting", "once", {LOOKS: "0+9x70 0+9x49"}),
    fires("GRPOOperatorReconcileErrors", "one job every five minutes", {ERRORS: "1+0.2x120"}),
    silent("GRPOOperatorReconcileErrors", "two an hour ago", {ERRORS: "1x59 2x59"}),
    fires("GRPOOperatorAPIErrors", "a tenth with 503", calls(11)),
    fires("GRPOOperatorAPIErrors", "a tenth not answered", calls(11, "0")),
    silent("GRPOOperatorAPIErrors", "one in a hundred", calls(1)),
    silent("GRPOOperatorAPIErrors", "conflicts are normal", calls(50, "409")),
    fires("GRPOJobFailed", "the first one", {LEADER: "1x120", FAILED: "_x114 1x5"}),
    fires(
        "GRPOJobFailed",
        "one more",
        {LEADER: "1x120", FAILED_BEFORE: "1x120", FAILED: "_x114 1x5"},
    ),
    silent("GRPOJobFailed", "it failed long ago", {LEADER: "1x120", FAILED: "1x120"}),
    silent(
        "GRPOJobFailed",
        "another replica reports it",
        {
            LEADER: "1x110 0x9",
            OTHER: "0x110 1x9",
            FAILED: "1x110 stale _x8",
            FAILED.replace("op-1", "op-2"): "_x111 1x8",
        },
    ),
    silent(
        "GRPOJobFailed", "a new operator reports it", {LEADER: "_x114 1x5", FAILED: "_x114 1x5"}
    ),
    fires("GRPOOperatorNamespaceUnserved", "one for an hour", {UNSERVED: "0x60 1x59"}),
    silent("GRPOOperatorNamespaceUnserved", "one for a moment", {UNSERVED: "0x115 1x4"}),
    fires("GRPOOperatorNamespaceClaimed", "two releases", {CLAIMED: "1x120"}),
    silent("GRPOOperatorNamespaceClaimed", "the first is gone", {CLAIMED: "1x60 stale _x59"}),
    fires("GRPOJobsRetrying", "five at once, the first ever", {RETRIES: "_x100 5x19"}),
    fires("GRPOJobsRetrying", "one every ten minutes", {RETRIES: "1+0.1x120"}),
    silent("GRPOJobsRetrying", "two of them", {RETRIES: "_x100 2x19"}),
    silent("GRPOJobsRetrying", "many, long ago", {RETRIES: "9x120"}),
]


def promtool(*arguments: str | Path) -> str:
    """Its output. Fails the test with it when it reports a fault."""
    command = [program("promtool"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_rules_are_valid() -> None:
    assert f"{len(alerts())} rules found" in promtool("check", "rules", RULES)


def test_the_configuration_in_the_documentation_is_valid(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()
    (block,) = (b for b in page.split("```yaml\n") if b.startswith("scrape_configs:"))
    (tmp_path / "prometheus.yml").write_text(block.partition("```")[0])
    (tmp_path / "rules.yaml").write_text(RULES.read_text())
    promtool("check", "config", tmp_path / "prometheus.yml")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_alert(case: Case, tmp_path: Path) -> None:
    firing = f'count(ALERTS{{alertname="{case.alert}", alertstate="firing"}}) or vector(0)'
    expected = [{"labels": "{}", "value": int(case.fires)}]
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": name, "values": values} for name, values in case.series.items()
                ],
                "promql_expr_test": [
                    {"expr": firing, "eval_time": case.at, "exp_samples": expected}
                ],
            }
        ],
    }
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump(test))
    promtool("test", "rules", file)


@pytest.mark.parametrize("fired", [True, False], ids=["fires", "stays silent"])
def test_every_alert_has_a_case_in_which_it(fired: bool) -> None:
    assert {case.alert for case in CASES if case.fires is fired} == {a["alert"] for a in alerts()}
