"""Why volumes do not attach or mount: Events of pods and claims, which no other object has."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ..clients.errors import ApiError
from ..clients.kube import Kube
from ..model.observed import Observed, Problem
from ..model.resources import EVENTS
from ..policies.volumes import CLAIM, POLL_SECONDS, Subject, cause_subject
from .cache import Key

log = logging.getLogger(__name__)

_RESOLVED_BY = {
    "ProvisioningFailed": "ProvisioningSucceeded",
    "FailedBinding": "ProvisioningSucceeded",
    "FailedAttachVolume": "SuccessfulAttachVolume",
    "FailedMapVolume": "Started",
    "FailedMount": "Started",
}
"""Reasons of causes, the first the cause of the later ones, and of the Event that ends each."""
_LIMIT = 100


@dataclass
class Causes:
    """Reads Events, of one object of a job at a time and not again within POLL_SECONDS."""

    kube: Kube
    _known: dict[Key, tuple[Subject, datetime, Problem | None]] = field(default_factory=dict)

    def forget(self, key: Key) -> None:
        """Drop the record of a job that is gone."""
        self._known.pop(key, None)

    async def of(self, observed: Observed, now: datetime) -> Problem | None:
        """The cause why a pod of a job waits for its volume; None when none is known."""
        job = observed.job
        key, subject = (job.namespace, job.name), cause_subject(observed, now)
        if subject is None:
            self.forget(key)
            return None
        known = self._known.get(key)
        if known is not None:
            before, read, cause = known
            if before == subject and (now - read).total_seconds() < POLL_SECONDS:
                return cause
        cause = await self._read(job.namespace, subject)
        self._known[key] = (subject, now, cause)
        return cause

    async def _read(self, namespace: str, subject: Subject) -> Problem | None:
        selector = f"involvedObject.kind={subject.kind},involvedObject.name={subject.name}"
        try:
            found = await self.kube.list(EVENTS, namespace, field_selector=selector, limit=_LIMIT)
        except ApiError as error:
            # A cause only explains what the pods show: without it the job is reported all the same.
            log.info("no cause of %s %s: %s", subject.kind, subject.name, error)
            return None
        return cause_of(subject, found["items"])


def cause_of(subject: Subject, events: Iterable[dict[str, Any]]) -> Problem | None:
    """The newest Event of the first cause that has not been resolved since."""
    newest: dict[str, tuple[str, str]] = {}
    for event in events:
        entry = (_time(event), event.get("message", ""))
        reason = event.get("reason", "")
        newest[reason] = max(entry, newest.get(reason, entry))
    for reason, end in _RESOLVED_BY.items():
        if reason in newest and newest[reason][0] > newest.get(end, ("", ""))[0]:
            where = "claim" if subject.kind == CLAIM else "pod"
            return Problem(reason, f"{where} {subject.name}: {newest[reason][1]}")
    return None


def _time(event: dict[str, Any]) -> str:
    """When an Event last happened; times of this format compare as text."""
    times = (event.get(name) for name in ("lastTimestamp", "eventTime"))
    return str(next(filter(None, times), event["metadata"].get("creationTimestamp", "")))
