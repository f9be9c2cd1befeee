"""Whether the watches are alive: what the API server lists must have been reported by them.

A watch that has died silently is indistinguishable from a cluster in which nothing happens, so
names and versions are listed periodically. An object that a watch has still not reported one
interval later was missed by it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..clients.errors import ApiError
from ..clients.kube import Kube
from ..metrics import Metrics
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
    """Compares lists with the cache."""

    kube: Kube
    store: Cache
    namespaces: Sequence[str | None]
    """Where to list; None is everywhere."""
    wake: Callable[[Key], None]
    metrics: Metrics
    missed: int = 0
    """Objects that the watches failed to report, at the last comparison."""
    _behind: _Behind = field(default_factory=set)

    async def run(self) -> None:
        """Compare until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            await self.compare()

    async def compare(self) -> None:
        """One comparison. Namespaces that cannot be listed are left out of it."""
        behind: _Behind = set()
        foreign = 0
        for resource in SELECTORS:
            for namespace in self.namespaces:
                try:
                    found, others = await self._behind_in(resource, namespace)
                except ApiError as error:
                    log.warning("cannot compare %s: %s", resource.plural, error)
                    continue
                behind |= found
                foreign += others
        missed = {(resource, name) for resource, name, _ in behind & self._behind}
        self._behind, self.missed = behind, len(missed)
        self.metrics.foreign_objects.set(foreign)
        for resource, name in missed:
            log.error("the watch of %s did not report %s/%s", resource.plural, *name)

    async def _behind_in(self, resource: Resource, namespace: str | None) -> tuple[_Behind, int]:
        """What the cache is behind with, and how many objects belong to no job.

        Anybody may put our label on an object of theirs: one without a job's name is never cached,
        so it is counted and nothing depends on it. Raises ApiError.
        """
        listed: dict[Name, int] = {}
        foreign = 0
        for found in await self.kube.list_metadata(resource, namespace, SELECTORS[resource]):
            if resource is not JOBS and not found.labels.get(JOB_LABEL):
                foreign += 1
                continue
            listed[found.namespace, found.name] = int(found.resource_version)
        newer = {
            (resource, name, version)
            for name, version in listed.items()
            if version > self.store.version(resource, name)
        }
        known = [n for n in self.store.names(resource) if namespace is None or n[0] == namespace]
        gone = {(resource, name, 0) for name in known if name not in listed}
        for _, name, _ in gone & self._behind:
            # A watch that reconnects does not report what was deleted meanwhile.
            key = self.store.drop(resource, name)
            if key is not None:
                self.wake(key)
        return newer | (gone - self._behind), foreign
