"""HTTP to one head: Ray's Jobs API on its dashboard, and the driver of the current attempt.

A head runs its user's code, so its responses are not trusted: they are bounded in time, size and
number, never decompressed, and never redirect the operator.
"""

import json
from dataclasses import dataclass
from typing import Any

import aiohttp
from pydantic import ValidationError

from grpo_trainer.spec import Progress

from ..model.lenient import read_leniently
from ..model.naming import submission_id
from ..model.observed import Job, RayJob
from ..model.parsing import parse_ray_jobs

POLL_TIMEOUT_SECONDS = 2.0
SUBMIT_TIMEOUT_SECONDS = 10.0
ENTRYPOINT = "python -m grpo_trainer.cluster"
"""Ray runs it in a shell, so it is a constant: the spec is in a file."""
ATTEMPT_VARIABLE = "GRPO_ATTEMPT"
MAX_BODY_BYTES = 1 << 20
_MAX_TEXT = 1000
_JSON = "application/json"


class HeadError(Exception):
    """The head did not respond, or with an invalid response."""


class SubmissionRefusedError(Exception):
    """Ray rejected a submission."""


class TokenRefusedError(HeadError):
    """The head has another token."""


def session() -> aiohttp.ClientSession:
    """The session for all heads.

    Heads that do not respond hold connections, so their number has no limit; a job makes one call
    at a time. Cookies are not kept and no proxy of the environment is used: calls stay inside the
    cluster.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
    )


@dataclass(frozen=True, slots=True)
class Head:
    """The two servers of a head pod."""

    session: aiohttp.ClientSession
    dashboard: str
    driver: str
    token: str

    async def jobs(self, job: Job) -> tuple[RayJob, ...]:
        """The attempts that Ray lists. Raises HeadError."""
        answer = await self._json("GET", f"{self.dashboard}/api/jobs/")
        try:
            return parse_ray_jobs(job.uid, answer)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise HeadError(f"invalid list of jobs: {error!r}") from error

    async def progress(self, attempt: int) -> Progress | None:
        """What the attempt's driver reports; None while it does not respond."""
        try:
            progress = read_leniently(Progress, await self._json("GET", f"{self.driver}/progress"))
        except (HeadError, ValidationError):
            return None
        return progress if progress.attempt == attempt else None

    async def submit(self, job: Job, attempt: int) -> None:
        """Start an attempt's driver. Raises HeadError or SubmissionRefusedError."""
        body = {
            "entrypoint": ENTRYPOINT,
            "submission_id": submission_id(job.uid, attempt),
            "runtime_env": {"env_vars": {ATTEMPT_VARIABLE: str(attempt)}},
            "metadata": {"grpo_job": f"{job.namespace}/{job.name}", "grpo_uid": job.uid},
        }
        url = f"{self.dashboard}/api/jobs/"
        code, _, text = await self._call("POST", url, SUBMIT_TIMEOUT_SECONDS, body)
        if code >= 300:
            raise SubmissionRefusedError(f"Ray responded with status {code}: {text[-_MAX_TEXT:]}")

    async def stop(self, job: Job, attempt: int) -> None:
        """Stop an attempt's driver. Raises HeadError."""
        name = submission_id(job.uid, attempt)
        await self._ok("POST", f"{self.dashboard}/api/jobs/{name}/stop")

    async def drain(self) -> None:
        """Ask the driver to write a checkpoint and exit. Raises HeadError."""
        await self._ok("POST", f"{self.driver}/drain")

    async def dump_stacks(self) -> None:
        """Ask the driver to write its stacks and those of its actors to the volume.

        Raises HeadError.
        """
        await self._ok("POST", f"{self.driver}/stacks")

    async def _json(self, method: str, url: str) -> Any:
        text = await self._ok(method, url, content_type=_JSON)
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise HeadError(f"{method} {url}: the body is not valid JSON") from error

    async def _ok(self, method: str, url: str, content_type: str = "") -> str:
        """The body of a successful response, of this type if one is given."""
        code, found, text = await self._call(method, url, POLL_TIMEOUT_SECONDS)
        if code >= 300:
            raise HeadError(f"{method} {url}: status {code}: {text[:_MAX_TEXT]}")
        if content_type and found != content_type:
            raise HeadError(f"{method} {url}: content type {found!r} instead of {content_type}")
        return text

    async def _call(
        self, method: str, url: str, seconds: float, body: Any = None
    ) -> tuple[int, str, str]:
        """Status, content type and body of a response. Raises HeadError.

        `seconds` bounds the call as a whole, its body included.
        """
        headers = {"Authorization": f"Bearer {self.token}", "Accept-Encoding": "identity"}
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self.session.request(
                method, url, json=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                text = await _bounded_text(response)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise HeadError(f"{method} {url}: {error!r}") from error
        if response.status in (401, 403):
            raise TokenRefusedError(f"{method} {url}: status {response.status}")
        return response.status, response.content_type, text


async def _bounded_text(response: aiohttp.ClientResponse) -> str:
    """The body. Raises ValueError for one that is compressed or too large."""
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        raise ValueError(f"content encoding {encoding[:_MAX_TEXT]!r} was not accepted")
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise ValueError(f"the body is larger than {MAX_BODY_BYTES} bytes")
    return body.decode(errors="replace")
