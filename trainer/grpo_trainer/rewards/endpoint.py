"""A client of an HTTP service that scores: connection limit, deadline, retries."""

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from ..errors import InvalidInputError
from ..spec.reward import EndpointSpec
from .worker import Failure, FailureReason

if TYPE_CHECKING:
    import aiohttp

FIRST_RETRY_SECONDS = 0.25
MAX_RETRY_SECONDS = 10.0
_CONNECT_SECONDS = 10.0
_MAX_BODY = 4 << 20
_SHOWN = 300
"""Characters of a response in a message."""
_BUSY = frozenset({408, 425, 429, 502, 503, 504})


class EndpointError(Exception):
    """A call without a result."""

    def __init__(self, reason: FailureReason, detail: str) -> None:
        self.failure = Failure(reason, detail)
        super().__init__(detail)


class _RetryableError(Exception):
    """An attempt that may succeed if it is repeated, after so many seconds if the server asks."""

    def __init__(self, detail: str, after: float | None = None) -> None:
        self.after = after
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class Response:
    """What a service returned."""

    status: int
    text: str

    def __str__(self) -> str:
        return f"{self.status} {self.text[:_SHOWN]}".rstrip()


class Endpoint:
    """Calls to one service, at most `max_concurrent` at a time; belongs to one event loop.

    Connection errors, 408, 425, 429 and 5xx are retried with growing pauses, or after the time of
    Retry-After, until the deadline of the call. The deadline begins when a connection is free.
    Proxies of the environment are used; redirects are not followed.
    """

    def __init__(self, spec: EndpointSpec, field: str, timeout_seconds: float) -> None:
        self._spec = spec
        self._field = field
        self._timeout = timeout_seconds
        self._slots = asyncio.Semaphore(spec.max_concurrent)
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Raises InvalidInputError if the variable with the key is not set."""
        import aiohttp  # scoring processes import this module, and need no client

        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._spec.max_concurrent),
            headers=self._headers(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            trust_env=True,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def post(self, url: str, body: Mapping[str, Any]) -> Any:
        """The JSON of the response; raises EndpointError."""
        response = await self._call("POST", url, body)
        if response.status != 200:
            raise refused(url, response)
        try:
            return json.loads(response.text)
        except ValueError:
            raise unreadable(url, "must be JSON", response.text) from None

    async def get(self, url: str) -> "Response":
        """Any response but that of a busy server; raises EndpointError."""
        return await self._call("GET", url, None)

    async def _call(self, method: str, url: str, body: Mapping[str, Any] | None) -> "Response":
        async with self._slots:
            retried: list[str] = []
            try:
                async with asyncio.timeout(self._timeout):
                    return await self._repeated(method, url, body, retried)
            except TimeoutError:
                if not retried:
                    text = f"{url}: no response within {self._timeout:g} s"
                    raise EndpointError(FailureReason.TIMEOUT, text) from None
                text = f"{retried[-1]}; {len(retried)} attempts in {self._timeout:g} s"
                raise EndpointError(FailureReason.UNAVAILABLE, text) from None

    async def _repeated(
        self, method: str, url: str, body: Mapping[str, Any] | None, retried: list[str]
    ) -> "Response":
        """Attempt until one gives a result; `retried` collects why the others did not."""
        pause = FIRST_RETRY_SECONDS
        while True:
            try:
                return await self._attempt(method, url, body)
            except _RetryableError as error:
                retried.append(str(error))
                await asyncio.sleep(pause if error.after is None else error.after)
                pause = min(2 * pause, MAX_RETRY_SECONDS)

    async def _attempt(self, method: str, url: str, body: Mapping[str, Any] | None) -> "Response":
        import aiohttp

        assert self._session is not None, "open"
        try:
            request = self._session.request(method, url, json=body, allow_redirects=False)
            async with request as response:
                got = Response(response.status, await _text(response))
                after = _retry_after(response.headers.get("Retry-After"))
        except aiohttp.InvalidURL as error:
            raise EndpointError(FailureReason.REFUSED, f"{url}: {error!r}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise _RetryableError(f"{url}: {error or type(error).__name__}") from error
        # A GET may be a method that the service does not have: 500 and 501 are responses.
        if got.status in _BUSY or (method == "POST" and got.status >= 500):
            raise _RetryableError(f"{url}: {got}", after)
        return got

    def _headers(self) -> dict[str, str]:
        name = self._spec.api_key_env
        if name is None:
            return {}
        key = os.environ.get(name, "").strip()
        if not key:
            raise InvalidInputError(
                f"{self._field}.apiKeyEnv: Invalid value: {name!r}: must be a variable of the "
                "driver's environment with the key, is not set"
            )
        return {"Authorization": f"Bearer {key}"}


def refused(url: str, response: Response) -> EndpointError:
    """The error of a request that the service does not accept."""
    return EndpointError(FailureReason.REFUSED, f"{url}: {response}")


def unreadable(url: str, must: str, value: Any) -> EndpointError:
    """The error of a response without a score."""
    shown = value if isinstance(value, str) else json.dumps(value)
    return EndpointError(
        FailureReason.UNREADABLE, f"{url}: the response {must}, is {shown[:_SHOWN]!r}"
    )


async def _text(response: "aiohttp.ClientResponse") -> str:
    """The body; raises EndpointError if it is too long."""
    body = bytearray()
    async for piece in response.content.iter_chunked(1 << 16):
        body += piece
        if len(body) > _MAX_BODY:
            raise EndpointError(
                FailureReason.UNREADABLE, f"{response.url}: the response is over {_MAX_BODY} bytes"
            )
    return body.decode(errors="replace")


def _retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header: a number, or a date of HTTP (RFC 9110, 10.2.3)."""
    if value is None:
        return None
    if value.strip().isdigit():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
