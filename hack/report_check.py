"""Checks the page of `grpo report` in headless Chromium: filters, selection, themes, widths, size.

    python hack/report_check.py [--chromium /usr/bin/chromium] [--screenshots DIRECTORY]

Makes two runs with 50 MB of completions each, opens their page, and fails at the first assertion.
"""

import argparse
import asyncio
import base64
import itertools
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import aiohttp

from grpo_trainer.cli import main as grpo

SECONDS = 60.0
MEGABYTES = 50


def write_run(directory: Path, name: str, seed: int) -> Path:
    """A run of 200 steps with about 50 MB of completions of uneven length."""
    rng = random.Random(seed)
    for folder in ("rollouts", "eval"):
        (directory / folder).mkdir(parents=True)
    spec = {"seed": seed, "model": {"path": "acme/model"}}
    manifest = {"metadata": {"name": name}, "spec": spec}
    (directory / "spec.json").write_text(json.dumps(manifest))
    environment = {"python": "3.11.7", "torch": "2.13.0", "command": f"grpo run {name}.yaml"}
    (directory / "environment.json").write_text(json.dumps(environment))
    metrics = []
    for step in range(1, 201):
        skill = 1 - 0.97**step
        metrics.append(
            {
                "grpo_step": step,
                "grpo_total_steps": 200,
                "grpo_reward_mean": 10 * skill + rng.gauss(0, 0.6),
                "grpo_reward_part_mean_answer": skill,
                "grpo_reward_part_mean_form": min(1.0, 2 * skill),
                "grpo_entropy": 1 - 0.6 * skill,
                "grpo_consumer_idle_ratio": abs(rng.gauss(0, 0.05)),
            }
        )
        if step % 10 == 0:
            rows = [_row(rng, step, skill) for _ in range(64)]
            write(directory / "eval" / f"held-out_step_{step}.jsonl", rows)
    write(directory / "metrics.jsonl", metrics)
    share = MEGABYTES * 1_000_000 // 10 * 9 // 10
    for step in range(20, 201, 20):
        rows, size = [], 0
        while size < share:
            rows.append(_row(rng, step, step / 200))
            size += len(rows[-1]["completion"]) + 260
        write(directory / "rollouts" / f"step_{step}.jsonl", rows)
    return directory


def _row(rng: random.Random, step: int, skill: float) -> dict[str, Any]:
    a, b = rng.randrange(100), rng.randrange(100)
    right = rng.random() < skill
    words = ["thinking "] * rng.randrange(10, 160)
    tokens = [*words, f"\\boxed{{{a + b if right else a}}}", "<|im_end|>"]
    text = "".join(tokens[:-1])
    with_tokens = rng.random() < 0.02  # a step in fifty
    return {
        "source": f"train.jsonl:{a}",
        "prompt": f"{a}+{b}=",
        "completion": text,
        "answer": str(a + b),
        "reward": 10.0 * right,
        "accuracy": float(right),
        "format_accuracy": 1.0,
        "advantage": 0.1,
        "version": step - 1,
        "response_tokens": len(text) // 5,
        "finish_reason": "stop",
        "reward_parts": {"answer": float(right), "form": 1.0},
    } | (
        {
            "tokens": tokens,
            "log_ratios": [*(round(rng.gauss(0, 0.2), 3) for _ in tokens[:-1]), None],
        }
        if with_tokens
        else {}
    )


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


class Page:
    """One tab, spoken to by the DevTools protocol."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket, self._ids = socket, itertools.count(1)

    async def call(self, method: str, **parameters: Any) -> Any:
        number = next(self._ids)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            answer = await self._socket.receive_json(timeout=SECONDS)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    async def run(self, script: str) -> Any:
        """The value of an expression, awaited if it is a promise."""
        found = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def size(self, width: int, height: int) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    async def screenshot(self, path: Path) -> None:
        found = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(found["data"]))


READY = """new Promise((done) => { const look = () => document.body?.dataset.ready
    ? done(performance.now()) : requestAnimationFrame(look); look(); })"""
SET = """(name, value) => { const field = document.getElementById('filters')[name];
    field.value = value; const began = performance.now();
    field.dispatchEvent(new Event('input', {bubbles: true})); return performance.now() - began; }"""
SCROLL = """new Promise((done) => { const list = document.getElementById('list');
    let worst = 0, n = 0;
    const step = () => { const began = performance.now(); list.scrollTop += 4000;
        list.dispatchEvent(new Event('scroll')); worst = Math.max(worst, performance.now() - began);
        ++n < 60 ? requestAnimationFrame(step) : done(worst); }; step(); })"""
OPEN_TOKENS = """(() => { const list = document.getElementById('list'); list.scrollTop = 0;
    for (let n = 0; n < 3000 && !document.querySelector('.tokens'); n++)
        list.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowDown'})); })()"""
WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


async def check(page: Page, url: str, screenshots: Path | None) -> None:
    """Every behaviour in turn; prints what was measured."""
    await page.call("Page.enable")
    await page.size(1400, 1000)
    await page.call("Page.navigate", url=url)
    print(f"ready after {await page.run(READY):.0f} ms")
    charts = await page.run("document.querySelectorAll('.chart .main-svg').length > 0")
    assert charts, "no chart was drawn"
    total = await page.run("document.getElementById('count').textContent")
    print(total)

    search = await page.run(f"({SET})('text', 'boxed{{77}}')")
    shown = await page.run("[...document.querySelectorAll('.row')].map(r => r.textContent)")
    assert shown and all("boxed{77}" in row for row in shown), shown[:2]
    print(
        f"search {search:.0f} ms: {await page.run('document.getElementById(`count`).textContent')}"
    )

    print(f"filter {await page.run(f'({SET})(`low`, 5)'):.0f} ms")
    rewards = await page.run(
        "[...document.querySelectorAll('.row span:nth-child(2)')].map(r => r.textContent)"
    )
    assert rewards and set(rewards) == {"10.00"}, rewards
    await page.run(f"({SET})('text', '')")
    await page.run(f"({SET})('low', '')")
    assert await page.run("document.getElementById('count').textContent") == total

    print(f"scroll, longest row update {await page.run(SCROLL):.1f} ms")
    await page.run("document.querySelectorAll('.row')[12].click()")
    detail = await page.run("document.getElementById('detail').textContent")
    assert "reference answer" in detail and "boxed{" in detail
    assert "reward part form" in detail, detail[-300:]
    await _tokens(page)
    await _shots(page, screenshots)


async def _tokens(page: Page) -> None:
    """A completion whose tokens were logged has a span for each, in three colours."""
    await page.run(OPEN_TOKENS)
    colours = await page.run(
        "[...document.querySelectorAll('.tokens span')].map(s => getComputedStyle(s).background)"
    )
    texts = await page.run("[...document.querySelectorAll('.tokens span')].map(s => s.textContent)")
    assert texts[-1] == "<|im_end|>" and texts[0] == "thinking ", texts[:3]
    assert len(set(colours)) > 3, colours[:3]
    title = await page.run("document.querySelector('.tokens span').title")
    assert title.startswith("log-ratio "), title
    print(f"tokens: {len(texts)} in one completion, {len(set(colours))} colours")


async def _shots(page: Page, screenshots: Path | None) -> None:
    async def shot(name: str) -> None:
        if screenshots is not None:
            await page.screenshot(screenshots / f"report-{name}.png")

    await page.run("window.scrollTo(0, 0)")
    await shot("curves")
    await page.run("document.getElementById('completions').scrollIntoView()")
    await shot("completions")
    before = await page.run("getComputedStyle(document.body).backgroundColor")
    await page.run("document.getElementById('theme').click(); window.scrollTo(0, 0)")
    after = await page.run("getComputedStyle(document.body).backgroundColor")
    assert before != after, "the theme did not change"
    await shot("dark")
    await page.run("document.getElementById('theme').click()")
    await page.size(420, 900)
    await asyncio.sleep(0.5)  # Plotly redraws some frames after the resize
    assert await page.run(WIDE) <= 0, "the page scrolls sideways at 420 pixels"
    await shot("narrow")
    await page.run("const only = document.getElementById('differences'); only.click()")
    fields = await page.run(
        "[...document.querySelectorAll('#settings tr td:first-child')].map(c => c.textContent)"
    )
    assert fields == ["spec.seed"], fields
    print("theme, narrow window and differences: as expected")


async def browse(chromium: str, page: Path, screenshots: Path | None) -> None:
    with tempfile.TemporaryDirectory() as profile:
        browser = await asyncio.create_subprocess_exec(
            chromium,
            *("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"),
            f"--user-data-dir={profile}",
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            assert browser.stderr is not None
            while b"DevTools listening on" not in (line := await browser.stderr.readline()):
                assert line, "Chromium did not start"
            port = line.decode().split("/")[2].rpartition(":")[2]
            async with aiohttp.ClientSession() as session:
                async with session.put(f"http://127.0.0.1:{port}/json/new?about:blank") as answer:
                    target = (await answer.json())["webSocketDebuggerUrl"]
                async with session.ws_connect(target, max_msg_size=0) as socket:
                    await check(Page(socket), page.resolve().as_uri(), screenshots)
        finally:
            browser.terminate()
            await browser.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--screenshots", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        runs = [write_run(Path(work) / name, name, seed) for seed, name in enumerate("ab")]
        page = Path(work) / "report.html"
        assert grpo(["report", *map(str, runs), "-o", str(page)]) == 0
        print(f"page {page.stat().st_size / 1e6:.1f} MB")
        asyncio.run(asyncio.wait_for(browse(arguments.chromium, page, arguments.screenshots), 300))
    return 0


if __name__ == "__main__":
    sys.exit(main())
