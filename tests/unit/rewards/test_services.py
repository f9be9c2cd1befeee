"""Rewards behind HTTP services, against real servers on this machine.

Aspects: the requests of both protocols, what is read of responses, retries and what is not
retried, deadlines, the limit of connections, keys, the check before a run, outages of services.
"""

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from aiohttp import web

from grpo_trainer.errors import InvalidDataError, InvalidInputError, RunFailedError
from grpo_trainer.messages import Message, Row, Score
from grpo_trainer.rewards import Scorer, check_rows, reach_services
from grpo_trainer.rewards.endpoint import _retry_after
from grpo_trainer.rewards.registry import reward_class
from grpo_trainer.rewards.remote import reach_all
from grpo_trainer.rewards.scorer import MAX_OUTAGE_SECONDS, MAX_UNSCORED_FIRST
from grpo_trainer.rewards.worker import Failure
from grpo_trainer.spec import GRPOJobSpec, RewardSpec, resolve_reward
from support.services import chat_message, never, service

ROW = Row(
    "data.jsonl row 1",
    (Message("user", "1+3?"),),
    answer="4",
    columns={"level": 3},
    rendered="<user>1+3?<assistant>",
)
CHAT = "/v1/chat/completions"


def judge(url: str, timeout: float = 20.0, **fields: Any) -> RewardSpec:
    given = {
        "url": f"{url}/v1",
        "model": "m",
        "prompt": "{prompt} {answer} {level}: {completion}",
        "pattern": r"Score: (\S+)",
        **fields,
    }
    return RewardSpec.model_validate({"type": "judge", "judge": given, "timeoutSeconds": timeout})


def server(url: str, **fields: Any) -> RewardSpec:
    return RewardSpec.model_validate({"type": "http", "http": {"url": f"{url}/get", **fields}})


@asynccontextmanager
async def scoring(spec: RewardSpec, **options: Any) -> AsyncIterator[Scorer]:
    scorer = Scorer(spec, workers=1, **options)
    await scorer.start()
    try:
        yield scorer
    finally:
        await scorer.close()


async def scored(spec: RewardSpec, *texts: str) -> list[Score]:
    async with scoring(spec) as scorer:
        return list(await scorer.score(ROW, texts))


async def failure_of(spec: RewardSpec) -> Failure:
    (part,) = resolve_reward(spec)
    reward: Any = reward_class(part.type)(part)
    await reward.start()
    try:
        (result,) = await reward.score(ROW, ["text"])
    finally:
        await reward.close()
    assert isinstance(result, Failure), result
    return result


def in_turn(*responses: web.Response) -> Any:
    """Each response once, then the last one again."""
    waiting: Iterator[web.Response] = itertools.chain(responses)
    return lambda _: next(waiting)


async def test_a_reward_server_receives_the_body_of_openrlhf():
    def respond(_: Any) -> web.Response:
        return web.json_response({"rewards": [0.5, -2], "scores": [1, 0], "extra_logs": {"x": [1]}})

    async with service(respond, "/get") as seen:
        scores = await scored(server(seen.url), "a", "b")
    assert seen.bodies == [
        {
            "query": ["<user>1+3?<assistant>a", "<user>1+3?<assistant>b"],
            "prompts": ["<user>1+3?<assistant>"] * 2,
            "labels": ["4", "4"],
        }
    ]
    assert scores == [Score(0.5, 1.0, 1.0), Score(-2.0, 1.0, 0.0)]


async def test_rewards_may_be_lists_of_one_and_give_accuracy_within_bounds():
    async with service(lambda _: web.json_response({"rewards": [[3.5]]}), "/get") as seen:
        assert await scored(server(seen.url), "a") == [Score(3.5, 1.0, 1.0)]


@pytest.mark.parametrize(
    "body", [{"rewards": [1, 2]}, {"rewards": ["1"]}, {"rewards": [None]}, {"score": [1]}, [1]]
)
async def test_a_response_without_a_number_for_each_completion_is_unreadable(body):
    async with service(lambda _: web.json_response(body), "/get") as seen:
        failure = await failure_of(server(seen.url))
    assert failure.reason == "unreadable"
    assert "must have 1 numbers in 'rewards'" in failure.detail


async def test_a_judge_is_asked_once_for_each_completion():
    async with service(lambda _: chat_message("Score: 0.5"), CHAT) as seen:
        scores = await scored(judge(seen.url), "four", "{five}")
    contents = {body["messages"][0]["content"] for body in seen.bodies}
    assert contents == {"1+3? 4 3: four", "1+3? 4 3: {five}"}
    assert {key: seen.bodies[0][key] for key in ("model", "temperature", "max_tokens")} == {
        "model": "m",
        "temperature": 0.0,
        "max_tokens": 1024,
    }
    assert scores == [Score(0.5, 1.0, 0.5)] * 2


@pytest.mark.parametrize(
    ("message", "fields", "value"),
    [
        ("Score: 1 at first.\nScore: 0.25", {}, 0.25),
        ("Score: 7", {"maxScore": 10}, 0.7),
        ("0.5", {"pattern": r"[\d.]+"}, 0.5),
        ("Score: good", {"scores": {"good": 1.0, "bad": 0.0}}, 1.0),
    ],
)
async def test_the_last_match_of_the_pattern_is_the_score(message, fields, value):
    async with service(lambda _: chat_message(message), CHAT) as seen:
        (score,) = await scored(judge(seen.url, **fields), "text")
    assert score.reward == value


@pytest.mark.parametrize(
    ("message", "fields", "detail"),
    [
        ("no idea", {}, "must match"),
        (None, {}, "must match"),
        ("Score: high", {}, "must have a number where"),
        ("Score: nan", {}, "must have a number where"),
        ("Score: 7", {}, "must have a score from 0 to 1"),
        ("Score: 1", {"scores": {"good": 1.0}}, "must have one of good where"),
    ],
)
async def test_a_message_without_a_score_is_unreadable(message, fields, detail):
    async with service(lambda _: chat_message(message), CHAT) as seen:
        failure = await failure_of(judge(seen.url, **fields))
    assert failure.reason == "unreadable"
    assert detail in failure.detail


@pytest.mark.parametrize("body", ['{"choices": []}', "[1]", "<html>"])
async def test_a_response_that_is_no_chat_completion_is_unreadable(body):
    async with service(lambda _: web.Response(text=body), CHAT) as seen:
        assert (await failure_of(judge(seen.url))).reason == "unreadable"


@pytest.mark.parametrize("status", [408, 429, 500, 503])
async def test_an_overloaded_service_is_asked_again(status):
    responses = in_turn(web.Response(status=status), chat_message("Score: 1"))
    async with service(responses, CHAT) as seen:
        (score,) = await scored(judge(seen.url), "text")
    assert (score.reward, len(seen.bodies)) == (1.0, 2)


async def test_the_time_of_retry_after_replaces_the_pause():
    busy = [web.Response(status=429, headers={"Retry-After": "0"}) for _ in range(20)]
    async with service(in_turn(*busy, chat_message("Score: 1")), CHAT) as seen:
        (score,) = await scored(judge(seen.url), "text")
    assert (score.reward, len(seen.bodies)) == (1.0, 21)


def test_retry_after_is_a_number_of_seconds_or_a_date():
    assert _retry_after("7") == 7.0
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert 50 < (_retry_after(later) or 0) <= 60
    assert _retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert _retry_after("soon") is None
    assert _retry_after(None) is None


async def test_a_connection_that_breaks_is_made_again():
    attempts = itertools.count()

    async def respond(_: Any) -> web.Response:
        if next(attempts) < 2:
            raise ConnectionResetError
        return chat_message("Score: 1")

    async with service(respond, CHAT) as seen:
        (score,) = await scored(judge(seen.url), "text")
    assert score.reward == 1.0


@pytest.mark.parametrize("status", [302, 400, 401, 404, 422])
async def test_a_refused_request_is_not_repeated(status):
    response = web.Response(status=status, text="no such model", headers={"Location": "/"})
    async with service(in_turn(response), CHAT) as seen:
        failure = await failure_of(judge(seen.url))
    assert failure.reason == "refused"
    assert f"{status} no such model" in failure.detail
    assert len(seen.bodies) == 1


async def test_a_service_that_is_not_there_is_unavailable_after_the_deadline():
    async with service(never) as gone:
        pass
    failure = await failure_of(judge(gone.url, timeout=0.6))
    assert failure.reason == "unavailable"
    assert "attempts in 0.6 s" in failure.detail


async def test_a_service_that_does_not_respond_is_a_timeout():
    async with service(never, CHAT) as seen:
        failure = await failure_of(judge(seen.url, timeout=0.3))
    assert failure.reason == "timeout"
    assert "no response within 0.3 s" in failure.detail


async def test_a_response_without_end_is_not_read_to_its_end():
    async with service(lambda _: web.Response(body=b" " * (5 << 20)), CHAT) as seen:
        failure = await failure_of(judge(seen.url))
    assert (failure.reason, "over 4194304 bytes" in failure.detail) == ("unreadable", True)


async def test_one_completion_that_fails_leaves_the_others_scored():
    def respond(body: Any) -> web.Response:
        bad = body["messages"][0]["content"].endswith("bad")
        return web.Response(status=400) if bad else chat_message("Score: 1")

    async with service(respond, CHAT) as seen:
        scores = await scored(judge(seen.url), "good", "bad", "fine")
    assert [score.reward for score in scores] == [1.0, None, 1.0]
    assert scores[1].error == "refused"


async def test_requests_at_a_time_are_limited():
    async with service(lambda _: chat_message("Score: 1"), CHAT) as seen:
        scores = await scored(judge(seen.url, maxConcurrent=3), *map(str, range(40)))
    assert [score.reward for score in scores] == [1.0] * 40
    assert seen.most_in_flight <= 3


async def test_the_key_of_a_variable_is_sent_as_bearer_token(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "secret\n")
    async with service(lambda _: chat_message("Score: 1"), CHAT) as seen:
        await scored(judge(seen.url, apiKeyEnv="JUDGE_KEY"), "text")
    assert seen.headers[0]["Authorization"] == "Bearer secret"


async def test_a_variable_that_is_not_set_is_refused(monkeypatch):
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    scorer = Scorer(judge("http://127.0.0.1:1", apiKeyEnv="JUDGE_KEY"), workers=1)
    fault = r"spec\.reward\.judge\.apiKeyEnv: Invalid value: 'JUDGE_KEY'"
    with pytest.raises(InvalidInputError, match=fault):
        await scorer.start()


async def reach(spec: RewardSpec, seconds: float = 20.0) -> None:
    (part,) = resolve_reward(spec)
    reward: Any = reward_class(part.type)(part)
    await reward.check_reachable(seconds)


@pytest.mark.parametrize("models", [None, {"data": [{"id": "m"}]}, {"data": []}])
async def test_a_judge_that_lists_its_model_or_lists_none_is_accepted(models):
    async with service(never, CHAT, get=models) as seen:
        await reach(judge(seen.url))


async def test_a_model_that_the_judge_does_not_have_is_refused_with_its_models():
    async with service(never, CHAT, get={"data": [{"id": "a"}, {"id": "b"}]}) as seen:
        with pytest.raises(InvalidInputError, match=r"judge\.model: Invalid value: 'm'.*: a, b"):
            await reach(judge(seen.url))


async def test_a_wrong_path_of_a_reward_server_is_refused():
    async with service(never, "/get_reward") as seen:
        with pytest.raises(InvalidInputError, match=r"http\.url: Invalid value: .*: 404"):
            await reach(server(seen.url))


async def test_a_service_that_is_not_there_yet_is_a_failure_that_may_be_retried():
    async with service(never) as gone:
        pass
    fault = r"spec\.reward\.judge\.url: Invalid value: 'http://.*/v1': must be reachable"
    with pytest.raises(RunFailedError, match=fault):
        await reach(judge(gone.url), seconds=0.5)


async def test_a_refusal_counts_more_than_a_service_that_is_not_there():
    async with service(never, CHAT, get={"data": [{"id": "a"}]}) as seen:
        parts = [
            resolve_reward(judge("http://127.0.0.1:1"))[0],
            resolve_reward(judge(seen.url))[0],
        ]
        rewards: list[Any] = [reward_class(part.type)(part) for part in parts]

        async def at_once(reward: Any = rewards[0]) -> None:
            raise RunFailedError("gone")

        rewards[0].check_reachable = at_once
        with pytest.raises(InvalidInputError, match="must be a model of"):
            await reach_all(rewards)


def test_a_reward_without_services_reaches_nothing():
    reach_services(GRPOJobSpec())


def test_rows_without_a_column_of_the_judges_prompt_are_named():
    rows = [ROW, Row("data.jsonl row 2", ROW.messages, answer="4")]
    fault = r"data\.jsonl row 2, column 'level': Required value: .* spec\.reward\.judge\.prompt"
    with pytest.raises(InvalidDataError, match=fault):
        check_rows(rows, judge("http://a"))


def test_a_judges_prompt_without_the_completion_is_refused():
    with pytest.raises(InvalidInputError, match=r"judge\.prompt: .* must contain \{completion\}"):
        check_rows([ROW], judge("http://a", prompt="How good is this?"))


async def test_an_outage_ends_the_run_after_a_time_with_its_cause():
    now = itertools.chain([0.0, MAX_OUTAGE_SECONDS - 1], itertools.repeat(MAX_OUTAGE_SECONDS))
    async with service(lambda _: web.Response(status=503, text="loading"), CHAT) as seen:
        spec = judge(seen.url, timeout=0.2)
        async with scoring(spec, clock=lambda: next(now)) as scorer:
            await scorer.score(ROW, ["text"])
            await scorer.score(ROW, ["text"])
            with pytest.raises(RunFailedError, match=r"\(unavailable\) for 600 s: .*503 loading"):
                await scorer.score(ROW, ["text"])


async def test_responses_that_are_never_readable_end_the_run_at_once():
    async with (
        service(lambda _: chat_message("no idea"), CHAT) as seen,
        scoring(judge(seen.url)) as made,
    ):
        for _ in range(MAX_UNSCORED_FIRST - 1):
            await made.score(ROW, ["text"])
        with pytest.raises(InvalidInputError, match=r"spec\.reward: no completion .* must match"):
            await made.score(ROW, ["text"])
