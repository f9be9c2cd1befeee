"""Tokens of logged rollouts: each with its text and with its own log-ratio, wherever its completion
went among ranks and micro-batches."""

import json
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from grpo_trainer.algorithm.batching import build_step
from grpo_trainer.driver.measure import logged_samples, token_log_ratios
from grpo_trainer.driver.token_texts import TokenTexts
from grpo_trainer.messages import Message, Prompt, Row
from unit.algorithm.builders import PAD, algorithm, completion, group


def number_of(group_index: int, index: int, place: int) -> float:
    """A value that no other token has."""
    return group_index + index / 10 + place / 100


@given(st.integers(1, 3), st.integers(1, 4), st.lists(st.integers(1, 6), min_size=2, max_size=6))
def test_every_token_gets_its_own_log_ratio(ranks, microbatch, sizes):
    scored = [
        group(
            [1.0, 0.0],
            [
                completion([2] * size, [number_of(n, i, t) for t in range(size)])
                for i, size in enumerate((size, size + 1))
            ],
        )
        for n, size in enumerate(sizes)
    ]
    built = build_step(
        scored,
        data_parallel=ranks,
        microbatch=microbatch,
        algorithm=algorithm(),
        pad_token_id=PAD,
    )
    # What a consumer returns: here the behaviour policy's own value, which names the token.
    found = token_log_ratios(
        scored, built, [[part.old_logprobs for part in shard] for shard in built.shards]
    )
    for n, size in enumerate(sizes):
        for i, length in enumerate((size, size + 1)):
            expected = [round(number_of(n, i, t), 3) for t in range(length)]
            assert np.allclose(found[2 * n + i], expected, atol=1e-3)


def test_a_completion_without_a_forward_pass_has_no_log_ratios():
    scored = [group([1.0, 1.0]), group([1.0, 0.0])]
    options = {"data_parallel": 1, "microbatch": 4, "pad_token_id": PAD}
    built = build_step(scored, algorithm=algorithm(), **options)
    ratios = [[part.old_logprobs for part in shard] for shard in built.shards]
    found = token_log_ratios(scored, built, ratios)
    assert sorted(found) == [2, 3]
    assert found[2] == [-1.0, -1.0]


def test_a_token_off_the_loss_has_no_log_ratio():
    rows = [completion([2, 3], [-1.0, float("nan")]), completion([2])]
    scored = [group([1.0, 0.0], rows)]
    built = build_step(
        scored, data_parallel=1, microbatch=2, algorithm=algorithm(), pad_token_id=PAD
    )
    ratios = [[part.old_logprobs for part in shard] for shard in built.shards]
    assert token_log_ratios(scored, built, ratios)[0] == [-1.0, None]


class Decoding:
    """The interface of transformers over a tokenizer of the library below it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool) -> str:
        text: str = self._tokenizer.decode(token_ids, skip_special_tokens=skip_special_tokens)
        return text


def word_pieces() -> Decoding:
    """As of Llama: a space before a word is part of its token, and lost at the very beginning."""
    words = {"<unk>": 0, "▁a": 1, "▁sum": 2, "s": 3, "▁": 4}
    tokenizer = Tokenizer(models.BPE(words, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return Decoding(tokenizer)


def byte_pieces() -> Decoding:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {letter: n for n, letter in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(words, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return Decoding(tokenizer)


def test_the_space_before_a_word_stays_with_its_token():
    assert TokenTexts(word_pieces())(np.array([2, 3, 1])) == [" sum", "s", " a"]


def test_bytes_that_are_no_character_become_replacement_characters():
    tokenizer = byte_pieces()
    ids = tokenizer.encode("aé ", add_special_tokens=False)
    assert TokenTexts(tokenizer)(np.array(ids)) == ["a", "�", "�", " "]


def test_tokens_are_logged_where_they_are_requested():
    scored = [group([1.0, 0.0])]
    built = build_step(
        scored, data_parallel=1, microbatch=2, algorithm=algorithm(), pad_token_id=PAD
    )
    prompt = Prompt(Row("r", (Message("user", "?"),)), scored[0].prompt.token_ids)
    scored = [replace(scored[0], prompt=prompt)]
    plain = logged_samples(scored, built)
    assert (plain[0].tokens, plain[0].log_ratios) == (None, None)
    ratios = [[part.old_logprobs for part in shard] for shard in built.shards]
    with_tokens = logged_samples(scored, built, ratios, TokenTexts(byte_pieces()))
    assert len(with_tokens[0].tokens) == 2
    assert json.loads(json.dumps(with_tokens[0].log_ratios)) == [-1.0, -1.0]
