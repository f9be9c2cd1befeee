"""What the rewards behind an HTTP service share."""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from ..errors import InvalidInputError, RunFailedError
from ..messages import Row, Score
from ..spec.reward import EndpointSpec, RewardPart
from .base import Reward
from .endpoint import Endpoint, EndpointError
from .worker import Failure, FailureReason

REACH_SECONDS = 20.0
"""Deadline of the check that an endpoint can be reached."""


class RemoteReward(Reward):
    """Scores by a service; runs in the driver's event loop."""

    reads_row = True

    def __init__(self, part: RewardPart) -> None:
        super().__init__(part)
        self.field = f"{part.field}.{part.type}"
        self._endpoint = Endpoint(self.endpoint_spec, self.field, part.timeout_seconds)

    @property
    @abstractmethod
    def endpoint_spec(self) -> EndpointSpec:
        """The part's own record."""

    @abstractmethod
    async def reach(self, endpoint: Endpoint) -> None:
        """Call the service as far as that needs no completion; raises EndpointError."""

    @abstractmethod
    async def score(self, row: Row, texts: Sequence[str]) -> list[Score | Failure]:
        """One result per completion, in order."""

    async def start(self) -> None:
        """Raises InvalidInputError if the key is missing."""
        await self._endpoint.open()

    async def close(self) -> None:
        await self._endpoint.close()

    async def call(self, url: str, body: dict[str, Any]) -> Any:
        """The JSON of the response; raises EndpointError."""
        return await self._endpoint.post(url, body)

    async def check_reachable(self, seconds: float = REACH_SECONDS) -> None:
        """Raises InvalidInputError if the service refuses the call, and RunFailedError if it is not
        there within the deadline: it may come up later."""
        endpoint = Endpoint(self.endpoint_spec, self.field, seconds)
        await endpoint.open()
        try:
            await self.reach(endpoint)
        except EndpointError as error:
            reason, url = error.failure.reason, self.endpoint_spec.url
            text = f"{self.field}.url: Invalid value: {url!r}: must be reachable: {error}"
            if reason in (FailureReason.UNAVAILABLE, FailureReason.TIMEOUT):
                raise RunFailedError(text) from error
            raise InvalidInputError(text) from error
        finally:
            await endpoint.close()


def clipped(value: float) -> float:
    """An accuracy from a reward."""
    return min(max(value, 0.0), 1.0)


async def reach_all(rewards: Sequence[RemoteReward]) -> None:
    """Check all services at once; raises the first error that ends a run for good, or the first."""
    checks = (reward.check_reachable() for reward in rewards)
    results = await asyncio.gather(*checks, return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    errors.sort(key=lambda error: not isinstance(error, InvalidInputError))
    if errors:
        raise errors[0]
