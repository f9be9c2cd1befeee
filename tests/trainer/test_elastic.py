"""Producers that come and go during a whole run, over real Ray, ColossalAI and transformers.

Aspects: a producer whose process or node receives SIGTERM gives its prompts back while it is
still alive, counts as no failure and loses no prompt, and the consumers continue; a run scales
its producers by itself, within its range.
"""

import json
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from grpo_trainer.builtin import addition_rows
from support.runs import Run, manifest

Start = Callable[..., Run]
SLOW_PRODUCERS = {
    "sampling": {"numGenerations": 2},
    "batch": {"inferenceMicrobatchSize": 1, "trainMicrobatchSize": 16},
}
SLOW_CONSUMERS = {"batch": {"inferenceMicrobatchSize": 8, "trainMicrobatchSize": 1}}
ENDLESS = {
    **{"maxSteps": 5000, "numEpisodes": 100},
    **{"buffer": {"maxStaleness": 2}, "checkpoint": {"interval": 0}},
}
STOPPED = re.compile(r"(producer-\d+) stops: (.+); (\d+) prompts requeued")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    runs: list[Run] = []

    def begin(*arguments: str) -> Run:
        runs.append(Run(tmp_path / "run", *arguments))
        return runs[-1]

    yield begin
    for run in runs:
        run.end()


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose path leaves room for the names of sockets."""
    with tempfile.TemporaryDirectory(prefix="grpo-test-", ignore_cleanup_errors=True) as path:
        yield Path(path)


def add_node(run: Run, places: int) -> subprocess.Popen[bytes]:
    """A node that joins the run's Ray, as a pod of producers does."""
    (raylet,) = [p for p in run.remember_children() if p.name() == "raylet"]
    (address,) = [a for a in raylet.cmdline() if a.startswith("--gcs-address=")]
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block"),
            *("--address", address.partition("=")[2], "--num-cpus", "1"),
            *("--resources", json.dumps({"grpo_producer": places})),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def progress(run: Run) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(run.get("/progress"))
    return body


def ready_producers(run: Run) -> int:
    """0 before the first step, when the driver may not serve yet."""
    if run.steps == 0:
        return 0
    count: int = progress(run)["workers"]["producersReady"]
    return count


def stop(run: Run) -> None:
    """By Ctrl-C, which leaves a checkpoint of the last step."""
    run.process.send_signal(signal.SIGINT)
    assert run.wait(60) == 75, run.output[-3000:]
    assert run.summary["outcome"] == "stopped"
    assert run.summary["newest_checkpoint"].endswith(f"step-{run.steps}")
    assert run.leftovers() == []


def assert_no_prompt_was_lost(run: Run) -> None:
    """Every prompt that was offered and left the buffer ended once, by being trained on."""
    last = run.metrics[-1]
    assert [line["grpo_step"] for line in run.metrics] == list(range(1, run.steps + 1))
    assert last["grpo_groups_total_trained"] == 8 * run.steps
    assert last["grpo_groups_total_dropped"] == 0
    assert last.get("grpo_restarts_total_consumer", 0) == 0


def test_producers_of_a_node_that_is_asked_to_end_give_their_prompts_back_before_they_die(
    start: Start, tmp_path: Path, short: Path
) -> None:
    file = manifest(tmp_path / "job.yaml", **ENDLESS)
    run = start(str(file), "--ray_dir", str(short))
    run.until(lambda: run.steps >= 2)
    own = {actor.pid for actor in run.actors("Producer")}
    node = add_node(run, places=2)
    try:
        run.until(lambda: ready_producers(run) == 3)
        here = run.steps
        run.until(lambda: run.steps >= here + 3)
        node.terminate()
        run.until(lambda: len(STOPPED.findall(run.output)) == 2)
        node.wait(120)
        here = run.steps
        run.until(lambda: run.steps >= here + 5)
        assert progress(run)["workers"] == {
            **{"producersReady": 1, "producersDesired": 1},
            **{"consumersReady": 1, "consumersDesired": 1},
        }
        assert {actor.pid for actor in run.actors("Producer")} == own
        stop(run)
    finally:
        node.kill()
        node.wait(10)
    assert {reason for _, reason, _ in STOPPED.findall(run.output)} == {"its node is draining"}
    assert "was lost" not in run.output
    assert run.metrics[-1].get("grpo_restarts_total_producer", 0) == 0
    assert_no_prompt_was_lost(run)


@dataclass(frozen=True)
class Restarts:
    """A run over all of its data whose producers were asked to end, one after another."""

    run: Run
    rows: int
    stopped: tuple[psutil.Process, ...]


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarts]:
    tmp = tmp_path_factory.mktemp("restarted")
    rows = [json.dumps(row) for row in addition_rows("train")][:1200]
    data = tmp / "data.jsonl"
    data.write_text("\n".join(rows))
    file = manifest(
        tmp / "job.yaml",
        maxSteps=5000,
        numEpisodes=3,
        dataset={"path": str(data)},
        producers={"replicas": 2},
        buffer={"maxStaleness": 2},
        checkpoint={"interval": 0},
        **SLOW_PRODUCERS,
    )
    run = Run(tmp / "run", str(file))
    stopped: list[psutil.Process] = []
    try:
        run.until(lambda: run.steps >= 3 and ready_producers(run) == 2)
        for count in range(3):
            stopped.append(run.actors("Producer")[count % 2])
            stopped[-1].terminate()
            run.until(lambda n=count: len(STOPPED.findall(run.output)) > n)
            here = run.steps
            # The consumers continue while it is replaced.
            run.until(
                lambda here=here: (
                    not stopped[-1].is_running()
                    and ready_producers(run) == 2
                    and run.steps >= here + 5
                )
            )
        assert run.wait() == 0, run.output[-3000:]
        yield Restarts(run, len(rows), tuple(stopped))
    finally:
        run.end()


def test_a_producer_that_is_asked_to_end_gives_its_prompts_back_and_is_replaced(
    restarted: Restarts,
) -> None:
    run, events = restarted.run, STOPPED.findall(restarted.run.output)
    assert {reason for _, reason, _ in events} == {"its process received SIGTERM"}
    assert len(events) == len(set(restarted.stopped)) == 3
    # Its prompts were back before it died.
    assert "was lost" not in run.output
    last = run.metrics[-1]
    assert last.get("grpo_restarts_total_producer", 0) == 0
    assert last["grpo_groups_total_requeued"] >= sum(int(prompts) for *_, prompts in events)
    assert run.leftovers() == []


def test_every_prompt_of_the_data_ends_once_though_producers_go_again_and_again(
    restarted: Restarts,
) -> None:
    run = restarted.run
    assert run.metrics[-1]["grpo_groups_total_requeued"] > 0
    assert run.steps == 3 * restarted.rows / 8
    assert_no_prompt_was_lost(run)


def test_a_run_adds_producers_while_its_consumers_wait(start: Start, tmp_path: Path) -> None:
    producers = {"replicas": 1, "autoscale": {"minReplicas": 1, "maxReplicas": 2}}
    file = manifest(tmp_path / "job.yaml", producers=producers, **SLOW_PRODUCERS, **ENDLESS)
    run = start(str(file))
    run.until(lambda: ready_producers(run) == 2)
    assert progress(run)["producersWanted"] == 2
    here = run.steps
    run.until(lambda: run.steps >= here + 5)
    stop(run)
    assert "2 producers wanted, 1 ready" in run.output
    assert_no_prompt_was_lost(run)


def test_a_run_gives_up_producers_that_only_wait(start: Start, tmp_path: Path) -> None:
    producers = {"replicas": 3, "autoscale": {"minReplicas": 1, "maxReplicas": 3}}
    file = manifest(tmp_path / "job.yaml", producers=producers, **SLOW_CONSUMERS, **ENDLESS)
    run = start(str(file))
    run.until(lambda: ready_producers(run) == 3)
    run.until(lambda: ready_producers(run) < 3)
    here = run.steps
    run.until(lambda: run.steps >= here + 5)
    assert progress(run)["producersWanted"] in (1, 2)
    stop(run)
    assert any(why == "fewer producers are wanted" for _, why, _ in STOPPED.findall(run.output))
    assert_no_prompt_was_lost(run)
