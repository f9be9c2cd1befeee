"""Leader election: the replica that holds a Lease acts.

A holder counts its time from before it sent a renewal, and gives up well before others may take
over; others count from when they observed the Lease change. No clocks are compared.
"""

import asyncio
import logging
import math
from datetime import UTC, datetime

from ..clients.errors import ApiError, ConflictError, NotFoundError
from ..clients.kube import Kube
from ..model.resources import LEASES
from ..render.merge import Object

log = logging.getLogger(__name__)

DURATION_SECONDS = 15
"""How long a Lease that does not change belongs to its holder."""
GIVE_UP_SECONDS = 10.0
"""How long a holder may be without a renewal."""
RENEW_SECONDS = 2.0
WAIT_SECONDS = 1.0
"""Time between two reads of a waiting replica. It takes over 17 s after the last renewal."""


class Lease:
    """One replica's part in the election; `duration` is in seconds."""

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        identity: str,
        duration: int = DURATION_SECONDS,
    ) -> None:
        self._kube, self._namespace, self._name, self._identity = kube, namespace, name, identity
        self._duration = duration
        self._seen: tuple[str, str] | None = None
        self._seen_at = 0.0
        self._renewed_at = -math.inf
        self._answered_at = asyncio.get_running_loop().time()

    def seconds_since_answer(self) -> float:
        """Time since the API server last responded about the Lease."""
        return _now() - self._answered_at

    async def acquire(self) -> None:
        """Returns once this replica leads."""
        while not await self._renewed():
            await asyncio.sleep(WAIT_SECONDS)
        log.info("%s leads", self._identity)

    async def keep(self) -> None:
        """Renew the Lease. Returns when it is lost, or could not be renewed in time."""
        while True:
            try:
                async with asyncio.timeout_at(self._renewed_at + GIVE_UP_SECONDS):
                    await asyncio.sleep(RENEW_SECONDS)
                    while not await self._renewed():
                        if self._taken():
                            log.error("another replica took the Lease")
                            return
                        await asyncio.sleep(RENEW_SECONDS / 4)
            except TimeoutError:
                log.error("the Lease was not renewed for %s s", GIVE_UP_SECONDS)
                return

    async def release(self) -> None:
        """Let another replica take over at once, unless the Lease was lost."""
        if _now() >= self._renewed_at + GIVE_UP_SECONDS:
            return
        try:
            lease = await self._kube.get(LEASES, self._namespace, self._name)
            if lease["spec"].get("holderIdentity") == self._identity:
                lease["spec"]["holderIdentity"] = ""
                await self._kube.update(LEASES, self._namespace, lease)
        except ApiError as error:
            log.warning("the Lease was not released: %s", error)

    @property
    def holder(self) -> str:
        """Who held it at the last attempt; empty when nobody did."""
        return self._seen[0] if self._seen is not None else ""

    def seconds_since_renewal(self) -> float:
        """Time since this replica last took or renewed the Lease; infinite before that."""
        return _now() - self._renewed_at

    def _taken(self) -> bool:
        return self._seen is not None and self._seen[0] != self._identity

    async def _renewed(self) -> bool:
        try:
            return await self.attempt()
        except ApiError as error:
            log.warning("the Lease: %s", error)
            return False

    async def attempt(self) -> bool:
        """Take or renew the Lease, if it is free or ours. Raises ApiError."""
        started = _now()
        try:
            free = await self._free_or_ours()
        except ConflictError:
            return False
        self._answered_at = _now()
        if free:
            self._renewed_at = started
        return free

    async def _free_or_ours(self) -> bool:
        try:
            lease = await self._kube.get(LEASES, self._namespace, self._name)
        except NotFoundError:
            body = {"metadata": {"name": self._name}, "spec": self._spec({})}
            created = await self._kube.create(LEASES, self._namespace, body)
            self._seen = (self._identity, created["spec"]["renewTime"])
            return True
        spec = lease.get("spec", {})
        holder = spec.get("holderIdentity") or ""
        seen = (holder, spec.get("renewTime", ""))
        if seen != self._seen:
            self._seen, self._seen_at = seen, _now()
        duration = spec.get("leaseDurationSeconds", self._duration)
        if holder not in ("", self._identity) and _now() < self._seen_at + duration:
            return False
        lease["spec"] = self._spec(spec)
        # Its resource version makes this a conflict if another replica was faster.
        await self._kube.update(LEASES, self._namespace, lease)
        self._seen = (self._identity, lease["spec"]["renewTime"])
        return True

    def _spec(self, old: Object) -> Object:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        ours = old.get("holderIdentity") == self._identity
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._duration,
            "acquireTime": old["acquireTime"] if ours else now,
            "renewTime": now,
            "leaseTransitions": old.get("leaseTransitions", 0) + (not ours),
        }


def _now() -> float:
    return asyncio.get_running_loop().time()
