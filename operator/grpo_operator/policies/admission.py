"""Jobs on which nothing is done: deleted ones, finished ones, unreadable ones."""

from datetime import datetime

from ..model.conditions import Reason
from ..model.decision import TERMINAL, Decision, Transition
from ..model.observed import Observed
from .retry import fail
from .ttl import clean_up


def being_deleted(observed: Observed, now: datetime) -> Decision | None:
    """Kubernetes deletes the children; nothing is created or written."""
    return Decision(observed.job.status) if observed.job.deleting else None


def finished(observed: Observed, now: datetime) -> Decision | None:
    """Succeeded and Failed are final."""
    return clean_up(observed, now) if observed.job.status.phase in TERMINAL else None


def unreadable(observed: Observed, now: datetime) -> Decision | None:
    """A spec that this version cannot read: never started, but never stopped for it either.

    A newer definition, or an older operator after a rollback, must not end a run.
    """
    job = observed.job
    if job.spec is not None:
        return None
    if job.status.attempt == 0 and observed.cluster is None:
        return fail(observed, now, Reason.INVALID_SPEC, job.faults)
    refused = Transition(observed, now, job.status.phase, Reason.INVALID_SPEC, job.faults)
    return refused.acknowledgement()
