"""The `http` reward: a reward server with the protocol of OpenRLHF.

The request is `{"query": [prompt + completion], "prompts": [prompt], "labels": [reference
answer]}`, the response `{"rewards": [number], "scores": [number]}`: `openrlhf/cli/serve_rm.py` of
https://github.com/OpenRLHF/OpenRLHF.
"""

import math
from collections.abc import Sequence
from typing import Any

from ..messages import Row, Score
from ..spec.reward import EndpointSpec
from .endpoint import Endpoint, EndpointError, refused, unreadable
from .remote import RemoteReward, clipped
from .worker import Failure


class Http(RemoteReward):
    """One request for the completions of a group.

    Texts are as the model sees them, with the chat template. `scores`, if there are any, are the
    accuracies.
    """

    renders_prompt = True

    @property
    def endpoint_spec(self) -> EndpointSpec:
        assert self.part.http is not None, "a rule of the spec"
        return self.part.http

    def check(self, rows: Sequence[Row]) -> None:
        """The server reads any row."""

    async def reach(self, endpoint: Endpoint) -> None:
        """Any response but 401, 403 and 404: only a POST with completions would be accepted."""
        url = self.endpoint_spec.url
        response = await endpoint.get(url)
        if response.status in (401, 403, 404):
            raise refused(url, response)

    async def score(self, row: Row, texts: Sequence[str]) -> list[Score | Failure]:
        count, prompt = len(texts), row.rendered
        if not count:
            return []
        body = {
            "query": [prompt + text for text in texts],
            "prompts": [prompt] * count,
            "labels": [row.answer or ""] * count,
        }
        url = self.endpoint_spec.url
        try:
            answer = await self.call(url, body)
            rewards = _numbers(url, answer, "rewards", count)
            has_scores = "scores" in answer
            scores = _numbers(url, answer, "scores", count) if has_scores else rewards
        except EndpointError as error:
            return [error.failure] * count
        return [
            Score(reward, format_accuracy=1.0, accuracy=clipped(score))
            for reward, score in zip(rewards, scores, strict=True)
        ]


def _numbers(url: str, answer: Any, key: str, count: int) -> list[float]:
    """`count` finite numbers, each alone or in a list of its own."""
    must = f"must have {count} numbers in {key!r}"
    values = answer.get(key) if isinstance(answer, dict) else None
    if not isinstance(values, list) or len(values) != count:
        raise unreadable(url, must, answer)
    single = [v[0] if isinstance(v, list) and len(v) == 1 else v for v in values]
    if not all(_is_number(value) for value in single):
        raise unreadable(url, must, answer)
    return [float(value) for value in single]


def _is_number(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)


REWARD = Http
