"""Whether the watches are alive: what the API server lists must be what they have told.

A watch that has died silently looks like a cluster in which nothing happens. So the newest
versions are listed now and then; what a watch has still not told by the next time it never will.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..clients.kube import ApiError, Kube
from ..model.naming import JOB_LABEL
from ..model.resources import CLUSTERS, JOBS, PODS, Resource
from .cache import Cache, Key, Name

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 30.0
SELECTORS = {JOBS: "", CLUSTERS: JOB_LABEL, PODS: JOB_LABEL}
"""Which objects of each kind are watched, by label."""

_Behind = set[tuple[Resource, Name, int]]


@dataclass
class Auditor:
    """Compares lists with the store."""

    kube: Kube
    store: Cache
    namespaces: Sequence[str | None]
    """Where to list; None is everywhere."""
    wake: Callable[[Key], None]
    missed: int = 0
    """Objects of which the watches failed to tell, at the last comparison."""
    _behind: _Behind = field(default_factory=set)

    async def run(self) -> None:
        """Compare for ever."""
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            try:
                await self.compare()
            except ApiError as error:
                log.warning("no comparison with the API server: %s", error)

    async def compare(self) -> None:
        """One comparison. Raises ApiError."""
        behind: _Behind = set()
        for resource in SELECTORS:
            behind |= await self._behind_in(resource)
        lost = {(resource, name) for resource, name, _ in behind & self._behind}
        self._behind, self.missed = behind, len(lost)
        for resource, name in lost:
            log.error("the watch of %s did not tell of %s/%s", resource.plural, *name)

    async def _behind_in(self, resource: Resource) -> _Behind:
        listed: dict[Name, int] = {}
        for namespace in self.namespaces:
            for found in await self.kube.list_metadata(resource, namespace, SELECTORS[resource]):
                listed[found.namespace, found.name] = int(found.resource_version)
        newer = {
            (resource, name, version)
            for name, version in listed.items()
            if version > self.store.version(resource, name)
        }
        gone = {(resource, name, 0) for name in self.store.names(resource) if name not in listed}
        for _, name, _ in gone & self._behind:
            # A watch that begins anew does not tell of what went meanwhile.
            key = self.store.drop(resource, name)
            if key is not None:
                self.wake(key)
        return newer | (gone - self._behind)
