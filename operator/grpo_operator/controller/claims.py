"""Which namespaces this release serves: a second release does not act in the namespace of a first.

A release holds a Lease in each namespace that has jobs. Its holder is the release, not the replica,
so that an upgrade or another leader changes nothing. A release that finds the Lease of another
leaves all jobs of the namespace alone until that Lease has not been renewed for its duration.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable

from ..clients.errors import ApiError, UnavailableError
from ..clients.kube import Kube
from ..metrics import Metrics
from ..model.naming import CLAIM_LEASE
from .cache import Cache, Key
from .lease import Lease

log = logging.getLogger(__name__)

DURATION_SECONDS = 60
"""How long a namespace belongs to a release that does not renew its Lease."""
GIVE_UP_SECONDS = 40.0
"""How long a release acts in a namespace without a renewal: what it began ends before another
acts."""
RENEW_SECONDS = 15.0
RETRY_SECONDS = 5.0
"""Time between two attempts in a namespace that is not served."""

Reconcile = Callable[[Key, float], Awaitable[float | None]]


class Claims:
    """The claims of one release on namespaces."""

    def __init__(self, kube: Kube, release: str, cache: Cache, metrics: Metrics) -> None:
        self._kube, self._release, self._cache, self._metrics = kube, release, cache, metrics
        self._leases: dict[str, Lease] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._attempted: dict[str, float] = {}
        self._refusals: dict[str, str] = {}

    def guarded(self, reconcile: Reconcile) -> Reconcile:
        """`reconcile`, but not for jobs in the namespaces of other releases."""

        async def guarded(key: Key, woken: float) -> float | None:
            if self._cache.job(key) is not None and not await self.holds(key[0]):
                return RETRY_SECONDS
            return await reconcile(key, woken)

        return guarded

    async def run(self) -> None:
        """Renew the claims on namespaces with jobs until cancelled."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            await self.renew()

    async def renew(self) -> None:
        """Renew them once; claims on namespaces without jobs end by themselves."""
        jobs = self._cache.keys()
        present = {namespace for namespace, _ in jobs}
        for namespace in set(self._leases) - present:
            del self._leases[namespace]
            self._report(namespace, "")
            self._metrics.refused_namespaces.remove(namespace)
        await asyncio.gather(*map(self._locked_attempt, self._leases))

    async def holds(self, namespace: str) -> bool:
        """Whether this release serves a namespace; takes one that is free."""
        if not self._held(namespace):
            async with self._locks[namespace]:
                waited = _now() - self._attempted.get(namespace, -RETRY_SECONDS)
                if not self._held(namespace) and waited >= RETRY_SECONDS:
                    await self._attempt(namespace)
        return self._held(namespace)

    def _held(self, namespace: str) -> bool:
        lease = self._leases.get(namespace)
        return lease is not None and lease.seconds_since_renewal() < GIVE_UP_SECONDS

    async def _locked_attempt(self, namespace: str) -> None:
        async with self._locks[namespace]:
            await self._attempt(namespace)

    async def _attempt(self, namespace: str) -> None:
        self._attempted[namespace] = _now()
        lease = self._leases.setdefault(
            namespace,
            Lease(self._kube, namespace, CLAIM_LEASE, self._release, DURATION_SECONDS),
        )
        try:
            held = await lease.attempt()
        except UnavailableError as error:
            log.warning("the claim on namespace %s: %s", namespace, error)
        except ApiError as error:
            self._report(namespace, f"its Lease {CLAIM_LEASE} cannot be taken: {error}")
        else:
            if held:
                self._report(namespace, "")
            elif lease.holder not in ("", self._release):
                self._report(namespace, f"the release {lease.holder} serves it")

    def _report(self, namespace: str, refusal: str) -> None:
        """Record why a namespace is not served; empty when it is, or has no jobs."""
        self._metrics.refused_namespaces.labels(namespace).set(1 if refusal else 0)
        if refusal == self._refusals.get(namespace, ""):
            return
        if refusal:
            self._refusals[namespace] = refusal
            log.error("ignoring the jobs of namespace %s: %s", namespace, refusal)
        else:
            del self._refusals[namespace]
            log.info("no longer ignoring jobs of namespace %s", namespace)


def _now() -> float:
    return asyncio.get_running_loop().time()
