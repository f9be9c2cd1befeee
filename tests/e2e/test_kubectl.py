"""`kubectl grpo` as users run it, found by kubectl on the PATH, on a job with running pods.

Aspects: list, live table, one job's page; logs of driver, actors and Ray, followed or not;
checkpoints through a pod of the job and, where it has none, through a pod created for it; a copy
that loads; suspension and resumption.
"""

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from transformers import AutoModelForCausalLM, AutoTokenizer

from e2e.deployment import TOOLBOX
from e2e.runs import STEADY, Runs, checkpoint_of, step_of
from kube.harness import Object, is_ready
from kube.operator_harness import phase_of
from kube.plugin import running, table_of

MORE_STEPS = 3
IMAGE = f"--image={TOOLBOX}"
"""Of the pod that reads a volume: nodes pull nothing."""
DRIVER_STEP = re.compile(r"^step (\d+)/\d+  reward ", re.MULTILINE)


def grpo(runs: Runs, *words: str) -> str:
    """What a command prints."""
    return runs.deployment.kubectl("grpo", *words, "-n", runs.namespace)


def following(runs: Runs, *words: str) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    """Inside the block a log is followed."""
    command = ("kubectl", "grpo", "logs", STEADY, "-f", *words, "-n", runs.namespace)
    return running(*command, environment=runs.deployment.environment)


async def current(runs: Runs) -> Object:
    return await runs.jobs.get(STEADY)


async def test_a_running_job_is_listed(steady_runs: Runs) -> None:
    before = await current(steady_runs)

    (row,) = table_of(grpo(steady_runs, "list"))

    assert (row["NAME"], row["PHASE"]) == (STEADY, "Running")
    step, total = row["STEP"].split("/")
    assert step_of(before) <= int(step) < int(total)
    assert float(row["SAMPLES/S"]) > 0


async def test_the_live_table_shows_a_running_job(steady_runs: Runs) -> None:
    (row,) = table_of(grpo(steady_runs, "top", "--once"))

    assert (row["NAME"], row["PHASE"]) == (STEADY, "Running")
    assert (row["PRODUCERS"], row["CONSUMERS"]) == ("1/1", "1/1")
    assert float(row["TOKENS/S"]) > 0


async def test_the_page_of_a_running_job_shows_its_pods_and_its_checkpoint(
    steady_runs: Runs,
) -> None:
    job = await steady_runs.until(STEADY, lambda job: checkpoint_of(job) > 0)

    page = grpo(steady_runs, "status", STEADY)

    assert "Phase:       Running (Running)" in page
    for pod in await steady_runs.jobs.pods():
        name, role = pod["metadata"]["name"], pod["metadata"]["labels"]["grpo-operator.io/role"]
        assert re.search(rf"^ +{name} +{role} +Ready ", page, re.MULTILINE), page
    printed = re.search(r"^Checkpoint: +step (\d+), \d+[sm] ago, (\S+)$", page, re.MULTILINE)
    assert printed, page
    directory = steady_runs.deployment.run_directory(job)
    assert printed[2] == f"/data/runs/{directory.name}/checkpoints/step-{printed[1]}"
    assert int(printed[1]) <= steady_runs.newest_checkpoint(job)


async def test_the_log_is_what_the_driver_prints(steady_runs: Runs) -> None:
    reached = step_of(await current(steady_runs))

    printed = grpo(steady_runs, "logs", STEADY, "--tail=20")

    assert len(printed.splitlines()) == 20
    assert int(DRIVER_STEP.findall(printed)[-1]) >= reached


@pytest.mark.parametrize(
    ("role", "text"),
    [
        ("producers", ":actor_name:Producer"),
        ("consumers", ":actor_name:Consumer"),
        ("head", "Ray runtime started."),
    ],
)
async def test_the_log_of_a_role_is_what_its_pods_print(
    steady_runs: Runs, role: str, text: str
) -> None:
    assert text in grpo(steady_runs, "logs", STEADY, f"--role={role}", "--tail=1000")


async def test_a_log_is_followed_until_the_user_has_enough(steady_runs: Runs) -> None:
    reached = step_of(await current(steady_runs))

    async with following(steady_runs, "--tail=1") as log, asyncio.timeout(60):
        assert log.stdout is not None
        async for line in log.stdout:
            step = DRIVER_STEP.match(line.decode())
            if step and int(step[1]) > reached + MORE_STEPS:
                break
        log.send_signal(signal.SIGINT)
        await log.wait()

    assert log.returncode == 130


async def test_checkpoints_are_listed_through_a_pod_of_the_job(steady_runs: Runs) -> None:
    job = await steady_runs.until(STEADY, lambda job: checkpoint_of(job) > 0)

    printed = grpo(steady_runs, "checkpoints", STEADY)

    listed = {int(line.split()[0]) for line in printed.splitlines()[1:]}
    assert max(listed) >= checkpoint_of(job)
    names = {p["metadata"]["name"] for p in await steady_runs.jobs.pods()}
    assert not any("-reader-" in name for name in names)


@dataclass(frozen=True)
class Resting:
    """The job while it is suspended, and what there was of its log up to then."""

    runs: Runs
    log: str
    end_of_log: str
    code: int | None


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def resting(steady_runs: Runs) -> AsyncIterator[Resting]:
    """Suspends the job for the tests that want it so, which come last; a log of it is followed."""
    async with following(steady_runs) as log:
        assert log.stdout is not None
        first = await asyncio.wait_for(log.stdout.readline(), 60)
        grpo(steady_runs, "suspend", STEADY)
        grpo(steady_runs, "wait", STEADY, "--for=Suspended", "--timeout=3m")
        rest, end = await asyncio.wait_for(log.communicate(), 60)
    yield Resting(steady_runs, (first + rest).decode(), end.decode(), log.returncode)
    grpo(steady_runs, "resume", STEADY)
    grpo(steady_runs, "wait", STEADY, "--for=Running", "--timeout=3m")


async def test_a_followed_log_ends_with_the_attempt_and_says_how(resting: Resting) -> None:
    reached = resting.runs.newest_checkpoint(await current(resting.runs))

    assert int(DRIVER_STEP.findall(resting.log)[-1]) == reached
    assert resting.end_of_log == f"{STEADY}: Suspended at step {reached} (Suspended)\n"
    assert resting.code == 0


async def until_no_pod(runs: Runs) -> None:
    await runs.jobs.until_pods(lambda pods: not pods)


async def test_a_suspended_job_has_no_pods_and_its_page_shows_how_to_resume(
    resting: Resting,
) -> None:
    runs = resting.runs
    assert await runs.jobs.pods() == []

    page = grpo(runs, "status", STEADY)

    assert "Phase:       Suspended (Suspended)" in page
    assert "  kubectl grpo resume steady\n" in page


async def test_the_checkpoints_of_a_job_without_pods_are_listed_by_a_pod_that_is_gone_then(
    resting: Resting,
) -> None:
    runs = resting.runs
    job = await current(runs)

    printed = grpo(runs, "checkpoints", STEADY, IMAGE)

    rows = [line.split() for line in printed.splitlines()[1:]]
    directory = runs.deployment.run_directory(job) / "checkpoints"
    there = {path.name for path in directory.glob("step-*")}
    assert {f"step-{row[0]}" for row in rows} == there
    assert {row[3] for row in rows} == {"yes"}
    await until_no_pod(runs)


async def test_the_newest_checkpoint_is_copied_whole_and_loads(
    resting: Resting, tmp_path: Path
) -> None:
    runs = resting.runs
    job = await current(runs)
    newest = runs.newest_checkpoint(job)
    copy = tmp_path / "copy"

    printed = grpo(runs, "copy-checkpoint", STEADY, str(copy), IMAGE)

    assert printed.startswith(f"step-{newest} of {STEADY}, ")
    directory = runs.deployment.run_directory(job) / "checkpoints" / f"step-{newest}"
    assert contents(copy) == contents(directory)
    prompt = AutoTokenizer.from_pretrained(copy)("1+1=", return_tensors="pt")
    model = AutoModelForCausalLM.from_pretrained(copy)
    assert model.generate(**prompt, max_new_tokens=4).shape[1] > prompt["input_ids"].shape[1]
    await until_no_pod(runs)


def contents(directory: Path) -> dict[Path, bytes]:
    """All files below a directory."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory): path.read_bytes() for path in files}


async def test_a_resumed_job_continues_where_it_was(resting: Resting) -> None:
    runs = resting.runs
    before = await current(runs)
    reached = runs.steps(before)[-1]

    assert grpo(runs, "resume", STEADY) == f"{STEADY}: resuming\n"
    printed = grpo(runs, "wait", STEADY, "--for=Running", "--timeout=3m")

    assert printed.startswith(f"{STEADY}: Running at step ")
    after = await runs.until_step(STEADY, reached + MORE_STEPS)
    assert phase_of(after) == "Running"
    steps = runs.steps(after)
    assert steps == list(range(1, len(steps) + 1))
    assert all(is_ready(pod) for pod in await runs.jobs.pods())
