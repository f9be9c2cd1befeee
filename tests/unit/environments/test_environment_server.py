"""The one-file server and the client: episodes, errors with their place, capacity, lost episodes,
tools; the file needs nothing but the standard library."""

import asyncio
import json
import shutil
import subprocess
import sys

import pytest

from grpo_trainer.environments import sdk
from grpo_trainer.environments.client import EnvironmentClient
from grpo_trainer.environments.protocol import EnvironmentFaultError, Reason
from unit.environments.servers import MODULES, served


@pytest.fixture(scope="module")
def url():
    with served("Counting") as address:
        yield address


def episode(url, row, turns, seed=5):
    """The task, the observations, and what ended it."""

    async def play():
        client = EnvironmentClient(url)
        environment, seen = client.episode(), []
        try:
            task = await environment.reset(row, seed)
            for turn in turns:
                seen.append(await environment.step(turn))
            return task, seen
        finally:
            await environment.close()
            await client.close()

    return asyncio.run(play())


def fault(url, row, turns=()):
    with pytest.raises(EnvironmentFaultError) as caught:
        episode(url, row, turns)
    return caught.value


def health(url):
    async def ask():
        client = EnvironmentClient(url)
        try:
            return await client.health()
        finally:
            await client.close()

    return asyncio.run(ask())


@pytest.mark.parametrize("cls", ["Counting", "Async"])
def test_an_episode_is_opened_answered_and_scored(cls):
    with served(cls) as url:
        task, [first, last] = episode(url, {"turns": 2}, ["a", "b"])
    assert task.messages[0].content == "count to 2 5"
    assert [m.content for m in first.messages] == ["1"] and not first.done
    assert (last.done, last.reward, last.metrics) == (True, 1.0, {"accuracy": 0.5})


def test_health_has_roles_and_capacity(url):
    assert (health(url).roles, health(url).capacity) == (("user",), 3)


def test_what_the_environment_raises_has_its_type_text_and_place(url):
    error = fault(url, {"turns": 2}, ["raise"])
    assert error.reason is Reason.EXCEPTION
    assert "ValueError: odd turn (counting.py:" in error.detail
    assert fault(url, {"fails": True}).reason is Reason.EXCEPTION


def test_an_answer_that_cannot_be_used_names_the_field(url):
    error = fault(url, {"turns": 2}, ["number"])
    assert error.reason is Reason.INVALID
    assert "reward must be a finite number" in error.detail


def test_a_server_that_is_full_or_not_there_is_unavailable(url):
    async def crowd():
        client = EnvironmentClient(url)
        environments = [client.episode() for _ in range(4)]
        try:
            for environment in environments[:3]:
                await environment.reset({"turns": 1}, 0)
            with pytest.raises(EnvironmentFaultError) as caught:
                await environments[3].reset({"turns": 1}, 0)
            await environments[0].close()
            await environments[3].reset({"turns": 1}, 0)
            return caught.value
        finally:
            for environment in environments:
                await environment.close()
            await client.close()

    assert asyncio.run(crowd()).reason is Reason.UNAVAILABLE
    nobody = fault("http://127.0.0.1:9", {"turns": 1})
    assert nobody.reason is Reason.UNAVAILABLE and "127.0.0.1:9" in nobody.detail
    assert fault("http://no.such.host.invalid", {}).reason is Reason.UNAVAILABLE


def test_an_episode_that_the_server_does_not_have_is_unavailable(url):
    async def step():
        client = EnvironmentClient(url)
        environment = client.episode()
        try:
            await environment.reset({"turns": 1}, 0)
            await environment.close()
            await environment.step("a")
        finally:
            await client.close()

    with pytest.raises(EnvironmentFaultError) as caught:
        asyncio.run(step())
    assert caught.value.reason is Reason.UNAVAILABLE


def test_an_episode_that_nobody_steps_is_closed_by_a_later_one():
    async def abandon(url):
        client = EnvironmentClient(url)
        first, second = client.episode(), client.episode()
        try:
            await first.reset({"turns": 2}, 0)
            await second.reset({"turns": 2}, 0)
            await first.step("a")
        finally:
            await client.close()

    with served("Forgetful") as url, pytest.raises(EnvironmentFaultError) as caught:
        asyncio.run(abandon(url))
    assert "there is no episode" in caught.value.detail


def test_tools_are_described_called_and_their_errors_are_text():
    call = '<tool_call>{"name": "add", "arguments": {"a": 2, "b": 3}}</tool_call>'
    bad = ['<tool_call>{"name": "no"}</tool_call>', "<tool_call>{</tool_call>"]
    with served("Adder") as url:
        task, seen = episode(url, {"question": "2+3", "answer": "5"}, [call, *bad, "5"])
    [tool] = task.tools
    assert tool["function"]["name"] == "add"
    assert tool["function"]["description"] == "Add two numbers."
    assert tool["function"]["parameters"] == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a"],
    }
    contents = [o.messages[0].content for o in seen[:-1]]
    assert contents[0] == "5"
    assert contents[1] == "error: there is no tool no"
    assert contents[2].startswith("error: ")
    assert (seen[-1].done, seen[-1].reward) == (True, 1.0)


def test_the_file_serves_alone_with_the_standard_library(tmp_path):
    copy = tmp_path / "environment_sdk.py"
    shutil.copy(sdk.__file__, copy)
    module = (MODULES / "counting.py").read_text()
    (tmp_path / "alone.py").write_text(
        module.replace("grpo_trainer.environments.sdk", "environment_sdk")
    )
    done = subprocess.run(
        [sys.executable, "-I", copy, tmp_path / "alone.py:Counting", "--check"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("counting.py", "must be FILE.py:CLASS or MODULE:CLASS"),
        ("nowhere.py:Counting", "there is no such file"),
        (f"{MODULES / 'counting.py'}:add", "must be a subclass of Environment"),
        (f"{MODULES / 'counting.py'}:Missing", "must be a subclass of Environment"),
    ],
)
def test_a_name_that_is_no_environment_is_refused(name, reason):
    with pytest.raises(ValueError, match=reason):
        sdk.load_class(name)


def test_the_command_of_the_program_serves_too():
    with served("Counting", ("-m", "grpo_trainer.cli", "environment")) as url:
        assert json.dumps(health(url).roles) == '["user"]'
