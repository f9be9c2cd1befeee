"""HTTP to one head: Ray's Jobs API on its dashboard, and the driver of the current attempt."""

import json
from dataclasses import dataclass
from typing import Any

import aiohttp
from pydantic import ValidationError

from grpo_trainer.spec import Progress

from ..model.naming import submission_id
from ..model.observed import Job, RayJob
from ..model.parsing import parse_ray_jobs

POLL_TIMEOUT_SECONDS = 2.0
SUBMIT_TIMEOUT_SECONDS = 10.0
ENTRYPOINT = "python -m grpo_trainer.cluster"
"""Ray gives it to a shell, so it is a constant: the spec crosses in a file."""
ATTEMPT_VARIABLE = "GRPO_ATTEMPT"
_MAX_TEXT = 1000


class HeadError(Exception):
    """The head did not answer, or not as expected."""


class SubmissionRefusedError(Exception):
    """Ray answered a submission with an error."""


class TokenRefusedError(HeadError):
    """The head knows another token."""


def session() -> aiohttp.ClientSession:
    """For all heads. Those that do not answer hold connections, so their number has no limit."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))


@dataclass(frozen=True, slots=True)
class Head:
    """The two servers of a head pod."""

    session: aiohttp.ClientSession
    dashboard: str
    driver: str
    token: str

    async def jobs(self, job: Job) -> tuple[RayJob, ...]:
        """The attempts that Ray knows of. Raises HeadError."""
        answer = await self._json("GET", f"{self.dashboard}/api/jobs/")
        try:
            return parse_ray_jobs(job.uid, answer)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise HeadError(f"no list of jobs: {error!r}") from error

    async def progress(self, attempt: int) -> Progress | None:
        """What the attempt's driver says; None while another's or none answers."""
        try:
            progress = Progress.model_validate(await self._json("GET", f"{self.driver}/progress"))
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
        code, text = await self._call("POST", url, SUBMIT_TIMEOUT_SECONDS, body)
        if code >= 400:
            raise SubmissionRefusedError(f"Ray answered {code}: {text[-_MAX_TEXT:]}")

    async def stop(self, job: Job, attempt: int) -> None:
        """Stop an attempt's driver. Raises HeadError."""
        name = submission_id(job.uid, attempt)
        await self._json("POST", f"{self.dashboard}/api/jobs/{name}/stop")

    async def drain(self) -> None:
        """Ask the driver to write a checkpoint and exit. Raises HeadError."""
        await self._json("POST", f"{self.driver}/drain")

    async def dump_stacks(self) -> None:
        """Ask the driver to write its stacks and those of its actors to the volume.

        Raises HeadError.
        """
        await self._json("POST", f"{self.driver}/stacks")

    async def _json(self, method: str, url: str) -> Any:
        code, text = await self._call(method, url, POLL_TIMEOUT_SECONDS)
        if code >= 400:
            raise HeadError(f"{method} {url} answered {code}: {text[:_MAX_TEXT]}")
        try:
            return json.loads(text) if text else None
        except ValueError as error:
            raise HeadError(f"{method} {url} answered no JSON") from error

    async def _call(
        self, method: str, url: str, seconds: float, body: Any = None
    ) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {self.token}"}
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self.session.request(
                method, url, json=body, headers=headers, timeout=timeout
            ) as response:
                code, text = response.status, await response.text()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise HeadError(f"{method} {url}: {error!r}") from error
        if code in (401, 403):
            raise TokenRefusedError(f"{method} {url} answered {code}")
        return code, text
