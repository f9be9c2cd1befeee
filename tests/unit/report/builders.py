"""Run directories for the report's tests, written by hand."""

import json
from pathlib import Path
from typing import Any


def completion(**fields: Any) -> dict[str, Any]:
    return {
        "source": "train.jsonl:1",
        "prompt": "1+1=",
        "completion": "2",
        "answer": "2",
        "reward": 10.0,
        "accuracy": 1.0,
        "format_accuracy": 1.0,
        "advantage": 0.5,
        "version": 3,
        "response_tokens": 1,
        "finish_reason": "stop",
    } | fields


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_run(directory: Path, *, name: str = "sums", steps: int = 3) -> Path:
    """A run of a few steps with one evaluation and one file of rollouts."""
    directory.mkdir(parents=True)
    manifest = {"metadata": {"name": name}, "spec": {"seed": 1, "sampling": {"topK": 5}}}
    (directory / "spec.json").write_text(json.dumps(manifest))
    (directory / "environment.json").write_text(json.dumps({"torch": "2.13.0"}))
    rows = [
        {"time": "t", "grpo_step": step, "grpo_reward_mean": step / 2, "note": "a note"}
        for step in range(1, steps + 1)
    ]
    write_lines(directory / "metrics.jsonl", rows)
    right = [completion(source=f"row {i}", accuracy=float(i < 3)) for i in range(4)]
    write_lines(directory / "eval" / "held%20out_step_2.jsonl", right)
    write_lines(directory / "rollouts" / "step_1.jsonl", [completion(), completion(reward=None)])
    return directory
