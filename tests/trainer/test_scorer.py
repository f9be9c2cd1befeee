"""The scorer with real processes: order, deadlines, crashes, replacement, concurrency, shutdown."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from grpo_trainer.errors import InvalidInputError
from grpo_trainer.messages import Message, Row, Score
from grpo_trainer.rewards import RIGHT_REWARD, WRONG_REWARD, Scorer
from grpo_trainer.rewards.scorer import MAX_UNSCORED, MAX_UNSCORED_FIRST
from grpo_trainer.spec.reward import CustomRewardSpec, RewardSpec, RewardType

ROW = Row("data.jsonl row 1", (Message("user", "?"),), answer="12")
TIMEOUT = 4.0  # for completions that hang; a loaded machine must score the others well within
TOWER = r"\boxed{9^{9^{9^{9}}}}"
REWARD = """
import os, sys, time

def reward(completion, row):
    match completion.split():
        case ["pid"]:
            return os.getpid()
        case ["hang"]:
            time.sleep(1000)
        case ["compute"]:
            return 9 ** (9 ** 9 ** 9)
        case ["crash"]:
            os._exit(3)
        case ["exit"]:
            sys.exit("no")
        case ["none"]:
            return None
        case ["raise"]:
            raise KeyError("boom")
        case ["print"]:
            print("noise")
            return 1.0
        case ["heavy"]:
            return sum(name in sys.modules for name in ("torch", "ray", "transformers"))
        case ["meet", mode, path]:
            with open(path, mode):  # a FIFO opens when both ends do
                return 1.0
        case [number]:
            return float(number)
"""


@pytest.fixture
def spec(tmp_path: Path) -> RewardSpec:
    (tmp_path / "mine.py").write_text(REWARD)
    custom = CustomRewardSpec(module=str(tmp_path / "mine.py"))
    return RewardSpec(type=RewardType.CUSTOM, custom=custom, timeout_seconds=TIMEOUT)


@asynccontextmanager
async def running(spec: RewardSpec, workers: int = 1) -> AsyncIterator[Scorer]:
    scorer = Scorer(spec, workers)
    await scorer.start()
    try:
        yield scorer
    finally:
        await scorer.close()


def rewards(scores: tuple[Score, ...]) -> list[float | None]:
    return [score.reward for score in scores]


async def worker_of(scorer: Scorer) -> int:
    (score,) = await scorer.score(ROW, ["pid"])
    assert score.reward is not None
    return int(score.reward)


def ends(pid: int, seconds: float = 30) -> bool:
    """Whether the process has exited, or exits in time."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


async def test_scores_come_in_the_order_of_the_completions_one_each(spec):
    texts = [str(number) for number in range(50)]
    async with running(spec) as scorer:
        assert rewards(await scorer.score(ROW, texts)) == [float(text) for text in texts]
        assert await scorer.score(ROW, []) == ()


async def test_a_completion_that_hangs_is_a_timeout_and_the_others_are_scored(spec):
    async with running(spec) as scorer:
        before = await worker_of(scorer)
        scores = await scorer.score(ROW, ["1", "hang", "2", "hang", "3"])
        assert rewards(scores) == [1.0, None, 2.0, None, 3.0]
        assert [score.error for score in scores] == [None, "timeout", None, "timeout", None]
        assert await worker_of(scorer) != before
        assert ends(before)


async def test_a_hung_computation_that_no_signal_handler_could_stop_is_a_timeout(spec):
    async with running(spec) as scorer:
        scores = await scorer.score(ROW, ["compute", "1"])
    assert [(score.reward, score.error) for score in scores] == [(None, "timeout"), (1.0, None)]


async def test_a_completion_that_kills_its_worker_is_a_crash_and_the_others_are_scored(spec):
    async with running(spec) as scorer:
        before = await worker_of(scorer)
        scores = await scorer.score(ROW, ["1", "crash", "2"])
        assert rewards(scores) == [1.0, None, 2.0]
        assert scores[1] == Score(None, 0.0, 0.0, "crash")
        assert await worker_of(scorer) != before


async def test_an_exception_is_an_error_and_its_worker_continues(spec, caplog):
    async with running(spec) as scorer:
        before = await worker_of(scorer)
        scores = await scorer.score(ROW, ["raise", "1", "exit", "nan", "raise"])
        assert await worker_of(scorer) == before
    assert rewards(scores) == [None, 1.0, None, None, None]
    assert {score.error for score in scores} == {None, "exception"}
    messages = [record.getMessage() for record in caplog.records]
    (logged,) = [
        message for message in messages if "KeyError: 'boom' (mine.py, line 19)" in message
    ]
    assert logged.startswith("data.jsonl row 1: a completion could not be scored: ")
    assert 'mine.py", line 19, in reward' in logged


async def test_a_worker_that_died_while_idle_is_replaced_and_every_completion_is_scored(spec):
    async with running(spec) as scorer:
        pid = await worker_of(scorer)
        os.kill(pid, signal.SIGKILL)
        assert ends(pid)
        assert rewards(await scorer.score(ROW, ["1", "2"])) == [1.0, 2.0]


async def test_a_reward_of_none_is_unscored_and_not_wrong(spec):
    async with running(spec) as scorer:
        assert await scorer.score(ROW, ["none"]) == (Score(None, 0.0, 0.0, "none"),)


async def test_a_reward_that_scores_nothing_from_the_start_is_invalid(spec):
    async with running(spec) as scorer:
        for _ in range(MAX_UNSCORED_FIRST - 1):
            await scorer.score(ROW, ["raise", "none"])
        with pytest.raises(InvalidInputError, match=r"of 4 groups .*\(exception, none\): KeyError"):
            await scorer.score(ROW, ["raise", "none"])


async def test_a_reward_that_no_longer_scores_anything_is_a_retryable_failure(spec):
    async with running(spec) as scorer:
        await scorer.score(ROW, ["1"])
        for _ in range(MAX_UNSCORED - 1):
            await scorer.score(ROW, ["raise"])
        with pytest.raises(RuntimeError, match="of 64 groups could be scored"):
            await scorer.score(ROW, ["raise"])


async def test_one_score_resets_the_count_of_groups_without_any(spec):
    async with running(spec) as scorer:
        for _ in range(3):
            for _ in range(MAX_UNSCORED_FIRST - 1):
                await scorer.score(ROW, ["raise"])
            await scorer.score(ROW, ["raise", "1"])


async def test_what_a_reward_prints_does_not_disturb_the_scores(spec):
    async with running(spec) as scorer:
        assert rewards(await scorer.score(ROW, ["print", "2"])) == [1.0, 2.0]


async def test_workers_load_none_of_the_training_libraries(spec):
    async with running(spec) as scorer:
        assert rewards(await scorer.score(ROW, ["heavy"])) == [0.0]
    check = (
        "import sys, grpo_trainer.rewards.worker\n"
        "from grpo_trainer.rewards import make_reward\n"
        "from grpo_trainer.spec.reward import RewardSpec\n"
        "make_reward(RewardSpec(type='boxed'))\n"
        "sys.exit(bool({'torch', 'ray', 'transformers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", check], timeout=120).returncode == 0


async def test_two_workers_score_two_groups_at_once(spec, tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    async with running(spec, workers=2) as scorer:
        groups = [scorer.score(ROW, [f"meet {mode} {path}"]) for mode in "rw"]
        assert [rewards(scores) for scores in await asyncio.gather(*groups)] == [[1.0], [1.0]]


async def test_there_are_never_more_workers_than_requested(spec):
    async with running(spec, workers=2) as scorer:
        groups = await asyncio.gather(*(scorer.score(ROW, ["pid"] * 3) for _ in range(20)))
    assert len({score.reward for scores in groups for score in scores}) <= 2


async def test_the_scores_of_a_cancelled_group_do_not_reach_the_next(spec):
    async with running(spec) as scorer:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await scorer.score(ROW, ["7", "hang", "8"])
        assert rewards(await scorer.score(ROW, ["1", "2", "3"])) == [1.0, 2.0, 3.0]


async def test_closing_ends_the_workers_and_pending_calls(spec):
    scorer = Scorer(spec, 1)
    await scorer.start()
    pid = await worker_of(scorer)
    waiting = [asyncio.create_task(scorer.score(ROW, ["hang"])) for _ in range(2)]
    await asyncio.sleep(0)
    await scorer.close()
    assert ends(pid, seconds=0)
    for error in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(error, RuntimeError)
    with pytest.raises(RuntimeError, match="closed"):
        await scorer.score(ROW, ["1"])


async def test_a_reward_that_cannot_be_loaded_fails_at_the_start(tmp_path):
    custom = CustomRewardSpec(module=str(tmp_path / "absent.py"))
    scorer = Scorer(RewardSpec(type=RewardType.CUSTOM, custom=custom), 3)
    with pytest.raises(InvalidInputError, match=r"absent\.py"):
        await scorer.start()


async def test_a_worker_that_cannot_start_is_an_error_and_not_a_score(tmp_path):
    (tmp_path / "mine.py").write_text("import os; os._exit(1)")
    custom = CustomRewardSpec(module=str(tmp_path / "mine.py"))
    with pytest.raises(RuntimeError, match="did not start"):
        await Scorer(RewardSpec(type=RewardType.CUSTOM, custom=custom), 1).start()


def test_no_workers_at_all_is_refused(spec):
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Scorer(spec, 0)


@pytest.mark.parametrize("busy", ["pid", "hang", "compute"])
def test_workers_end_when_their_parent_is_killed(spec, busy):
    script = f"""
import asyncio
from grpo_trainer.messages import Row
from grpo_trainer.rewards import Scorer
from grpo_trainer.spec.reward import RewardSpec

async def main():
    scorer = Scorer(RewardSpec.model_validate_json({spec.model_dump_json()!r}), 1)
    await scorer.start()
    row = Row("row", ())
    (score,) = await scorer.score(row, ["pid"])
    task = asyncio.create_task(scorer.score(row, [{busy!r}]))
    await asyncio.sleep(0.5)
    print(int(score.reward), flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    assert ends(pid)


async def test_a_tower_of_powers_times_out_and_the_rest_of_its_group_is_scored():
    spec = RewardSpec(type=RewardType.BOXED, timeout_seconds=TIMEOUT)
    async with running(spec) as scorer:
        scores = await scorer.score(ROW, [r"\boxed{\frac{24}{2}}", TOWER, r"\boxed{12}", "12"])
    assert rewards(scores) == [RIGHT_REWARD, None, RIGHT_REWARD, WRONG_REWARD]
    assert scores[1].error == "timeout"


def test_mathematics_is_scored_from_an_event_loop_off_the_main_thread():
    async def score() -> tuple[Score, ...]:
        async with running(RewardSpec(type=RewardType.BOXED)) as scorer:
            return await scorer.score(
                Row("row", (), answer=r"\frac{\sqrt{3}}{3}"), [r"\boxed{\frac{1}{\sqrt{3}}}"]
            )

    async def in_a_thread() -> tuple[Score, ...]:
        return await asyncio.to_thread(asyncio.run, score())

    assert rewards(asyncio.run(in_a_thread())) == [RIGHT_REWARD]
