"""The newest state of every job and its children that the watches reported.

Before any action the API server itself is asked.
"""

from collections.abc import Iterable
from typing import Any

from ..model.observed import Cluster, Job, Pod
from ..model.parsing import (
    Object,
    managed_by_others,
    owner_key,
    owner_uid,
    parse_cluster,
    parse_job,
    parse_pod,
)
from ..model.resources import CLUSTERS, JOBS, PODS, Resource

Key = tuple[str, str]
"""Namespace and name of a job."""
Name = tuple[str, str]
"""Namespace and name of any object."""


class Cache:
    """Records by job. All methods are synchronous, so each is atomic to coroutines."""

    def __init__(self) -> None:
        self._jobs: dict[Key, Job] = {}
        self._children: dict[Resource, dict[Name, tuple[Key, str, Cluster | Pod]]] = {
            CLUSTERS: {},
            PODS: {},
        }
        self._by_job: dict[Key, set[tuple[Resource, Name]]] = {}
        self._versions: dict[Resource, dict[Name, int]] = {JOBS: {}, CLUSTERS: {}, PODS: {}}

    def keys(self) -> Iterable[Key]:
        """All jobs."""
        return tuple(self._jobs)

    def job(self, key: Key) -> Job | None:
        """A job, or None when it is gone."""
        return self._jobs.get(key)

    def cluster(self, job: Job) -> Cluster | None:
        """The job's own cluster; not that of an earlier job of the same name."""
        found = (child for child in self._own(job) if isinstance(child, Cluster))
        return next(found, None)

    def pods(self, job: Job) -> tuple[Pod, ...]:
        """The pods that carry the job's UID."""
        pods = (child for child in self._own(job) if isinstance(child, Pod))
        return tuple(sorted(pods, key=lambda pod: pod.name))

    def version(self, resource: Resource, name: Name) -> int:
        """The cached version of an object; 0 for none."""
        return self._versions[resource].get(name, 0)

    def names(self, resource: Resource) -> tuple[Name, ...]:
        """All cached objects of a kind."""
        return tuple(self._versions[resource])

    def put(self, resource: Resource, raw: Object) -> Key | None:
        """Store an object, unless a newer version is cached.

        Returns the job to reconcile; None when nothing has changed that a decision depends on, and
        for a job that another controller manages, which is not stored.
        The version is recorded before the object is parsed, so that one that cannot be parsed does
        not count as missed.
        """
        name = _name(raw)
        version = int(raw["metadata"]["resourceVersion"])
        key = name if resource is JOBS else owner_key(raw)
        if key is None:
            return None
        if version < self.version(resource, name):
            return None
        self._versions[resource][name] = version
        if resource is JOBS:
            if managed_by_others(raw):
                return key if self._jobs.pop(key, None) is not None else None
            self._jobs[key] = parse_job(raw, self._jobs.get(key))
            return key
        child = parse_cluster(raw) if resource is CLUSTERS else parse_pod(raw)
        if child is None:
            return None
        record = (key, owner_uid(raw), child)
        if record == self._children[resource].get(name):
            return None
        self._children[resource][name] = record
        self._by_job.setdefault(key, set()).add((resource, name))
        return key

    def drop(self, resource: Resource, name: Name) -> Key | None:
        """Remove an object that was deleted; returns the job it belonged to."""
        self._versions[resource].pop(name, None)
        if resource is JOBS:
            self._jobs.pop(name, None)
            return name
        key, _, _ = self._children[resource].pop(name, (None, "", None))
        if key is not None:
            self._by_job[key].discard((resource, name))
            if not self._by_job[key]:
                del self._by_job[key]
        return key

    def _own(self, job: Job) -> Iterable[Any]:
        for resource, name in self._by_job.get((job.namespace, job.name), ()):
            _, uid, child = self._children[resource][name]
            if uid == job.uid:
                yield child


def _name(raw: Object) -> Name:
    return raw["metadata"]["namespace"], raw["metadata"]["name"]
