"""A conversation as token ids: only what the environment writes is ever encoded.

What the model wrote stays the ids it drew, so that the trainer reads the very sequence that the
engine conditioned on.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from grpo_trainer.messages import Ints, Message

from .protocol import Task

_TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look up x.",
        "parameters": {
            "type": "object",
            "properties": {"x": {"type": "string", "description": "What to look up."}},
            "required": ["x"],
        },
    },
}


class ContinuationError(ValueError):
    """The chat template cannot continue a conversation; the message is the reason."""


class Conversation:
    """Encodes openings whole and continuations alone.

    A continuation is what the template writes behind an assistant's turn. The turn before it is
    a stand-in that ends with a mark, and nothing up to the mark is used, so that the template need
    not render earlier turns as the model wrote them.
    """

    def __init__(self, tokenizer: Any, end_ids: frozenset[int]) -> None:
        """`end_ids`: every token that ends a completion."""
        self._tokenizer = tokenizer
        self._end_ids = end_ids
        self._control = _control_pattern(tokenizer, end_ids)
        self._mark = f"zq{secrets.token_hex(8)}qz"
        """Unknown to any environment, whose texts could contain it otherwise."""

    def opening(self, task: Task) -> Ints:
        """[P] up to where the first turn of the model begins."""
        return self._encode(task.messages, task)

    def continuation(self, messages: Sequence[Message], task: Task, *, closed: bool) -> Ints:
        """[N] from the end of a turn of the model to where its next one begins.

        `closed`: the turn ends with its end token already.

        Raises ContinuationError if the template does not allow it.
        """
        try:
            return self._continue(messages, task, closed, {"x": self._mark})
        except ContinuationError:
            # Some templates take the arguments of a call as JSON text.
            return self._continue(messages, task, closed, json.dumps({"x": self._mark}))

    def check(self, role: str) -> None:
        """Raise ContinuationError unless a turn can be continued by a message of this role.

        Checked is one conversation: what is written behind a turn must be what the template
        writes there when it renders all of it.
        """
        answer = Message(role, "RESULT", {"name": "look_up"} if role == "tool" else {})
        task = Task((Message("user", "Q one"),), (_TOOL,) if role == "tool" else ())
        added = self.continuation([answer], task, closed=False)
        if answer.content not in self._tokenizer.decode(added.tolist()):
            raise ContinuationError(f"it leaves out messages of role {role}")
        for arguments in ({"x": "1"}, json.dumps({"x": "1"})):
            turns = (*task.messages, *_called([answer], "Said", arguments))
            try:
                whole = self._encode(turns, task)
            except ContinuationError:
                continue
            if np.array_equal(whole[-len(added) :], added):
                return
        raise ContinuationError("what it writes behind a turn depends on that turn")

    def ends(self, token: int) -> bool:
        """Whether the token ends a turn of the model."""
        return token in self._end_ids

    def text(self, token_ids: Ints) -> str:
        """What the model wrote, without the token that ended it. Other control tokens stay: some
        models write tool calls with them."""
        ids = token_ids.tolist()
        while ids and ids[-1] in self._end_ids:
            ids.pop()
        return str(
            self._tokenizer.decode(
                ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )

    def length(self, text: str) -> int:
        """Tokens of a text alone."""
        return len(self._tokenizer.encode(text, add_special_tokens=False))

    def _continue(
        self, messages: Sequence[Message], task: Task, closed: bool, arguments: Any
    ) -> Ints:
        turns = (Message("user", "."), *_called(messages, self._mark, arguments))
        ids = self._encode(turns, task, behind=self._mark)
        ends = np.flatnonzero(np.isin(ids, list(self._end_ids)))
        if len(ends) == 0:
            raise ContinuationError("it does not close a turn of the assistant with an end token")
        return ids[ends[0] + closed :]

    def _encode(self, messages: Sequence[Message], task: Task, behind: str = "") -> Ints:
        """The rendered messages as token ids; a control token in a text stays text.

        With `behind` only what follows the last occurrence of that text is encoded.
        """
        quoted = _Quoted(self._control)
        turns = [
            {"role": m.role, "content": quoted(m.content), **quoted(m.extra)} for m in messages
        ]
        text = self._render(turns, [quoted(tool) for tool in task.tools])
        if behind:
            _, found, text = text.rpartition(behind)
            if not found:
                raise ContinuationError("it leaves out the content of the assistant")
        ids: list[int] = []
        for piece, control in quoted.pieces(text):
            # Encoded apart, the parts of a control token are ordinary text.
            for part in (piece, control[:1], control[1:]):
                ids += self._tokenizer.encode(part, add_special_tokens=False) if part else []
        return np.array(ids, dtype=np.int32)

    def _render(self, turns: list[dict[str, Any]], tools: list[Any]) -> str:
        try:
            text: str = self._tokenizer.apply_chat_template(
                turns, tools=tools or None, add_generation_prompt=True, tokenize=False
            )
        except Exception as error:  # templates raise whatever they like
            raise ContinuationError(f"it raises {error}") from error
        return text


def _called(
    messages: Sequence[Message], content: str, arguments: dict[str, str] | str
) -> tuple[Message, ...]:
    """A turn of the assistant with the calls that tool messages answer, and those messages."""
    numbered = []
    for number, m in enumerate(messages):
        ours = {"name": "tool", "tool_call_id": _call_id(number)} if m.role == "tool" else {}
        numbered.append(replace(m, extra={**ours, **m.extra}))
    calls = [
        {
            "id": m.extra["tool_call_id"],
            "type": "function",
            "function": {"name": m.extra["name"], "arguments": arguments},
        }
        for m in numbered
        if m.role == "tool"
    ]
    # Some templates leave out an empty chain of thought together with the content behind it.
    extra: dict[str, Any] = {"reasoning_content": "."}
    turn = Message("assistant", content, extra | ({"tool_calls": calls} if calls else {}))
    return (turn, *numbered)


def _call_id(number: int) -> str:
    """Of nine letters and digits, which Mistral's templates insist on."""
    return f"call{number:05}"


def _control_pattern(tokenizer: Any, end_ids: frozenset[int]) -> re.Pattern[str]:
    added = tokenizer.added_tokens_decoder
    texts = {str(token.content) for token in added.values() if token.special}
    texts |= {str(text) for text in tokenizer.all_special_tokens}
    texts |= {str(text) for text in tokenizer.convert_ids_to_tokens(sorted(end_ids)) if text}
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


@dataclass(slots=True)
class _Quoted:
    """Replaces control tokens in texts by marks, and finds them again."""

    control: re.Pattern[str]
    found: list[str] = field(default_factory=list)
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))

    def __call__(self, value: Any) -> Any:
        """The value with every text in it, keys included, free of control tokens."""
        if isinstance(value, str):
            return self.control.sub(self._mark, value)
        if isinstance(value, dict):
            return {self(key): self(item) for key, item in value.items()}
        return [self(item) for item in value] if isinstance(value, list | tuple) else value

    def pieces(self, text: str) -> list[tuple[str, str]]:
        """(text free of marks, the control token that follows it or "")"""
        split = re.split(f"zq{self.nonce}([0-9]+)qz", text)
        controls = [self.found[int(number)] for number in split[1::2]]
        return list(zip(split[::2], [*controls, ""], strict=True))

    def _mark(self, match: re.Match[str]) -> str:
        self.found.append(match[0])
        return f"zq{self.nonce}{len(self.found) - 1}qz"
