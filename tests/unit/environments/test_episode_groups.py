"""The episodes of a request over real servers: one opening, repeated episodes of a server that was
restarted, and groups that the environment failed."""

import asyncio
import random
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from grpo_trainer.environments import producing
from grpo_trainer.environments.health import (
    MAX_UNSCORED_FIRST,
    EnvironmentHealth,
    Verdict,
)
from grpo_trainer.environments.producing import EnvironmentOptions, EpisodeRunner
from grpo_trainer.environments.protocol import Reason
from grpo_trainer.environments.running import check_module, running_environment
from grpo_trainer.errors import InvalidInputError, RunFailedError
from grpo_trainer.messages import FinishReason, Rollout
from grpo_trainer.spec.environment import EnvironmentSpec
from unit.environments import chats
from unit.environments.servers import COUNTING, MODULES
from unit.environments.test_episodes import LIMITS, REQUEST, ScriptedEngine

TOKENIZER = chats.tokenizer()


class Speaker:
    """An engine that says what it is asked to, by the number of the turn."""

    def __init__(self, *lines):
        self.lines, self.turns = lines, 0

    async def generate(self, request):
        turn = int(request.request_id.rpartition("/")[2])
        line = self.lines[min(turn, len(self.lines) - 1)]
        text = line() if callable(line) else line
        self.turns += 1
        ids = [*TOKENIZER.encode(text, add_special_tokens=False), TOKENIZER.eos_token_id]
        drawn = (await ScriptedEngine(random.Random(0), ("eos",)).generate(request)).completions[0]
        array = np.array(ids, np.int32)
        spoken = replace(
            drawn,
            token_ids=array,
            logprobs=np.full(len(ids), -1.0, np.float32),
            versions=np.zeros(len(ids), np.int32),
            finish_reason=FinishReason.STOP,
        )
        return Rollout(request.request_id, (spoken,))


@asynccontextmanager
async def runner(engine, url, monkeypatch, unavailable=60.0, slots=8):
    conversation = chats.conversation()
    monkeypatch.setattr(producing, "load_conversation", lambda *_, **__: conversation)
    options = EnvironmentOptions(url, LIMITS, unavailable, slots)
    made = EpisodeRunner(engine, options, "", "", trust_remote_code=False)
    try:
        yield made
    finally:
        await made.close()


def rollout(engine, monkeypatch, tmp_path, *, row, count=3, module=COUNTING):
    async def play():
        spec = EnvironmentSpec(module=module)
        async with (
            running_environment(spec, tmp_path / "log") as found,
            runner(engine, found.url, monkeypatch) as episodes,
        ):
            return await episodes.rollout(replace(REQUEST, num_samples=count, row=row))

    return asyncio.run(play())


def test_a_request_is_answered_by_a_group_of_one_opening(monkeypatch, tmp_path):
    found = rollout(Speaker("a"), monkeypatch, tmp_path, row={"turns": 2})
    assert found.opening.messages[0].content == "count to 2 7"
    assert [c.episode.score.reward for c in found.completions] == [1.0] * 3
    assert [c.episode.score.accuracy for c in found.completions] == [0.5] * 3
    assert EnvironmentHealth().check(found).verdict is Verdict.USE


def test_episodes_of_a_server_that_ends_are_repeated_from_the_start(monkeypatch, tmp_path):
    lives = iter(["exit", *["a"] * 100])
    engine = Speaker("a", lambda: next(lives))
    found = rollout(engine, monkeypatch, tmp_path, row={"turns": 2})
    assert [c.episode.score.reward for c in found.completions] == [1.0] * 3
    assert engine.turns > 6, "no episode was repeated"


def test_an_episode_that_the_environment_fails_in_is_not_scored(monkeypatch, tmp_path):
    found = rollout(Speaker("raise"), monkeypatch, tmp_path, row={"turns": 2})
    assert {c.episode.score.error for c in found.completions} == {Reason.EXCEPTION}
    checked = EnvironmentHealth().check(found)
    assert checked.verdict is Verdict.FAIL
    assert checked.errors == (Reason.EXCEPTION,) * 3


def test_episodes_that_did_not_begin_are_left_out(monkeypatch, tmp_path):
    found = rollout(Speaker("a"), monkeypatch, tmp_path, row={"turns": 1})
    failed = rollout(Speaker("a"), monkeypatch, tmp_path, row={"fails": True}, count=1)
    mixed = replace(found, completions=(*found.completions, *failed.completions))
    checked = EnvironmentHealth().check(mixed)
    assert checked.verdict is Verdict.USE
    assert len(checked.rollout.completions) == len(checked.scores) == 3
    assert checked.errors == (Reason.EXCEPTION,)


def test_openings_that_differ_within_a_group_leave_no_reward(monkeypatch, tmp_path):
    module = f"{MODULES / 'random_opening.py'}:RandomOpening"
    found = rollout(Speaker("a"), monkeypatch, tmp_path, row={}, module=module)
    errors = [c.episode.score.error for c in found.completions]
    assert errors.count(None) >= 1 and set(errors) <= {None, Reason.OPENING}
    assert errors.count(Reason.OPENING) >= 1


def unavailable(monkeypatch):
    async def play():
        async with runner(Speaker("a"), "http://127.0.0.1:9", monkeypatch, 0.1) as episodes:
            return await episodes.rollout(replace(REQUEST, num_samples=2))

    return asyncio.run(play())


def test_an_unavailable_environment_gives_the_prompt_back(monkeypatch):
    checked = EnvironmentHealth().check(unavailable(monkeypatch))
    assert checked.verdict is Verdict.REQUEUE
    assert checked.errors == (Reason.UNAVAILABLE,) * 2
    assert checked.rollout.completions == ()


def test_an_environment_that_stays_unavailable_fails_the_run_with_the_cause(monkeypatch):
    group, health = unavailable(monkeypatch), EnvironmentHealth()
    for _ in range(MAX_UNSCORED_FIRST - 1):
        health.check(group)
    with pytest.raises(RunFailedError, match=r"no episode of 4 groups .*127\.0\.0\.1:9"):
        health.check(group)


def test_an_environment_that_never_scores_is_invalid_input(monkeypatch, tmp_path):
    group, health = rollout(Speaker("raise"), monkeypatch, tmp_path, row={"turns": 2}), None
    health = EnvironmentHealth()
    for _ in range(MAX_UNSCORED_FIRST - 1):
        health.check(group)
    with pytest.raises(InvalidInputError, match=r"spec\.environment: .*ValueError: odd turn"):
        health.check(group)


def test_single_failures_do_not_fail_a_run(monkeypatch, tmp_path):
    bad = rollout(Speaker("raise"), monkeypatch, tmp_path, row={"turns": 2})
    good = rollout(Speaker("a"), monkeypatch, tmp_path, row={"turns": 1})
    health = EnvironmentHealth()
    for _ in range(20):
        health.check(good)
        health.check(bad)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (f"{MODULES / 'broken.py'}:Broken", "ModuleNotFoundError: No module named 'no_such_thing'"),
        (f"{MODULES / 'counting.py'}:Missing", "must be a subclass of Environment"),
        ("nowhere.py:Environment", "there is no such file"),
    ],
)
def test_a_module_that_cannot_be_loaded_is_refused_with_the_reason(module, reason):
    with pytest.raises(InvalidInputError, match=r"spec\.environment\.module: Invalid") as caught:
        check_module(module)
    assert reason in str(caught.value)


def test_a_url_that_nobody_answers_is_refused_within_its_deadline(monkeypatch):
    monkeypatch.setattr("grpo_trainer.environments.running.REACH_SECONDS", 0.5)

    async def reach():
        async with running_environment(EnvironmentSpec(url="http://127.0.0.1:9"), Path("log")):
            raise AssertionError

    with pytest.raises(InvalidInputError, match=r"spec\.environment\.url: .*within 0\.5 s: "):
        asyncio.run(reach())


def test_the_process_of_a_module_ends_with_the_run_and_has_no_token_of_ray(monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")

    async def reach():
        module = f"{MODULES / 'revealing.py'}:Revealing"
        async with running_environment(EnvironmentSpec(module=module), tmp_path / "log") as found:
            assert found.capacity is None
            return found.url

    url = asyncio.run(reach())
    assert (tmp_path / "log").read_text().splitlines()[0] == "RAY_AUTH_TOKEN None"
    monkeypatch.setattr("grpo_trainer.environments.running.REACH_SECONDS", 0.2)
    with pytest.raises(InvalidInputError):
        asyncio.run(_reach(url))


async def _reach(url):
    async with running_environment(EnvironmentSpec(url=url), Path("log")):
        pass
