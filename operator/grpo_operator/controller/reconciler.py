"""Observe, decide, act, record: one look at one job."""

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
from ..model.decision import CreateCluster, Decision, Submit
from ..model.observed import Job, Observed
from ..model.resources import JOBS
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
"""Clusters made in the same moment: of a thousand new jobs most wait, and those before them do not
wait behind their calls."""
RESYNC_SECONDS = 300.0
"""A job that is not over is looked at at least so often, should an event be lost."""


def utc_now() -> datetime:
    """The time, in the whole seconds of Kubernetes."""
    return datetime.now(UTC).replace(microsecond=0)


@dataclass
class Reconciler:
    """Looks at jobs; never at one twice at once, which its caller sees to."""

    kube: Kube
    store: Cache
    observer: Observer
    actor: Actor
    recorder: Recorder
    accounting: Accounting
    pace: StatusThrottle
    clock: Callable[[], datetime] = utc_now
    _creating: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CREATIONS))

    async def reconcile(self, key: Key, woken: float) -> float | None:
        """One look at a job, for which its caller was woken at a time of the loop's clock.

        Returns after how many seconds to look again; None when only an event can matter.

        Raises ApiError.
        """
        job = self.store.job(key)
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
        seen = await self.observer.observe_cached(job, now)
        decision = decide(seen, now)
        if _routine(seen, decision):
            return await self._perform(key, seen, decision, now, woken)
        async with self._creating if CreateCluster() in decision.actions else nullcontext():
            now = self.clock()
            certain = await self.observer.look(key, now)
            if certain is None:
                return None
            return await self._perform(key, certain, decide(certain, now), now, woken)

    async def _perform(
        self, key: Key, seen: Observed, decision: Decision, now: datetime, woken: float
    ) -> float | None:
        decision = await self._act(seen, decision, now)
        wait = await self._record(key, seen, decision, woken)
        looks = (wait, _next_look(decision))
        return min((after for after in looks if after is not None), default=None)

    async def _act(self, seen: Observed, decision: Decision, now: datetime) -> Decision:
        """Perform the actions; what is refused becomes a decision that only says so."""
        try:
            for action in decision.actions:
                log.info("%s", action)
                await self.actor.perform(seen, action)
        except ActionRefusedError as error:
            self.accounting.refused(error.problem)
            log.warning("refused: %s", error)
            said = decide(replace(seen, problem=error.problem), now)
            return replace(said, actions=(), requeue_after=self.accounting.backoff(seen.job))
        if decision.actions:
            self.accounting.accepted(seen.job)
        return decision

    async def _record(
        self, key: Key, seen: Observed, decision: Decision, woken: float
    ) -> float | None:
        """Write the status if it changed; mere progress not too often, but a driver's last word.

        Returns in how many seconds progress may be written that has to wait now.
        """
        job = seen.job
        old, new = job.status, decision.status
        if old == new:
            return None
        last_word = seen.progress is not None and seen.progress.state.is_end
        loop = asyncio.get_running_loop()
        if may_wait(old, new) and not last_word:
            wait = self.pace.seconds_to_wait(key, loop.time())
            if wait > 0:
                return wait
        await self._write(job, new)
        self.pace.written(key, loop.time())
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
        self.store.put(JOBS, raw)

    def _forget(self, key: Key) -> None:
        self.observer.forget(key)
        self.accounting.forget(key)
        self.pace.forget(key)


def _routine(seen: Observed, decision: Decision) -> bool:
    """Whether a decision may stand on what the watches say, which may be a little old.

    That a driver runs is its own word, and Ray's, asked in the same look, which attempts there
    are: it takes each but once. The status is refused if the job has changed.
    """
    old, new = seen.job.status, decision.status
    started = (old.phase, new.phase) == (Phase.STARTING, Phase.RUNNING)
    same = (old.attempt, old.restarts) == (new.attempt, new.restarts)
    harmless = all(isinstance(action, Submit) for action in decision.actions)
    return same and (started or old.phase is new.phase) and harmless


def _next_look(decision: Decision) -> float | None:
    if decision.status.phase in (Phase.SUCCEEDED, Phase.FAILED):
        return decision.requeue_after
    after = decision.requeue_after
    return RESYNC_SECONDS if after is None else min(after, RESYNC_SECONDS)
