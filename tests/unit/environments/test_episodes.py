"""Episodes over a scripted engine: the engine conditions on exactly what the record holds, limits
hold, and failures of the environment leave no reward and no open episode."""

import asyncio
import random
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_trainer.environments.episode import CUT, EpisodeLimits, Player
from grpo_trainer.environments.protocol import EnvironmentFaultError, Observation, Reason, Task
from grpo_trainer.messages import (
    Completion,
    FinishReason,
    GenerationRequest,
    Message,
    Rollout,
    SamplingParams,
)
from unit.environments import chats

BUDGET = 12
LIMITS = EpisodeLimits(
    max_turns=4,
    max_prompt_tokens=100,
    max_episode_tokens=400,
    max_observation_tokens=100,
    step_seconds=30.0,
)
REQUEST = GenerationRequest(
    "r", np.empty(0, np.int32), 1, 7, SamplingParams(1.0, None, 1.0, BUDGET), row={"a": 1}
)
TOKENIZER = chats.tokenizer()
PLAIN = [i for i in range(len(TOKENIZER)) if i not in TOKENIZER.all_special_ids]


@dataclass
class ScriptedEngine:
    """Draws random ids, seldom as the tokenizer would encode their text; weights change."""

    rng: random.Random
    ends: tuple[str, ...] = ("eos", "eos", "eos", "string", "length")
    calls: list[tuple[GenerationRequest, Completion]] = field(default_factory=list)
    version: int = 0

    async def generate(self, request):
        await asyncio.sleep(0)
        count = self.rng.randint(1, request.sampling.max_new_tokens)
        ids, end = [self.rng.choice(PLAIN) for _ in range(count)], self.rng.choice(self.ends)
        if end == "eos":
            ids[-1] = TOKENIZER.eos_token_id
        split = self.rng.randint(0, count)
        drawn = Completion(
            np.array(ids, np.int32),
            np.array([-self.rng.random() - 0.01 for _ in ids], np.float32),
            np.array([self.version] * split + [self.version + 1] * (count - split), np.int32),
            "",
            FinishReason.LENGTH if end == "length" else FinishReason.STOP,
        )
        self.version += split < count
        self.calls.append((request, drawn))
        return Rollout(request.request_id, (drawn,))


@dataclass
class ScriptedEnvironment:
    """Answers with random texts, and fails now and then."""

    rng: random.Random
    faults: float = 0.0
    done: float = 0.2
    reason: Reason = Reason.EXCEPTION
    seen: list[str] = field(default_factory=list)
    closed: int = 0

    async def reset(self, row, seed):
        self._fail()
        return Task((Message("user", "Hi"),))

    async def step(self, completion):
        self.seen.append(completion)
        self._fail()
        if self.rng.random() < self.done:
            return Observation(done=True, reward=1.0, metrics={"accuracy": 0.5})
        text = "".join(self.rng.choices(["12", "<|im_end|>", "é", " ", "<think>"], k=3))
        role = self.rng.choice(["tool", "user"])
        return Observation((Message(role, text),), reward=0.25)

    async def close(self):
        self.closed += 1
        self._fail()

    def _fail(self):
        if self.rng.random() < self.faults:
            raise EnvironmentFaultError(self.reason, "boom")


def play(engine, environment, limits=LIMITS, request=REQUEST):
    player = Player(engine, chats.conversation(), limits)
    return asyncio.run(player.play(environment, request, 7))


def spans(completion):
    """[(start, end)] of the turns of the model."""
    edges = np.flatnonzero(np.diff(completion.episode.sampled.astype(int), prepend=0, append=0))
    return list(zip(edges[::2], edges[1::2], strict=True))


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.15]), st.integers(1, 5))
@settings(max_examples=150)
def test_the_record_is_what_was_drawn_and_what_the_engine_read(seed, faults, max_turns):
    rng = random.Random(seed)
    engine, environment = ScriptedEngine(rng), ScriptedEnvironment(rng, faults)
    limits = replace(LIMITS, max_turns=max_turns, max_episode_tokens=rng.choice([24, 60, 200]))
    played = play(engine, environment, limits)
    completion = played.completion
    whole = np.concatenate(
        [played.opening.token_ids if played.opening else np.empty(0, int), completion.token_ids]
    )
    base = len(whole) - len(completion.token_ids)
    drawn = np.zeros(len(completion.token_ids), bool)
    end = 0
    for request, turn in engine.calls:
        start = len(request.prompt_ids) - base
        assert np.array_equal(request.prompt_ids, whole[: base + start])
        assert start >= end, "turns do not overlap"
        end = start + len(turn.token_ids)
        drawn[start:end] = True
        assert np.array_equal(completion.token_ids[start:end], turn.token_ids)
        assert np.array_equal(completion.logprobs[start:end], turn.logprobs)
        assert np.array_equal(completion.versions[start:end], turn.versions)
    assert np.array_equal(drawn, completion.episode.sampled)
    assert np.array_equal(drawn, np.isfinite(completion.logprobs))
    assert end == len(completion.token_ids), "an episode ends with a turn of the model"
    assert completion.sampled_tokens == sum(len(turn.token_ids) for _, turn in engine.calls)
    assert environment.closed == 1
    assert len(engine.calls) <= max_turns and len(whole) - base <= limits.max_episode_tokens
    assert (completion.episode.score.reward is None) == bool(completion.episode.score.error)


@given(st.integers(0, 10**6))
def test_each_turn_but_the_last_is_closed_by_exactly_one_end_token(seed):
    rng = random.Random(seed)
    completion = play(ScriptedEngine(rng), ScriptedEnvironment(rng, done=0.05)).completion
    ids, end = completion.token_ids, TOKENIZER.eos_token_id
    for _, stop in spans(completion)[:-1]:
        assert [ids[stop - 1], ids[stop]].count(end) == 1


@given(st.integers(0, 10**6))
def test_an_observation_has_the_version_of_the_turn_before_it(seed):
    rng = random.Random(seed)
    completion = play(ScriptedEngine(rng), ScriptedEnvironment(rng, done=0.05)).completion
    for position in np.flatnonzero(~completion.episode.sampled):
        assert completion.versions[position] == completion.versions[position - 1]


def test_an_episode_earns_the_sum_of_its_rewards_and_the_accuracy_of_its_environment():
    @dataclass
    class Twice(ScriptedEnvironment):
        async def step(self, completion):
            self.seen.append(completion)
            if len(self.seen) == 2:
                return Observation(done=True, reward=1.0, metrics={"accuracy": 0.5})
            return Observation((Message("user", "again"),), reward=0.25)

    rng = random.Random(1)
    completion = play(ScriptedEngine(rng, ends=("eos",)), Twice(rng)).completion
    assert completion.episode.score.reward == 1.25
    assert completion.episode.score.accuracy == 0.5
    assert completion.finish_reason is FinishReason.STOP
    assert [turn.role for turn in completion.episode.turns] == ["assistant", "user", "assistant"]
    assert "[user] again" in completion.text


def test_equal_seeds_ask_the_engine_for_equal_seeds_and_turns_for_different_ones():
    def seeds():
        rng = random.Random(3)
        engine = ScriptedEngine(rng, ends=("eos",))
        play(engine, ScriptedEnvironment(rng, done=0.0))
        return [request.seed for request, _ in engine.calls]

    assert seeds() == seeds()
    assert len(set(seeds())) == LIMITS.max_turns


def test_an_episode_that_reaches_a_limit_is_truncated_and_ends_with_a_turn():
    rng = random.Random(2)
    environment = ScriptedEnvironment(rng, done=0.0)
    completion = play(ScriptedEngine(rng, ends=("eos",)), environment).completion
    assert completion.finish_reason is FinishReason.LENGTH
    assert len(spans(completion)) == LIMITS.max_turns
    assert completion.episode.sampled[-1]


def test_a_truncated_turn_is_not_shown_to_the_environment():
    rng = random.Random(2)
    environment = ScriptedEnvironment(rng)
    completion = play(ScriptedEngine(rng, ends=("length",)), environment).completion
    assert environment.seen == []
    assert completion.finish_reason is FinishReason.LENGTH
    assert completion.episode.score.reward == 0.0


def test_a_long_observation_is_cut_to_its_limit_and_marked():
    @dataclass
    class Talkative(ScriptedEnvironment):
        async def step(self, completion):
            return Observation((Message("user", "so"), Message("tool", "12 " * 1000)))

    rng, limits = random.Random(2), replace(LIMITS, max_observation_tokens=60, max_turns=2)
    completion = play(ScriptedEngine(rng, ends=("eos",)), Talkative(rng), limits).completion
    (_, first), (second, _) = spans(completion)
    assert second - first <= 60
    text = TOKENIZER.decode(completion.token_ids[first:second])
    assert "so" in text and CUT in text


@pytest.mark.parametrize("reason", [Reason.EXCEPTION, Reason.INVALID])
def test_a_failure_of_the_environment_is_a_score_without_a_reward(reason):
    rng = random.Random(2)
    played = play(ScriptedEngine(rng), ScriptedEnvironment(rng, faults=1.0, reason=reason))
    score = played.completion.episode.score
    assert (score.reward, score.error) == (None, reason)
    assert played.completion.episode.failure == "boom"
    assert len(played.completion.token_ids) == 0 and played.opening is None


def test_a_hanging_environment_times_out_and_is_closed():
    @dataclass
    class Hanging(ScriptedEnvironment):
        async def step(self, completion):
            await asyncio.get_running_loop().create_future()

    rng, limits = random.Random(2), replace(LIMITS, step_seconds=0.01)
    environment = Hanging(rng)
    completion = play(ScriptedEngine(rng, ends=("eos",)), environment, limits).completion
    assert completion.episode.score.error == Reason.TIMEOUT
    assert environment.closed == 1


def test_an_unavailable_environment_is_raised_so_that_the_episode_can_be_repeated():
    rng = random.Random(2)
    environment = ScriptedEnvironment(rng, faults=1.0, reason=Reason.UNAVAILABLE)
    with pytest.raises(EnvironmentFaultError):
        play(ScriptedEngine(rng), environment)
    assert environment.closed == 1


def test_an_opening_over_the_prompt_limit_is_not_played():
    rng, limits = random.Random(2), replace(LIMITS, max_prompt_tokens=3)
    engine = ScriptedEngine(rng)
    completion = play(engine, ScriptedEnvironment(rng), limits).completion
    assert completion.episode.score.error == Reason.OPENING
    assert "maxPromptTokens 3" in completion.episode.failure
    assert engine.calls == []
