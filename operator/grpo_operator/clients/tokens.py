"""Ray's token of each job, derived from one key of the operator.

Without its token a head's Jobs API would run anybody's code. The token of a job is an HMAC of its
UID, so the operator reads no Secret but its own key. It still writes a Secret for each job, from
which the job's pods take the token.
"""

import asyncio
import hmac
import logging
import secrets
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from hashlib import sha256

from ..model.naming import child_name
from ..model.observed import Job
from ..model.resources import SECRETS
from .errors import AlreadyExistsError, ApiError, NotFoundError
from .kube import Kube

log = logging.getLogger(__name__)

TOKEN_KEY = "token"
"""Key in the Secret of a job."""
_KEY = "key"
_KEY_BYTES = 32
_PURPOSE = b"grpo-operator.io/ray-token/"
RETRY_SECONDS = 60.0
"""Time between two reads of a job's Secret."""


def derive(key: bytes, uid: str) -> str:
    """The token of the job with this UID."""
    return hmac.new(key, _PURPOSE + uid.encode(), sha256).hexdigest()


async def load_key(kube: Kube, namespace: str, name: str) -> bytes:
    """The operator's key in its own namespace, created on first use. Raises ApiError."""
    try:
        return _key_in(await kube.get(SECRETS, namespace, name))
    except NotFoundError:
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": namespace},
            "type": "Opaque",
            "immutable": True,
            "data": {_KEY: b64encode(secrets.token_bytes(_KEY_BYTES)).decode()},
        }
    try:
        return _key_in(await kube.create(SECRETS, namespace, body))
    except AlreadyExistsError:
        return _key_in(await kube.get(SECRETS, namespace, name))


def _key_in(secret: dict[str, dict[str, str]]) -> bytes:
    return b64decode(secret["data"][_KEY])


@dataclass
class Tokens:
    """The tokens of all jobs."""

    kube: Kube
    key: bytes
    _stored: dict[str, str] = field(default_factory=dict)
    """By UID, tokens that were read from the Secret of a job."""
    _read_at: dict[str, float] = field(default_factory=dict)
    _faults: dict[str, str] = field(default_factory=dict)
    """By UID, why the Secret could not be read."""

    def of(self, job: Job) -> str:
        """The token to present to the job's head."""
        return self._stored.get(job.uid) or derive(self.key, job.uid)

    def forget(self, uid: str) -> None:
        """Drop what is kept of a job."""
        for kept in (self._stored, self._read_at, self._faults):
            kept.pop(uid, None)

    async def refused(self, job: Job) -> str:
        """The head refused the token: read the one of an earlier release, which was random.

        Returns why it cannot be read; empty once it was.
        """
        now = asyncio.get_running_loop().time()
        if now - self._read_at.get(job.uid, -RETRY_SECONDS) < RETRY_SECONDS:
            return self._faults.get(job.uid, "")
        self._read_at[job.uid] = now
        self._stored.pop(job.uid, None)
        self._faults.pop(job.uid, None)
        name = child_name(job.name, job.uid)
        try:
            secret = await self.kube.get(SECRETS, job.namespace, name)
            self._stored[job.uid] = b64decode(secret["data"][TOKEN_KEY], validate=True).decode()
        except (ApiError, KeyError, TypeError, ValueError) as error:
            fault = f"the head refuses the operator's token; cannot read Secret {name}: {error}"
            log.warning("%s", fault)
            self._faults[job.uid] = fault
        return self._faults.get(job.uid, "")
