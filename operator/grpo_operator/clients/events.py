"""Events of jobs, which `kubectl describe` shows."""

import logging
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

from grpo_trainer.spec import API_VERSION, KIND, ConditionStatus, ConditionType, Phase

from ..model.conditions import USUAL_REASONS, find_condition
from ..model.decision import Decision
from ..model.observed import Job
from ..model.resources import EVENTS
from .errors import ApiError
from .kube import Kube

log = logging.getLogger(__name__)
_WARNINGS = frozenset({Phase.RETRYING, Phase.FAILED})
_REPORTED = {
    ConditionType.CLUSTER_READY: ConditionStatus.FALSE,
    ConditionType.TRAINING: ConditionStatus.UNKNOWN,
}
"""Conditions whose new reasons are reported while they have this status."""
_MAX_MESSAGE = 1000


@dataclass(frozen=True)
class Recorder:
    """Writes an Event for each change of phase, for each new reason for not starting, and when a
    head stops responding."""

    kube: Kube
    identity: str

    async def changed(self, job: Job, decision: Decision) -> None:
        """A status was written. A failure to write the Event is only logged."""
        old, new = job.status, decision.status
        if old.phase is not new.phase:
            log.info("%s -> %s: %s %s", old.phase, new.phase, decision.reason, decision.message)
            message = decision.message or f"{old.phase} -> {new.phase}"
            await self._write(job, new.phase in _WARNINGS, decision.reason, message)
            return
        for kind, value in _REPORTED.items():
            before, after = (find_condition(status, kind) for status in (old, new))
            if after is None or after.status is not value or after.reason in USUAL_REASONS:
                continue
            if before is None or before.reason != after.reason:
                log.info("%s: %s", after.reason, after.message)
                message = after.message or "the pods are not ready"
                await self._write(job, True, after.reason, message)

    async def _write(self, job: Job, warning: bool, reason: str, message: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = {
            "metadata": {"name": f"{job.name}.{uuid.uuid4().hex[:16]}", "namespace": job.namespace},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "namespace": job.namespace,
                "name": job.name,
                "uid": job.uid,
                "resourceVersion": job.resource_version,
            },
            "type": "Warning" if warning else "Normal",
            "reason": reason or "Changed",
            "message": message[:_MAX_MESSAGE],
            "source": {"component": "grpo-operator"},
            "reportingComponent": "grpo-operator",
            "reportingInstance": self.identity,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self.kube.create(EVENTS, job.namespace, body)
        except ApiError as error:
            log.warning("cannot write an Event: %s", error)
