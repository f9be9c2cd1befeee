"""Observe, decide, act, record: the reconciliation of one job."""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from grpo_trainer.spec import GRPOJobStatus, Phase

from ..clients.events import Recorder
from ..clients.kube import MERGE_PATCH, ConflictError, Kube, NotFoundError
from ..clients.ray import HeadError
from ..model.decision import TERMINAL, CreateCluster, Decision, Submit
from ..model.observed import Job, Observed
from ..model.resources import JOBS
from ..policies.deadlines import seconds_to_next
from ..policies.progress import may_wait
from .accounting import Accounting
from .act import ActionRefusedError, Actor
from .cache import Cache, Key
from .decide import decide
from .observe import Observer
from .throttle import StatusThrottle

log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
CREATIONS = 8
"""Clusters created at the same time: of a thousand new jobs most wait, so that earlier jobs do not
wait for their calls."""
RESYNC_SECONDS = 300.0
"""Longest time between two reconciliations of a job that is not terminal, if an event is lost."""


def utc_now() -> datetime:
    """The time in whole seconds, as in Kubernetes."""
    return datetime.now(UTC).replace(microsecond=0)


@dataclass
class Reconciler:
    """Reconciles jobs. Its caller never calls it for one job twice at the same time."""

    kube: Kube
    cache: Cache
    observer: Observer
    actor: Actor
    recorder: Recorder
    accounting: Accounting
    throttle: StatusThrottle
    clock: Callable[[], datetime] = utc_now
    _creating: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CREATIONS))

    async def reconcile(self, key: Key, woken: float) -> float | None:
        """Reconcile a job whose caller was woken at this time of the loop's clock.

        Returns the seconds after which to requeue it; None when only an event can change it.

        Raises ApiError.
        """
        job = self.cache.job(key)
        if job is None:
            self._forget(key)
            return None
        try:
            return await self._reconcile(key, job, woken)
        except ConflictError as error:
            log.debug("changed meanwhile: %s", error)
            return random.uniform(0.05, 0.5)
        except HeadError as error:
            log.info("the head did not answer: %s", error)
            return RETRY_SECONDS

    async def _reconcile(self, key: Key, job: Job, woken: float) -> float | None:
        now = self.clock()
        observed = await self.observer.observe_cached(job, now)
        decision = decide(observed, now)
        if _routine(observed, decision):
            return await self._perform(key, observed, decision, now, woken)
        async with self._creating if CreateCluster() in decision.actions else nullcontext():
            now = self.clock()
            live = await self.observer.observe_live(key, now)
            if live is None:
                return None
            return await self._perform(key, live, decide(live, now), now, woken)

    async def _perform(
        self, key: Key, observed: Observed, decision: Decision, now: datetime, woken: float
    ) -> float | None:
        decision = await self._act(observed, decision, now)
        wait = await self._record(key, observed, decision, woken)
        delays = (wait, _requeue_after(decision))
        return min((after for after in delays if after is not None), default=None)

    async def _act(self, observed: Observed, decision: Decision, now: datetime) -> Decision:
        """Perform the actions; a refusal becomes a decision that only reports it."""
        try:
            for action in decision.actions:
                log.info("%s", action)
                await self.actor.perform(observed, action)
        except ActionRefusedError as error:
            self.accounting.refused(error.problem)
            log.warning("refused: %s", error)
            refused = decide(replace(observed, problem=error.problem), now)
            return replace(
                refused, actions=(), requeue_after=self._retry_after(observed, refused, now)
            )
        if decision.actions:
            self.accounting.accepted(observed.job)
        return decision

    def _retry_after(self, observed: Observed, refused: Decision, now: datetime) -> float:
        """Seconds until a refused action is retried, or a deadline passes before that."""
        after = self.accounting.backoff(observed.job)
        left = seconds_to_next(observed, refused.status, now)
        if refused.status.phase in TERMINAL:
            return 0.0
        return after if left is None else min(after, left)

    async def _record(
        self, key: Key, observed: Observed, decision: Decision, woken: float
    ) -> float | None:
        """Write the status if it changed; progress alone is throttled, but for the driver's end.

        Returns the seconds until throttled progress may be written.
        """
        job = observed.job
        old, new = job.status, decision.status
        if old == new:
            return None
        ended = observed.progress is not None and observed.progress.state.is_end
        loop = asyncio.get_running_loop()
        if may_wait(old, new) and not ended:
            wait = self.throttle.seconds_to_wait(key, loop.time())
            if wait > 0:
                return wait
        await self._write(job, new)
        self.throttle.written(key, loop.time())
        self.accounting.changed(job, new, loop.time() - woken)
        await self.recorder.changed(job, decision)
        return None

    async def _write(self, job: Job, status: GRPOJobStatus) -> None:
        """Refused with a conflict if the job has changed since it was observed."""
        body = {
            "metadata": {"resourceVersion": job.resource_version, "uid": job.uid},
            "status": status.model_dump(mode="json", by_alias=True),
        }
        try:
            raw = await self.kube.patch(
                JOBS,
                job.namespace,
                job.name,
                body,
                content_type=MERGE_PATCH,
                subresource="status",
            )
        except NotFoundError:
            log.debug("deleted before its status was written")
            return
        self.cache.put(JOBS, raw)

    def _forget(self, key: Key) -> None:
        self.observer.forget(key)
        self.accounting.forget(key)
        self.throttle.forget(key)


def _routine(observed: Observed, decision: Decision) -> bool:
    """Whether a decision may rely on the cache, which may lag behind.

    The driver and Ray are asked in the same reconciliation, and Ray accepts each attempt only once.
    The write of the status is refused if the job has changed.
    """
    old, new = observed.job.status, decision.status
    started = (old.phase, new.phase) == (Phase.STARTING, Phase.RUNNING)
    same = (old.attempt, old.restarts) == (new.attempt, new.restarts)
    harmless = all(isinstance(action, Submit) for action in decision.actions)
    return same and (started or old.phase is new.phase) and harmless


def _requeue_after(decision: Decision) -> float | None:
    if decision.status.phase in TERMINAL:
        return decision.requeue_after
    after = decision.requeue_after
    return RESYNC_SECONDS if after is None else min(after, RESYNC_SECONDS)
