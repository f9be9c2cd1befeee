"""A part in worker processes: asynchronous functions run at once, batches as a whole."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from grpo_trainer.messages import Message, Row, Score
from grpo_trainer.rewards import Scorer
from grpo_trainer.rewards.part_scorers import Results, WorkerScorer
from grpo_trainer.rewards.worker import Failure, FailureReason
from grpo_trainer.spec import RewardSpec, resolve_reward

ROW = Row("data.jsonl row 1", (Message("user", "?"),), answer="4", columns={"level": 3})
MEETING = """
import asyncio

waiting = []

async def reward(completion, row):
    if completion == "hang":
        await asyncio.sleep(1000)
    if completion == "fail":
        raise KeyError("boom")
    future = asyncio.get_running_loop().create_future()
    waiting.append(future)
    if len(waiting) == 3:
        for other in waiting:
            other.set_result(None)
    await future  # ends only if three completions are scored at once
    return len(completion)
"""
BATCH = """
def reward(completions, row):
    if "fail" in completions:
        raise KeyError("boom")
    if "few" in completions:
        return [1.0]
    longest = max(map(len, completions))
    return [{"reward": len(c) / longest, "accuracy": row["level"]} for c in completions]
"""


@asynccontextmanager
async def scorer(tmp_path: Path, source: str, **custom: Any) -> AsyncIterator[WorkerScorer]:
    (tmp_path / "mine.py").write_text(source)
    given = {"module": str(tmp_path / "mine.py"), **custom}
    spec = {"type": "custom", "custom": given, "timeoutSeconds": 20}
    (part,) = resolve_reward(RewardSpec.model_validate(spec))
    made = WorkerScorer(part, workers=1)
    await made.start()
    try:
        yield made
    finally:
        await made.close()


def rewards(results: Results) -> list[float | None]:
    return [result.reward if isinstance(result, Score) else None for result in results]


async def test_an_asynchronous_function_scores_the_completions_of_a_group_at_once(tmp_path):
    async with scorer(tmp_path, MEETING) as made:
        assert rewards(await made.score(ROW, ["a", "bb", "ccc"])) == [1.0, 2.0, 3.0]


async def test_a_call_that_fails_leaves_the_others_scored(tmp_path):
    async with scorer(tmp_path, MEETING) as made:
        results = await made.score(ROW, ["a", "fail", "bb", "ccc"])
    assert rewards(results) == [1.0, None, 2.0, 3.0]
    assert isinstance(results[1], Failure)
    assert results[1].reason is FailureReason.EXCEPTION
    assert "KeyError: 'boom' (mine.py, line 10)" in results[1].detail


async def test_a_call_that_hangs_is_a_timeout_and_the_others_are_scored(tmp_path):
    (tmp_path / "mine.py").write_text(MEETING)
    given = {"module": str(tmp_path / "mine.py")}
    spec = {"type": "custom", "custom": given, "timeoutSeconds": 2}
    (part,) = resolve_reward(RewardSpec.model_validate(spec))
    made = WorkerScorer(part, workers=1)
    await made.start()
    try:
        results = await made.score(ROW, ["hang", "a", "bb", "ccc"])
    finally:
        await made.close()
    assert rewards(results) == [None, 1.0, 2.0, 3.0]
    assert results[0] == Failure(FailureReason.TIMEOUT)


async def test_a_batch_function_sees_a_whole_group(tmp_path):
    async with scorer(tmp_path, BATCH, batch=True) as made:
        results = await made.score(ROW, ["a", "bb", "cccc"])
        assert results == [Score(0.25, 1.0, 3.0), Score(0.5, 1.0, 3.0), Score(1.0, 1.0, 3.0)]
        assert await made.score(ROW, []) == []


@pytest.mark.parametrize(
    ("text", "detail"),
    [("fail", "KeyError: 'boom'"), ("few", "must return a list of 2 results, got 1")],
)
async def test_a_batch_that_fails_leaves_its_group_unscored(tmp_path, text, detail):
    async with scorer(tmp_path, BATCH, batch=True) as made:
        results = await made.score(ROW, ["a", text])
    assert all(isinstance(result, Failure) and detail in result.detail for result in results)


async def test_the_parts_of_a_reward_score_the_same_completions(tmp_path):
    (tmp_path / "mine.py").write_text(BATCH)
    custom = {"module": str(tmp_path / "mine.py"), "batch": True}
    parts = [
        {"name": "right", "type": "boxed"},
        {"name": "length", "type": "custom", "weight": -0.5, "custom": custom},
    ]
    made = Scorer(RewardSpec.model_validate({"parts": parts}), workers=2)
    await made.start()
    try:
        right, wrong = await made.score(ROW, ["\\boxed{4}", "\\boxed{5} "])
        (failed,) = await made.score(ROW, ["fail"])
    finally:
        await made.close()
    assert right == Score(1 - 0.45, 1.0, 1.0, None, {"right": 1.0, "length": 0.9})
    assert wrong == Score(-0.5, 1.0, 0.0, None, {"right": 0.0, "length": 1.0})
    assert failed == Score(None, 0.0, 0.0, "length: exception", {"right": 0.0})
