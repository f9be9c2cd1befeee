"""A whole run with a reward of several parts, a judge among them, and evaluations of several
samples."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from support.runs import Run, manifest
from support.services import chat_message, service

EVALUATION = {
    "interval": 2,
    "samples": 2,
    "sets": [
        {"name": "sampled", "path": "builtin://addition-held-out"},
        {
            "name": "greedy",
            "path": "builtin://addition-held-out",
            "samples": 1,
            "temperature": 0,
        },
    ],
    "reward": {"type": "boxed"},
}


def respond(body: Any) -> web.Response:
    """Longer completions have a lower score."""
    return chat_message(f"Score: {1 / len(body['messages'][0]['content']):.4f}")


async def test_a_run_trains_on_all_parts_and_evaluates_with_a_reward_of_its_own(tmp_path: Path):
    models = {"data": [{"id": "short"}]}
    async with service(respond, "/v1/chat/completions", get=models) as judge:
        parts = [
            {"name": "right", "type": "boxed", "weight": 2.0},
            {
                "name": "brief",
                "type": "judge",
                "weight": 0.5,
                "judge": {
                    "url": f"{judge.url}/v1",
                    "model": "short",
                    "prompt": "{completion}",
                    "pattern": r"Score: (\S+)",
                },
            },
        ]
        reward = {"type": "think_answer_tags", "parts": parts}  # the base has another type
        path = manifest(
            tmp_path / "job.yaml",
            reward=reward,
            evaluation=EVALUATION,
            maxSteps=2,
            rollouts={"logInterval": 1},
        )
        run = Run(tmp_path / "run", str(path))
        try:
            code = await asyncio.to_thread(run.wait)
        finally:
            run.end()
    assert code == 0, run.output[-3000:]
    last = run.metrics[-1]
    right, brief = (last[f"grpo_reward_part_mean_{name}"] for name in ("right", "brief"))
    assert 0 < brief < 1
    assert last["grpo_reward_mean"] == pytest.approx(2 * right + 0.5 * brief)
    rollouts = [*map(json.loads, (tmp_path / "run/rollouts/step_1.jsonl").read_text().splitlines())]
    assert all(row["reward_parts"].keys() == {"right", "brief"} for row in rollouts)
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    found = {row["dataset"]: row for row in rows if row["event"] == "evaluation"}
    assert found["sampled"]["samples"] == 2 * found["greedy"]["samples"]
    assert found["sampled"]["pass_at_2"] >= found["sampled"]["grpo_eval_accuracy"]
    assert found["sampled"]["standard_error"] > 0
    assert "pass_at_2" not in found["greedy"]
    # Rollouts alone are judged.
    assert len(judge.bodies) >= 2 * 8 * 4
    assert len(judge.bodies) < found["sampled"]["samples"]
