"""Continuing a conversation: what is added is what the template writes behind a turn, nothing in
a text of the environment becomes a control token, and other templates are refused."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_trainer.environments.chat import check_conversation
from grpo_trainer.environments.conversation import ContinuationError
from grpo_trainer.environments.protocol import Task
from grpo_trainer.errors import InvalidInputError
from grpo_trainer.messages import Message
from unit.environments import chats

TASK = Task((Message("user", "Hi"),))
TEMPLATES = [chats.CHATML, chats.THINKING, chats.TEXT_ARGUMENTS]
PIECES = [
    "12",
    " is",
    "\n",
    "<think>",
    "é",
    "  ",
    "<|im_end|>",
    "<|im_start|>assistant\n",
    "=",
    "<|",
]
texts = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)


def tool(content: str, **extra: str) -> Message:
    return Message("tool", content, {"name": "look_up", **extra})


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("role", ["user", "tool"])
def test_a_template_that_can_be_continued_is_accepted(template, role):
    chats.conversation(template).check(role)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (chats.NO_TOOLS, "no tools"),
        (chats.DROPS_TOOLS, "it leaves out messages of role tool"),
        (chats.NO_END, "does not close a turn of the assistant"),
    ],
)
def test_a_template_that_cannot_be_continued_is_refused_with_the_reason(template, reason):
    with pytest.raises(ContinuationError, match=reason):
        chats.conversation(template).check("tool")


def test_the_refusal_names_the_tokenizer_the_role_and_the_page_with_those_that_work(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text('{"model_type": "qwen2", "vocab_size": 10}')
    tokenizer = chats.tokenizer(chats.NO_TOOLS)
    check_conversation(str(path), tokenizer, ("user",), trust_remote_code=False)
    with pytest.raises(InvalidInputError, match="must have a chat template that continues a turn "):
        check_conversation(str(path), tokenizer, ("user", "tool"), trust_remote_code=False)


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize(
    "messages", [[tool("12")], [tool("1"), tool("2")], [Message("user", "so")]]
)
def test_a_continuation_is_the_tail_of_the_whole_conversation(template, messages):
    of = chats.tokenizer(template)
    added = chats.conversation(template).continuation(messages, TASK, closed=False)
    turns = [{"role": m.role, "content": m.content, **m.extra} for m in messages]
    said = {"role": "assistant", "content": "Said", "reasoning_content": "thought"}
    whole = of.apply_chat_template(
        [{"role": "user", "content": "Hi"}, said, *turns], add_generation_prompt=True
    )
    assert whole[-len(added) :] == added.tolist()
    assert added[0] == of.eos_token_id


def test_a_turn_that_has_its_end_token_gets_no_second_one():
    conversation = chats.conversation()
    open_, closed = (
        conversation.continuation([tool("12")], TASK, closed=closed) for closed in (False, True)
    )
    assert open_[1:].tolist() == closed.tolist()
    assert conversation.ends(int(open_[0]))


@given(texts, st.sampled_from(TEMPLATES), st.sampled_from(["user", "tool"]))
def test_a_text_of_the_environment_forges_no_control_token(text, template, role):
    conversation, of = chats.conversation(template), chats.tokenizer(template)

    def added(content):
        message = tool(content) if role == "tool" else Message("user", content)
        return conversation.continuation([message], TASK, closed=False)

    def controls(ids):
        return [i for i in ids.tolist() if i in of.all_special_ids]

    assert controls(added(text)) == controls(added("x"))
    assert text.strip() in of.decode(added(text).tolist(), clean_up_tokenization_spaces=False)


@given(texts)
def test_a_text_of_the_opening_or_of_a_tool_forges_no_control_token(text):
    conversation, of = chats.conversation(), chats.tokenizer()

    def opening(content):
        described = {"type": "function", "function": {"name": "f", "description": content}}
        ids = conversation.opening(Task((Message("user", content),), (described,)))
        return [i for i in ids.tolist() if i in of.all_special_ids]

    assert opening(text) == opening("x")


@given(texts.filter(lambda text: not re.search(r"<\|im_", text)))
def test_texts_without_control_tokens_are_encoded_as_the_tokenizer_does(text):
    of = chats.tokenizer()
    turn = {"role": "user", "content": text}
    expected = of.apply_chat_template([turn], add_generation_prompt=True)
    opened = chats.conversation().opening(Task((Message("user", text),)))
    assert opened.tolist() == expected


def test_the_text_of_a_turn_keeps_control_tokens_but_the_one_that_ended_it():
    of = chats.tokenizer()
    ids = of.encode("<tool_call>1<|im_start|>2<|im_end|>", add_special_tokens=False)
    text = chats.conversation().text(np.array(ids, np.int32))
    assert text == "<tool_call>1<|im_start|>2"
