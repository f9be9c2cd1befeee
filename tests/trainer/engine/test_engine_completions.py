"""The completions of the transformers engine.

Aspects: their text; ends by token, length and stop string; padding; requests of several kinds.
"""

import pytest
from transformers import GenerationConfig

from grpo_trainer.messages import FinishReason
from support.engines import ask
from unit.rollout.tiny_models import EOS, TOKENIZER, chain_model, request, text_chain, token_ids


async def test_the_text_is_the_sampled_tokens_without_special_ones(start):
    engine = await start(chain_model(text_chain("=a\\boxed{")))
    [completion] = (await engine.generate(request())).completions
    assert completion.token_ids.tolist() == [*token_ids("a\\boxed{"), EOS]
    assert completion.text == "a\\boxed{"


@pytest.mark.parametrize("place", ["config", "generation config", "list", "tokenizer"])
async def test_every_end_of_sequence_token_stops_a_completion(start, place):
    [end] = token_ids("!")
    model = chain_model(text_chain("=ab", end))
    tokenizer, config = TOKENIZER, None
    if place == "config":
        model.config.eos_token_id = end
    elif place == "tokenizer":
        tokenizer = type(TOKENIZER)(tokenizer_object=TOKENIZER.backend_tokenizer, eos_token="!")
    else:
        config = GenerationConfig(eos_token_id=[EOS, end] if place == "list" else end)
    engine = await start(model, tokenizer=tokenizer, config=config)
    [completion] = (await engine.generate(request())).completions
    assert completion.token_ids.tolist() == token_ids("ab!")
    assert completion.finish_reason is FinishReason.STOP


async def test_the_end_of_turn_of_the_chat_template_stops_a_completion(start):
    tokenizer = type(TOKENIZER)(tokenizer_object=TOKENIZER.backend_tokenizer, eos_token="<eos>")
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}<pad>{% endfor %}"
    end = TOKENIZER.pad_token_id
    engine = await start(chain_model(text_chain("=ab", end)), tokenizer=tokenizer)
    [completion] = (await engine.generate(request())).completions
    assert completion.token_ids.tolist() == [*token_ids("ab"), end]
    assert completion.finish_reason is FinishReason.STOP


@pytest.mark.parametrize(
    ("limit", "reason"), [(2, FinishReason.LENGTH), (3, FinishReason.STOP), (4, FinishReason.STOP)]
)
async def test_an_end_on_the_last_allowed_token_is_no_truncation(start, limit, reason):
    engine = await start(chain_model(text_chain("=ab")))
    [completion] = (await engine.generate(request(max_new_tokens=limit))).completions
    assert completion.token_ids.tolist() == [*token_ids("ab"), EOS][:limit]
    assert completion.finish_reason is reason


async def test_a_completion_may_contain_the_padding_token(start):
    padding = TOKENIZER.pad_token_id
    [a, b] = token_ids("ab")
    engine = await start(chain_model({**text_chain("=a"), a: padding, padding: b, b: EOS}))
    [completion] = (await engine.generate(request())).completions
    assert completion.token_ids.tolist() == [a, padding, b, EOS]


async def test_lengths_are_exact_where_padding_and_end_are_one_token(start):
    same = type(TOKENIZER)(
        tokenizer_object=TOKENIZER.backend_tokenizer, eos_token="<eos>", pad_token="<eos>"
    )
    engine = await start(chain_model(text_chain("abcdefgh")), tokenizer=same)
    prompts = ["h", "xa", "xxxe", "xxxxxg"]
    rollouts = await ask(engine, [request(p, samples=3) for p in prompts])
    completions = [[c.token_ids.tolist() for c in rollout.completions] for rollout in rollouts]
    expected = ["", "bcdefgh", "fgh", "h"]
    assert completions == [[[*token_ids(text), EOS]] * 3 for text in expected]


@pytest.mark.parametrize("stop", ["bcd", "</answer>", "d</answer>"])
async def test_a_stop_string_ends_the_completion_and_stays_in_its_text(start, stop):
    engine = await start(chain_model(text_chain("=abcd</answer>ef")))
    [completion] = (await engine.generate(request(stop_strings=("zz", stop)))).completions
    assert completion.text == "abcd</answer>".partition(stop)[0] + stop
    assert completion.finish_reason is FinishReason.STOP


async def test_a_stop_token_ends_the_completion_and_belongs_to_it(start):
    engine = await start(chain_model(text_chain("=abcdef")))
    [token] = token_ids("c")
    [completion] = (await engine.generate(request(stop_token_ids=(token,)))).completions
    assert completion.text == "abc"
    assert completion.finish_reason is FinishReason.STOP


async def test_a_stop_string_in_the_prompt_stops_nothing(start):
    engine = await start(chain_model(text_chain("=ab")))
    asked = request("bb=", stop_strings=("b=", "=a"))
    [completion] = (await engine.generate(asked)).completions
    assert completion.text == "ab"


async def test_requests_with_other_sampling_are_answered_each_their_own_way(start):
    engine = await start(chain_model(text_chain("=abcdefgh")))
    limits = [3, 5, 3, 5, 4]
    rollouts = await ask(
        engine, [request(max_new_tokens=n, samples=n, request_id=str(n)) for n in limits]
    )
    assert [rollout.request_id for rollout in rollouts] == [str(n) for n in limits]
    assert [[len(c.token_ids) for c in r.completions] for r in rollouts] == [
        [n] * n for n in limits
    ]
