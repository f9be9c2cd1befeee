"""Observing a job: from the cache, which is cheap, or live from the API server."""

import asyncio
import logging
from dataclasses import dataclass, field, replace
from datetime import datetime

import aiohttp

from grpo_trainer.spec import Progress

from ..clients.errors import ConflictError, NotFoundError
from ..clients.kube import Kube
from ..clients.ray import Head, HeadError, TokenRefusedError
from ..clients.tokens import Tokens
from ..model.decision import TERMINAL
from ..model.naming import UID_LABEL, child_name
from ..model.observed import Cluster, Job, Observed, Pod, Problem, RayJob, RayJobState
from ..model.parsing import parse_cluster, parse_job, parse_pod
from ..model.resources import CLUSTERS, JOBS, PODS
from ..policies.driver import SILENCE
from ..settings import DASHBOARD_PORT, DRIVER_PORT, Settings
from .cache import Cache, Key
from .causes import Causes

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Responses:
    """What the head of an attempt has reported, and when."""

    uid: str
    attempt: int
    last: datetime
    """Of the newest response; of the first observation before any."""
    step: int | None = None
    since: datetime | None = None
    """Of the first response with this step."""


@dataclass
class Observer:
    """Observes jobs.

    It records when each head last responded, and with which step; a restart drops these times.
    """

    kube: Kube
    session: aiohttp.ClientSession
    cache: Cache
    tokens: Tokens
    causes: Causes
    settings: Settings
    _responses: dict[Key, _Responses] = field(default_factory=dict)

    def forget(self, key: Key) -> None:
        """Drop the records of a job that is gone."""
        self.causes.forget(key)
        known = self._responses.pop(key, None)
        if known is not None:
            self.tokens.forget(known.uid)

    async def observe_cached(self, job: Job, now: datetime) -> Observed:
        """The state that the watches reported, and the head's responses."""
        cluster, pods = self.cache.cluster(job), self.cache.pods(job)
        return await self._with_head(job, cluster, pods, now, live=False)

    async def observe_live(self, key: Key, now: datetime) -> Observed | None:
        """The current state by the API server and Ray; None when the job is gone.

        Raises ApiError.
        """
        known = self.cache.job(key)
        if known is None:
            return None
        try:
            raw, cluster = await asyncio.gather(self.kube.get(JOBS, *key), self._cluster(known))
        except NotFoundError:
            return None
        self.cache.put(JOBS, raw)
        job = parse_job(raw, known)
        if job.uid != known.uid:
            raise ConflictError(409, "Conflict", "another job has this name")
        # After the cluster: one that was created and deleted in between has left pods.
        pods = await self._pods(job)
        return await self._with_head(job, cluster, pods, now, live=True)

    def head(self, job: Job, cluster: Cluster) -> Head:
        """The servers of a job's head."""
        assert cluster.service is not None
        service = (job.namespace, cluster.service)
        return Head(
            session=self.session,
            dashboard=self.settings.head_url(*service, DASHBOARD_PORT),
            driver=self.settings.head_url(*service, DRIVER_PORT),
            token=self.tokens.of(job),
        )

    async def _cluster(self, job: Job) -> Cluster | None:
        try:
            raw = await self.kube.get(CLUSTERS, job.namespace, child_name(job.name, job.uid))
        except NotFoundError:
            return None
        return parse_cluster(raw)

    async def _pods(self, job: Job) -> tuple[Pod, ...]:
        answer = await self.kube.list(PODS, job.namespace, f"{UID_LABEL}={job.uid}")
        pods = (parse_pod(item) for item in answer["items"])
        return tuple(sorted((p for p in pods if p is not None), key=lambda pod: pod.name))

    async def _with_head(
        self,
        job: Job,
        cluster: Cluster | None,
        pods: tuple[Pod, ...],
        now: datetime,
        *,
        live: bool,
    ) -> Observed:
        observed = Observed(job, cluster=cluster, pods=pods)
        observed = replace(observed, cause=await self.causes.of(observed, now))
        head, draining = observed.head, observed.draining_head(now) is not None
        serving = draining or (head is not None and head.ready)
        asked = job.spec is not None and not job.deleting and job.status.phase not in TERMINAL
        if not asked or not serving or cluster is None or not cluster.service:
            return self._aged(observed, None, None, now)
        server = self.head(job, cluster)
        progress = await server.progress(observed.attempt)
        if progress is not None and not progress.state.is_end and not live:
            # While the driver responds, Ray need not be asked.
            running = (RayJob(observed.attempt, RayJobState.RUNNING),)
            return self._aged(observed, running, progress, now)
        try:
            return self._aged(observed, await server.jobs(job), progress, now)
        except TokenRefusedError:
            fault = await self.tokens.refused(job)
            problem = Problem("TokenRefused", fault) if fault else None
            return self._aged(replace(observed, problem=problem), None, progress, now)
        except HeadError as error:
            log.debug("%s", error)
            return self._aged(observed, None, progress, now)

    def _aged(
        self,
        observed: Observed,
        ray_jobs: tuple[RayJob, ...] | None,
        progress: Progress | None,
        now: datetime,
    ) -> Observed:
        """With the responses of the head, and since when they, or their absence, are the same."""
        job, key = observed.job, (observed.job.namespace, observed.job.name)
        known = self._responses.get(key)
        if known is None or (known.uid, known.attempt) != (job.uid, observed.attempt):
            known = _Responses(job.uid, observed.attempt, now)
        driver_expected = known.step is not None
        if progress is not None:
            step = progress.progress.step
            # After a silence the time at a step counts from the next response.
            same = step == known.step and now - known.last <= SILENCE
            known = replace(known, last=now, step=step, since=known.since if same else now)
        elif ray_jobs is not None and not driver_expected:
            known = replace(known, last=now)
        self._responses[key] = known
        silent = progress is None and known.last < now
        return replace(
            observed,
            ray_jobs=ray_jobs,
            progress=progress,
            step_since=known.since if progress is not None else None,
            silent_since=known.last if silent else None,
        )
