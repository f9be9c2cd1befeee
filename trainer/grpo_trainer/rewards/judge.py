"""The `judge` reward: a model behind an OpenAI-compatible API reads each completion."""

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InvalidInputError
from ..messages import Row, Score
from ..row_faults import RowFault, refuse, shown
from ..spec.reward import EndpointSpec, JudgeSpec
from ..spec.templates import fill, last_match, places
from .endpoint import Endpoint, EndpointError, refused, unreadable
from .remote import RemoteReward, clipped
from .worker import Failure

_GIVEN = frozenset({"prompt", "completion"})


class Judge(RemoteReward):
    """One request for each completion, all completions of a group at once."""

    @property
    def spec(self) -> JudgeSpec:
        assert self.part.judge is not None, "a rule of the spec"
        return self.part.judge

    @property
    def endpoint_spec(self) -> EndpointSpec:
        return self.spec

    def check(self, rows: Sequence[Row]) -> None:
        """Raises InvalidDataError for rows without a column of the template."""
        names = places(self.spec.prompt)
        if "completion" not in names:
            raise InvalidInputError(
                f"{self.field}.prompt: Invalid value: {shown(self.spec.prompt)}: must contain "
                "{completion}"
            )
        faults = [
            RowFault(row.source, f"this column, which {self.field}.prompt reads", column=name)
            for row in rows
            for name in sorted(names - _values(row, "").keys())
        ]
        if faults:
            raise refuse(faults)

    async def reach(self, endpoint: Endpoint) -> None:
        """Raises InvalidInputError if the endpoint lists its models, and ours is not one."""
        url = f"{self._base}/models"
        response = await endpoint.get(url)
        if response.status in (401, 403):
            raise refused(url, response)
        names = _model_names(response.text) if response.status == 200 else []
        if names and self.spec.model not in names:
            known = ", ".join(names[:10])
            raise InvalidInputError(
                f"{self.field}.model: Invalid value: {self.spec.model!r}: must be a model of "
                f"{self.spec.url}: {known}"
            )

    async def score(self, row: Row, texts: Sequence[str]) -> list[Score | Failure]:
        return await asyncio.gather(*(self._one(row, text) for text in texts))

    @property
    def _base(self) -> str:
        return self.spec.url.rstrip("/")

    async def _one(self, row: Row, text: str) -> Score | Failure:
        spec, url = self.spec, f"{self._base}/chat/completions"
        body = {
            "model": spec.model,
            "messages": [{"role": "user", "content": fill(spec.prompt, _values(row, text))}],
            "temperature": spec.temperature,
            "max_tokens": spec.max_tokens,
        }
        try:
            value = read_score(spec, url, await self.call(url, body))
        except EndpointError as error:
            return error.failure
        return Score(value, format_accuracy=1.0, accuracy=clipped(value))


def read_score(spec: JudgeSpec, url: str, answer: Any) -> float:
    """The score in a response, from 0 to 1; raises EndpointError."""
    try:
        message = answer["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        raise unreadable(url, "must be a chat completion", answer) from None
    text = last_match(spec.pattern, message) if isinstance(message, str) else None
    if text is None:
        raise unreadable(url, f"must match {spec.pattern!r}", message)
    score = spec.scores.get(text) if spec.scores else _number(text)
    if score is None:
        known = f"one of {', '.join(spec.scores)}" if spec.scores else "a number"
        raise unreadable(url, f"must have {known} where {spec.pattern!r} matches", message)
    if not 0 <= score <= spec.max_score:
        raise unreadable(url, f"must have a score from 0 to {spec.max_score:g}", message)
    return score / spec.max_score


def _model_names(text: str) -> list[str]:
    """Ids in a list of models; none for any other text."""
    try:
        return [str(model["id"]) for model in json.loads(text)["data"]]
    except (ValueError, KeyError, TypeError):
        return []


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _values(row: Row, completion: str) -> Mapping[str, Any]:
    """What the places of the template may name; the row's columns come last."""
    answer = {} if row.answer is None else {"answer": row.answer}
    turns = row.messages
    prompt = turns[-1].content if turns else ""
    if len(turns) > 1:
        prompt = "\n\n".join(f"{turn.role}: {turn.content}" for turn in turns)
    return {**row.columns, **answer, "prompt": prompt, "completion": completion}


REWARD = Judge
