"""Judges: completions per second of a slow endpoint, and CPU time of the driver.

    .venv/bin/python -m benchmarks.judges [--seconds S] [--completions N] [--repeats N]

A local server answers every request after a fixed time, as a judge model under load does. The
driver scores all groups of a step at once; the alternative is the same call in a custom reward,
one at a time in each scoring process.
"""

import argparse
import asyncio
import logging
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from grpo_trainer.messages import Message, Row
from grpo_trainer.rewards import Scorer
from grpo_trainer.spec import RewardSpec

from .table import Spread, load, machine, table

COMPLETIONS = 8
"""Of a group."""
PROCESSES = 8
"""As many as a run has on a large machine."""
DEADLINE_SECONDS = 600.0
CUSTOM = """
import json, urllib.request

def reward(completion, row):
    body = {{"model": "judge", "messages": [{{"role": "user", "content": completion}}]}}
    url = "{url}/v1/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as response:
        text = json.load(response)["choices"][0]["message"]["content"]
    return float(text.removeprefix("Score: "))
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A way to call the judge."""

    name: str
    reward: Callable[[str], RewardSpec]
    """Of the server's address."""
    share: float = 1.0
    """Share of the completions; a slow case scores fewer."""


def judge(concurrent: int) -> Callable[[str], RewardSpec]:
    def made(url: str) -> RewardSpec:
        given = {
            "url": f"{url}/v1",
            "model": "judge",
            "prompt": "How good is this? {completion}",
            "pattern": r"Score: (\S+)",
            "maxConcurrent": concurrent,
        }
        return RewardSpec.model_validate({"type": "judge", "judge": given})

    return made


def custom(url: str) -> RewardSpec:
    directory = tempfile.mkdtemp()
    path = Path(directory) / "judge_reward.py"
    path.write_text(CUSTOM.format(url=url))
    given = {"module": str(path)}
    return RewardSpec.model_validate({"type": "custom", "custom": given, "timeoutSeconds": 60})


CASES = (
    Case(f"custom reward, {PROCESSES} processes", custom, share=0.25),
    Case("judge, 32 at a time", judge(32)),
    Case("judge, 64 at a time", judge(64)),
    Case("judge, 256 at a time", judge(256)),
)


def serve(seconds: float, ready: Connection) -> None:
    """The endpoint; sends its address."""
    from aiohttp import web

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        await asyncio.sleep(seconds)
        message = {"role": "assistant", "content": "Score: 0.5"}
        return web.json_response({"choices": [{"message": message}]})

    async def main() -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
        await site.start()
        ready.send(f"http://127.0.0.1:{runner.addresses[0][1]}")
        await asyncio.Event().wait()

    asyncio.run(main())


@dataclass(frozen=True, slots=True)
class Measured:
    """One repeat."""

    completions: int
    seconds: float
    driver_cpu_seconds: float


async def measure(case: Case, url: str, completions: int, repeats: int) -> list[Measured]:
    groups = max(1, int(completions * case.share / COMPLETIONS))
    row = Row("benchmark", (Message("user", "?"),), answer="4")
    scorer = Scorer(case.reward(url), PROCESSES)
    await scorer.start()
    measured = []
    try:
        for _ in range(repeats):
            texts = [f"completion {number}" for number in range(COMPLETIONS)]
            began, cpu = time.perf_counter(), time.process_time()
            async with asyncio.timeout(DEADLINE_SECONDS):
                scored = await asyncio.gather(*(scorer.score(row, texts) for _ in range(groups)))
            seconds, used = time.perf_counter() - began, time.process_time() - cpu
            assert all(score.reward == 0.5 for scores in scored for score in scores)
            measured.append(Measured(groups * COMPLETIONS, seconds, used))
    finally:
        await scorer.close()
    return measured


def cells(case: Case, measured: Sequence[Measured]) -> list[str]:
    return [
        case.name,
        str(measured[0].completions),
        f"{Spread.of([m.seconds for m in measured]):.1f}",
        f"{Spread.of([m.completions / m.seconds for m in measured]):.1f}",
        f"{Spread.of([1e3 * m.driver_cpu_seconds / m.completions for m in measured]):.2f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="time of one call (2)")
    parser.add_argument("--completions", type=int, default=256, help="of a step (256)")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    os.environ.pop("http_proxy", None)
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(arguments.seconds, theirs), daemon=True)
    process.start()
    try:
        assert ours.poll(60), "the server did not start"
        url = ours.recv()
        print(machine("aiohttp"))
        rows = [
            cells(
                case,
                asyncio.run(measure(case, url, arguments.completions, arguments.repeats)),
            )
            for case in CASES
        ]
    finally:
        process.terminate()
        process.join(10)
    print(f"{arguments.repeats} repeats, {arguments.seconds:g} s a call; at the end {load()}\n")
    head = ["", "completions", "seconds", "completions/s", "driver CPU\nms/completion"]
    print(table(head, rows))


if __name__ == "__main__":
    main()
