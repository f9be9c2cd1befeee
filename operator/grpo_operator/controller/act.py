"""Performing the actions of a decision. All of them may be repeated."""

import logging
import secrets
from dataclasses import dataclass

from ..clients.kube import JSON_PATCH, ConflictError, Kube, RefusedError
from ..clients.ray import Head, HeadError, SubmissionRefusedError
from ..model.decision import (
    Action,
    CreateCluster,
    DeleteCluster,
    DeleteJob,
    Drain,
    DumpStacks,
    ScaleProducers,
    StopDriver,
    Submit,
)
from ..model.observed import Job, Observed, Problem
from ..model.resources import (
    CLAIMS,
    CLUSTERS,
    CONFIG_MAPS,
    JOBS,
    NETWORK_POLICIES,
    SECRETS,
    Resource,
)
from ..render import claim, config_map, network_policy, ray_cluster, scale_patch, secret
from ..render.merge import Object
from ..settings import Settings
from .observe import Observer

log = logging.getLogger(__name__)
_DENIALS = ("admission webhook", "denied the request", "ValidatingAdmissionPolicy")
"""What the API server says when a webhook or a policy of the cluster is against an object."""


class ActionRefusedError(Exception):
    """Something the owner of the job has to know: shown in its status, tried again later."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(f"{problem.reason}: {problem.message}")


@dataclass(frozen=True)
class Actor:
    """Acts on the world for a job."""

    kube: Kube
    observer: Observer
    settings: Settings

    async def perform(self, seen: Observed, action: Action) -> None:
        """Perform one action.

        Raises ActionRefusedError, ApiError, or HeadError for a submission that got no answer. A
        ConflictError says that the object to delete is not the one that was seen: look again.
        """
        job = seen.job
        match action:
            case CreateCluster():
                await self._create(job)
            case DeleteCluster(uid):
                assert seen.cluster is not None
                await self.kube.delete(CLUSTERS, job.namespace, seen.cluster.name, {"uid": uid})
            case ScaleProducers(replicas):
                await self._scale(seen, replicas)
            case Submit(attempt):
                await self._submit(seen, attempt)
            case DeleteJob():
                seen_then = {"uid": job.uid, "resourceVersion": job.resource_version}
                await self.kube.delete(JOBS, job.namespace, job.name, seen_then)
            case StopDriver() | Drain() | DumpStacks():
                await self._tell_driver(seen, action)

    async def _create(self, job: Job) -> None:
        """The cluster comes last: where it is, the rest is too."""
        try:
            cluster = ray_cluster(job, self.settings)
        except ValueError as error:
            raise ActionRefusedError(Problem("InvalidPodTemplate", str(error))) from error
        volume, access = claim(job), self.settings.network_access
        try:
            if volume is not None:
                await self._create_once(CLAIMS, volume)
            await self._create_or_update(CONFIG_MAPS, config_map(job))
            token = secrets.token_urlsafe(32)
            if await self._create_once(SECRETS, secret(job, token)):
                self.observer.keep_token(job, token)
            if access is not None:
                await self._create_or_update(NETWORK_POLICIES, network_policy(job, access))
            await self.kube.create(CLUSTERS, job.namespace, cluster)
        except RefusedError as error:
            raise ActionRefusedError(problem_of(error)) from error

    async def _create_once(self, resource: Resource, body: Object) -> bool:
        """Whether it was not there before."""
        try:
            await self.kube.create(resource, body["metadata"]["namespace"], body)
        except ConflictError:
            log.debug("%s %s exists", resource.plural, body["metadata"]["name"])
            return False
        return True

    async def _create_or_update(self, resource: Resource, body: Object) -> None:
        """The mutable fields of the spec, or the operator's settings, may have changed since."""
        try:
            await self.kube.create(resource, body["metadata"]["namespace"], body)
        except ConflictError:
            await self.kube.update(resource, body["metadata"]["namespace"], body)

    async def _scale(self, seen: Observed, replicas: int) -> None:
        assert seen.cluster is not None
        namespace, name = seen.job.namespace, seen.cluster.name
        try:
            cluster = await self.kube.get(CLUSTERS, namespace, name)
            patch = scale_patch(cluster, replicas)
            await self.kube.patch(CLUSTERS, namespace, name, patch, content_type=JSON_PATCH)
        except RefusedError as error:
            raise ActionRefusedError(problem_of(error)) from error

    async def _submit(self, seen: Observed, attempt: int) -> None:
        try:
            await (await self._head(seen)).submit(seen.job, attempt)
        except SubmissionRefusedError as error:
            raise ActionRefusedError(Problem("SubmissionRefused", str(error))) from error

    async def _tell_driver(self, seen: Observed, action: StopDriver | Drain | DumpStacks) -> None:
        """Best effort: a driver that does not listen is dealt with by deleting its pods."""
        if seen.ray_jobs is None:
            return
        head = await self._head(seen)
        try:
            match action:
                case StopDriver(attempt):
                    await head.stop(seen.job, attempt)
                case Drain():
                    await head.drain()
                case DumpStacks():
                    await head.dump_stacks()
        except HeadError as error:
            log.warning("%s failed: %s", type(action).__name__, error)

    async def _head(self, seen: Observed) -> Head:
        assert seen.cluster is not None
        return await self.observer.head(seen.job, seen.cluster)


def problem_of(error: RefusedError) -> Problem:
    """A refusal in a word; the message is the API server's own."""
    if "exceeded quota" in error.message:
        return Problem("QuotaExceeded", error.message)
    if any(words in error.message for words in _DENIALS):
        return Problem("AdmissionDenied", error.message)
    return Problem(error.reason or "Refused", error.message)
