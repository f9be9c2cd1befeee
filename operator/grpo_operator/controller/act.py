"""Performing the actions of a decision. Each may be repeated."""

import logging
from dataclasses import dataclass

from ..clients.errors import (
    AlreadyExistsError,
    ApiError,
    ForbiddenError,
    NotFoundError,
    RefusedError,
)
from ..clients.kube import JSON_PATCH, Kube
from ..clients.ray import Head, HeadError, SubmissionRefusedError
from ..clients.tokens import Tokens
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
    DEPLOYMENTS,
    JOBS,
    NETWORK_POLICIES,
    SECRETS,
    SERVICES,
    Resource,
)
from ..policies.volumes import claim_name
from ..render import (
    claim,
    config_map,
    environment_deployment,
    environment_name,
    environment_policy,
    environment_service,
    has_environment_pods,
    network_policy,
    ray_cluster,
    scale_patch,
    secret,
)
from ..render.merge import Object
from ..render.metadata import KeyNotAllowedError
from ..settings import Settings
from .observe import Observer

log = logging.getLogger(__name__)
_DENIALS = ("admission webhook", "denied the request", "ValidatingAdmissionPolicy")
"""Parts of the API server's message when a webhook or a policy denies an object."""
_MANY_NODES = frozenset({"ReadWriteMany"})
_UNKNOWN_FIELD = "strict decoding error"


class ActionRefusedError(Exception):
    """The API server or Ray refused an action: shown in the job's status, retried later."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(f"{problem.reason}: {problem.message}")


@dataclass(frozen=True)
class Actor:
    """Performs actions for a job."""

    kube: Kube
    observer: Observer
    tokens: Tokens
    settings: Settings

    async def perform(self, seen: Observed, action: Action) -> None:
        """Perform one action.

        Raises ActionRefusedError, ApiError, or HeadError for a submission without a response. A
        ConflictError means that the object has changed since it was observed: observe again.
        """
        job = seen.job
        match action:
            case CreateCluster():
                await self._create(job)
            case DeleteCluster(uid):
                assert seen.cluster is not None
                # First: where the cluster is gone, nothing else is deleted.
                if job.spec is not None and has_environment_pods(job.spec):
                    await self.kube.delete(DEPLOYMENTS, job.namespace, environment_name(job))
                await self.kube.delete(CLUSTERS, job.namespace, seen.cluster.name, {"uid": uid})
            case ScaleProducers(replicas):
                await self._scale(seen, replicas)
            case Submit(attempt):
                await self._submit(seen, attempt)
            case DeleteJob():
                seen_then = {"uid": job.uid, "resourceVersion": job.resource_version}
                await self.kube.delete(JOBS, job.namespace, job.name, seen_then)
            case StopDriver() | Drain() | DumpStacks():
                await self._call_driver(seen, action)

    async def _create(self, job: Job) -> None:
        """The cluster is created last: where it exists, everything else does."""
        node_claim = await self._node_claim(job)
        try:
            cluster = ray_cluster(job, self.settings, node_claim)
            environment = self._environment(job)
        except KeyNotAllowedError as error:
            raise ActionRefusedError(Problem("KeyNotAllowed", str(error))) from error
        except ValueError as error:
            raise ActionRefusedError(Problem("InvalidPodTemplate", str(error))) from error
        volume, access = claim(job), self.settings.network_access
        objects: list[tuple[Resource, Object | None]] = [
            (CLAIMS, volume),
            (CONFIG_MAPS, config_map(job)),
            (SECRETS, secret(job, self.tokens.of(job))),
            (NETWORK_POLICIES, None if access is None else network_policy(job, access)),
            *environment,
            (CLUSTERS, cluster),
        ]
        for position, (resource, body) in enumerate(objects):
            if body is not None:
                await self._create_one(job, resource, body, position)

    async def _node_claim(self, job: Job) -> str | None:
        """The job's claim, if only one node at a time can mount it.

        A claim that does not exist, or cannot be read, is not known to be one.
        """
        storage = job.spec.storage if job.spec is not None else None
        assert storage is not None
        name = claim_name(job)
        modes = tuple(map(str, storage.access_modes))
        if storage.claim_name is not None:
            try:
                found = await self.kube.get(CLAIMS, job.namespace, name)
            except (NotFoundError, ForbiddenError) as error:
                log.warning("claim %s: %s", name, error)
                return None
            modes = tuple(found["spec"]["accessModes"])
        return None if _MANY_NODES & set(modes) else name

    def _environment(self, job: Job) -> list[tuple[Resource, Object | None]]:
        """The pods of the environment. Raises ValueError as `environment_deployment`."""
        if job.spec is None or not has_environment_pods(job.spec):
            return []
        access = self.settings.network_access
        return [
            (NETWORK_POLICIES, None if access is None else environment_policy(job)),
            (SERVICES, environment_service(job)),
            (DEPLOYMENTS, environment_deployment(job, self.settings)),
        ]

    async def _create_one(self, job: Job, resource: Resource, body: Object, position: int) -> None:
        """Create the object at a position of the sequence, unless it exists.

        A cluster that exists is raised: its job has to be observed again. Contention for a quota
        is a ConflictError too, but nothing exists then.
        """
        try:
            await self.kube.create(resource, job.namespace, body)
        except AlreadyExistsError:
            if resource is CLUSTERS:
                raise
            log.debug("%s %s exists", resource.plural, body["metadata"]["name"])
        except RefusedError as error:
            raise ActionRefusedError(problem_of(error)) from error
        except ApiError as error:
            error.reached = position
            raise

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
            await self._head(seen).submit(seen.job, attempt)
        except SubmissionRefusedError as error:
            raise ActionRefusedError(Problem("SubmissionRefused", str(error))) from error

    async def _call_driver(self, seen: Observed, action: StopDriver | Drain | DumpStacks) -> None:
        """Best effort: pods of a driver that does not respond are deleted anyway."""
        if seen.ray_jobs is None:
            return
        head = self._head(seen)
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

    def _head(self, seen: Observed) -> Head:
        assert seen.cluster is not None
        return self.observer.head(seen.job, seen.cluster)


def problem_of(error: RefusedError) -> Problem:
    """A refusal as a reason, with the API server's message."""
    if "exceeded quota" in error.message:
        return Problem("QuotaExceeded", error.message)
    if any(words in error.message for words in _DENIALS):
        return Problem("AdmissionDenied", error.message)
    if _UNKNOWN_FIELD in error.message:
        # The user's patch is the only part of a child with fields of its own.
        reason = "InvalidPodTemplate" if ".template." in error.message else "UnsupportedField"
        return Problem(reason, error.message)
    return Problem(error.reason or "Refused", error.message)
