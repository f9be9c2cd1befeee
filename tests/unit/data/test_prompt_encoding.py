"""Rows as token ids, and the system message in front of them.

Aspects: the generation prompt is kept, the system message, prompts over the limit, the error
if no prompt fits, tokenizers without template, templates that refuse a conversation or the
system message, how the completion begins, tool calls, tokenizers that lose what rewards read, the
default system message of each reward type.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from grpo_trainer.builtin.tokenizer import build_tokenizer
from grpo_trainer.data import EncodedPrompts, check_markers, encode_prompts
from grpo_trainer.errors import InvalidDataError, InvalidInputError
from grpo_trainer.messages import Message, Row, TestCases
from grpo_trainer.rewards import make_reward, reward_class, system_prompt
from grpo_trainer.spec import RewardType
from grpo_trainer.spec.reward import CustomRewardSpec, RewardSpec

CHATML = (
    "{% for m in messages %}{{ m.role + ':' + m.content + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
USERS_ONLY = (
    "{% for m in messages %}{% if m.role != 'user' %}{{ raise_exception('only users') }}{% endif %}"
    "{{ m.content }}{% endfor %}"
)


def tokenizer(template: str | None = CHATML):
    made = build_tokenizer()
    made.chat_template = template
    return made


def row(content: str, *, system: str = "") -> Row:
    turns = (Message("system", system),) if system else ()
    return Row("data.jsonl line 1", (*turns, Message("user", content)), "2")


def encode(rows: list[Row], template: str = CHATML, system: str = "") -> EncodedPrompts:
    return encode_prompts(rows, tokenizer(template), system=system, max_prompt_tokens=256)


def texts(*rows: Row, system: str = "", limit: int = 256) -> list[str]:
    made = tokenizer()
    encoded = encode_prompts(rows, made, system=system, max_prompt_tokens=limit)
    return [made.decode(prompt.token_ids) for prompt in encoded.prompts]


def test_a_prompt_ends_where_the_completion_begins():
    assert texts(row("1+1?")) == ["user:1+1?\n<assistant>"]


def test_token_ids_are_those_of_the_template():
    made = tokenizer()
    (prompt,) = encode_prompts([row("1+1?")], made, system="", max_prompt_tokens=99).prompts
    turns = [{"role": "user", "content": "1+1?"}]
    assert prompt.token_ids.dtype == np.int32
    assert prompt.token_ids.tolist() == made.apply_chat_template(turns, add_generation_prompt=True)


def test_the_system_message_opens_a_conversation_that_has_none():
    assert texts(row("1+1?"), system="short")[0].startswith("system:short\nuser:")


def test_a_row_keeps_its_own_system_message():
    assert texts(row("1+1?", system="long"), system="short")[0].startswith("system:long\nuser:")


def test_a_prompt_over_the_limit_is_dropped_and_counted_and_one_at_the_limit_kept_whole():
    fits, too_long = row("123"), row("1234")
    encoded = encode_prompts([too_long, fits], tokenizer(), system="", max_prompt_tokens=10)
    assert [prompt.row.messages for prompt in encoded.prompts] == [fits.messages]
    assert len(encoded.prompts[0].token_ids) == len("user:123\n") + 1
    assert encoded.dropped == 1


def test_no_prompt_left_is_an_error_with_the_limit_and_the_shortest_length():
    pattern = r"maxPromptTokens \(-mpt\): Invalid value: 8: must be at least 10, .* 2 prompts"
    with pytest.raises(InvalidDataError, match=pattern):
        encode_prompts([row("1234"), row("123")], tokenizer(), system="", max_prompt_tokens=8)


def test_a_tokenizer_without_chat_template_is_refused():
    with pytest.raises(InvalidInputError, match="must be a tokenizer with a chat template"):
        encode_prompts([row("1+1?")], tokenizer(None), system="", max_prompt_tokens=99)


def test_a_conversation_that_the_template_refuses_is_reported_with_row_and_reason():
    pattern = r'data\.jsonl line 1: Invalid value: roles \["system", "user"\]: .*\(only users\)'
    with pytest.raises(InvalidDataError, match=pattern):
        encode([row("1", system="mine")], USERS_ONLY, system="short")


def test_a_template_that_refuses_the_system_message_of_the_spec_is_one_fault_of_that_field():
    with pytest.raises(InvalidInputError) as caught:
        encode([row("1"), row("2")], USERS_ONLY, system="short")
    (fault,) = caught.value.faults
    assert fault.startswith("spec.reward.systemPrompt: Invalid value: ")
    assert 'refuses system messages (only users): must be ""' in fault
    assert len(encode([row("1"), row("2")], USERS_ONLY).prompts) == 2


def test_a_row_that_the_template_refuses_in_any_case_is_its_own_fault():
    template = USERS_ONLY.replace("m.role != 'user'", "'bad' in m.content or m.role != 'user'")
    with pytest.raises(InvalidDataError, match="line 1: Invalid value: roles"):
        encode([row("bad")], template, system="short")


def test_a_type_error_of_a_template_is_a_fault_of_the_row():
    with pytest.raises(InvalidDataError, match="line 1: Invalid value: roles"):
        encode([row("1")], "{{ messages[0].content + 1 }}")


@pytest.mark.parametrize(
    "opening", ["<assistant>", "<assistant><think>", "<assistant>\n<think>\n", ""]
)
def test_a_prompt_notes_how_the_template_opens_the_completion(opening):
    template = CHATML.replace("<assistant>", f"{{{{ {opening!r} }}}}")
    (prompt,) = encode([row("1+1?")], template, system="short").prompts
    assert prompt.row.prefix == opening


@pytest.mark.parametrize(
    ("completion", "reward"),
    [
        ("a</think><answer>2</answer>", 10.0),
        ("a</think><answer>3</answer>", 0.0),
        ("<think>a</think><answer>2</answer>", 0.0),
        ("<answer>2</answer>", 0.0),
    ],
)
def test_a_template_that_opens_the_reasoning_takes_part_in_the_form(completion, reward):
    template = CHATML.replace("<assistant>", "<assistant><think>")
    (prompt,) = encode([row("1+1?")], template).prompts
    assert make_reward(RewardSpec())(completion, prompt.row).reward == reward


def test_a_question_with_tags_does_not_take_part_in_the_form():
    (prompt,) = encode([row("what is <think>?")]).prompts
    score = make_reward(RewardSpec())("<think>a</think><answer>2</answer>", prompt.row)
    assert score.reward == 10.0


def test_a_program_may_begin_in_the_prompt():
    template = CHATML.replace("<assistant>", "<assistant>{{ '\n```python\n' }}")
    (prompt,) = encode([row("1+1?")], template).prompts
    tests = replace(prompt.row, tests=TestCases(("",), ("2\n",)))
    score = make_reward(RewardSpec(type=RewardType.CODE))("print(1 + 1)\n```", tests)
    assert score.reward == 10.0


CALLS = [{"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}]
WITH_CALLS = (
    "{% for m in messages %}{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls[0].function.name }}"
    "{% endif %}{% endfor %}"
)


def test_tool_calls_are_rendered_by_the_template():
    made = tokenizer(WITH_CALLS)
    (prompt,) = encode_prompts([called()], made, system="", max_prompt_tokens=99).prompts
    assert made.decode(prompt.token_ids) == "2+2?add4"


def test_tool_calls_that_the_template_would_lose_are_refused_by_row():
    with pytest.raises(InvalidDataError, match="line 1: Invalid value: tool_calls: must be absent"):
        encode([called()])


def called() -> Row:
    turns = (
        Message("user", "2+2?"),
        Message("assistant", "", {"tool_calls": CALLS}),
        Message("tool", "4", {"name": "add"}),
    )
    return Row("data.jsonl line 1", turns, "4")


@pytest.mark.parametrize("reward", [RewardType.THINK_ANSWER_TAGS, RewardType.BOXED])
def test_a_tokenizer_that_decodes_what_the_reward_reads_is_accepted(reward):
    check_markers(tokenizer(), reward_class(reward).markers)


def test_a_tokenizer_whose_tags_are_special_tokens_is_refused():
    made = tokenizer()
    made.add_special_tokens({"additional_special_tokens": ["<think>", "</answer>"]})
    with pytest.raises(InvalidInputError, match=r"tokenizerPath: .* must decode '<think>'"):
        check_markers(made, reward_class(RewardType.THINK_ANSWER_TAGS).markers)
    check_markers(made, reward_class(RewardType.BOXED).markers)


def test_a_tokenizer_without_the_characters_of_a_marker_is_refused():
    backend = Tokenizer(models.WordLevel({"<unk>": 0, "a": 1}, unk_token="<unk>"))
    made = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    with pytest.raises(InvalidInputError, match="must decode"):
        check_markers(made, reward_class(RewardType.BOXED).markers)


lengths = st.lists(st.integers(1, 40), min_size=1, max_size=12)


@settings(deadline=None)
@given(lengths=lengths, limit=st.integers(1, 60))
def test_no_kept_prompt_exceeds_the_limit_and_none_is_lost_uncounted(lengths, limit):
    rows = [row("7" * length) for length in lengths]
    try:
        encoded = encode_prompts(rows, TOKENIZER, system="", max_prompt_tokens=limit)
    except InvalidDataError:
        assert min(lengths) + len("user:\n") + 1 > limit
        return
    assert all(len(prompt.token_ids) <= limit for prompt in encoded.prompts)
    assert len(encoded.prompts) + encoded.dropped == len(rows)


TOKENIZER = tokenizer()


@pytest.mark.parametrize(
    ("reward", "parts"),
    [
        (RewardType.THINK_ANSWER_TAGS, ("<think>", "</think>", "<answer>", "</answer>")),
        (RewardType.BOXED, ("\\boxed{}",)),
        (RewardType.CODE, ("```python",)),
    ],
)
def test_the_system_message_of_a_reward_type_requires_the_form_that_it_reads(reward, parts):
    text = system_prompt(RewardSpec(type=reward))
    assert all(part in text for part in parts)


def test_a_custom_reward_has_no_system_message_by_default():
    custom = RewardSpec(type=RewardType.CUSTOM, custom=CustomRewardSpec(module="m"))
    assert system_prompt(custom) == ""


@pytest.mark.parametrize("text", ["Be brief.", ""])
def test_the_specs_own_system_message_wins_even_when_empty(text):
    assert system_prompt(RewardSpec(system_prompt=text)) == text
