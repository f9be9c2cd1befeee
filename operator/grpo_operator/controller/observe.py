"""Collecting what is known of a job: a cheap look at the store, or a certain one at the API."""

import asyncio
import logging
from dataclasses import dataclass, field, replace
from datetime import datetime

import aiohttp

from grpo_trainer.spec import ConditionStatus, ConditionType, Progress

from ..clients.errors import ConflictError, NotFoundError
from ..clients.kube import Kube
from ..clients.ray import Head, HeadError, TokenRefusedError
from ..clients.tokens import Tokens
from ..model.conditions import since
from ..model.decision import TERMINAL
from ..model.naming import UID_LABEL, child_name
from ..model.observed import Cluster, Job, Observed, Pod, Problem, RayJob, RayJobState
from ..model.parsing import parse_cluster, parse_job, parse_pod
from ..model.resources import CLUSTERS, JOBS, PODS
from ..settings import DASHBOARD_PORT, DRIVER_PORT, Settings
from .cache import Cache, Key

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Step:
    """The newest step of an attempt, and when it was first seen."""

    uid: str
    attempt: int
    step: int
    since: datetime


@dataclass
class Observer:
    """Observes jobs. It keeps the age of each job's newest step, which a restart begins again."""

    kube: Kube
    session: aiohttp.ClientSession
    store: Cache
    tokens: Tokens
    settings: Settings
    _steps: dict[Key, _Step] = field(default_factory=dict)

    def forget(self, key: Key) -> None:
        """Drop what was kept of a job that is gone."""
        step = self._steps.pop(key, None)
        if step is not None:
            self.tokens.forget(step.uid)

    async def observe_cached(self, job: Job, now: datetime) -> Observed:
        """What the watches say, and the head."""
        cluster, pods = self.store.cluster(job), self.store.pods(job)
        return await self._with_head(job, cluster, pods, now, certain=False)

    async def look(self, key: Key, now: datetime) -> Observed | None:
        """What the API server and Ray say at this moment; None when the job is gone.

        Raises ApiError.
        """
        known = self.store.job(key)
        if known is None:
            return None
        try:
            raw, cluster = await asyncio.gather(self.kube.get(JOBS, *key), self._cluster(known))
        except NotFoundError:
            return None
        self.store.put(JOBS, raw)
        job = parse_job(raw, known)
        if job.uid != known.uid:
            raise ConflictError(409, "Conflict", "another job has taken the name")
        # After the cluster: one that came and went between the answers has left pods.
        pods = await self._pods(job)
        return await self._with_head(job, cluster, pods, now, certain=True)

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
        certain: bool,
    ) -> Observed:
        seen = Observed(job, cluster=cluster, pods=pods)
        head = seen.head
        asked = job.spec is not None and not job.deleting and job.status.phase not in TERMINAL
        if not asked or head is None or not head.ready or cluster is None or not cluster.service:
            return self._aged(seen, None, None, now)
        server = self.head(job, cluster)
        progress = await server.progress(seen.attempt)
        if progress is not None and not progress.state.is_end and not certain:
            # While the driver talks there is no need to ask Ray about it.
            running = (RayJob(seen.attempt, RayJobState.RUNNING),)
            return self._aged(seen, running, progress, now)
        try:
            return self._aged(seen, await server.jobs(job), progress, now)
        except TokenRefusedError:
            fault = await self.tokens.refused(job)
            problem = Problem("TokenRefused", fault) if fault else None
            return self._aged(replace(seen, problem=problem), None, progress, now)
        except HeadError as error:
            log.debug("%s", error)
            return self._aged(seen, None, progress, now)

    def _aged(
        self,
        seen: Observed,
        ray_jobs: tuple[RayJob, ...] | None,
        progress: Progress | None,
        now: datetime,
    ) -> Observed:
        """With the head's answers and the time since when the present step has lasted."""
        job, key = seen.job, (seen.job.namespace, seen.job.name)
        step = (progress.progress if progress else job.status.progress).step
        training = since(job.status, ConditionType.TRAINING, ConditionStatus.TRUE)
        known = self._steps.get(key)
        if known is None or (known.uid, known.attempt, known.step) != (job.uid, seen.attempt, step):
            known = self._steps[key] = _Step(job.uid, seen.attempt, step, now)
        step_since = known.since if training is not None else None
        return replace(seen, ray_jobs=ray_jobs, progress=progress, step_since=step_since)
