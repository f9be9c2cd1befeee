"""The operator's behaviour as a table: the first row that applies decides.

`decide` is pure. Deciding again on the result of a decision leads to the same result, whatever was
lost in between: an outcome is written to the status before its evidence is deleted, and everything
else can be observed again.

No row deletes a cluster, stops a driver or ends a job without positive evidence: the user's wish,
the driver's own end, pods observed gone, or a driver that reports the same step for too long.
"""

from collections.abc import Callable
from datetime import datetime

from ..model.decision import Decision
from ..model.observed import Observed
from ..policies.admission import being_deleted, finished, unreadable
from ..policies.deadlines import run_deadline, stall, wake_for_deadlines
from ..policies.driver import driver_active, driver_failed, driver_finished
from ..policies.lost_attempt import attempt_lost
from ..policies.scaling import scaling
from ..policies.start import (
    backing_off,
    no_cluster,
    old_pods_leaving,
    pods_not_ready,
    queued,
    ready_to_submit,
)
from ..policies.suspend import resumption, suspension

Row = Callable[[Observed, datetime], Decision | None]
Step = Callable[[Observed, Decision, datetime], Decision]

ROWS: tuple[Row, ...] = (
    being_deleted,
    finished,
    unreadable,
    driver_finished,
    run_deadline,
    suspension,
    resumption,
    driver_failed,
    attempt_lost,
    stall,
    old_pods_leaving,
    backing_off,
    no_cluster,
    queued,
    driver_active,
    pods_not_ready,
    ready_to_submit,
)
"""The first that applies decides; the last always applies."""

STEPS: tuple[Step, ...] = (scaling, wake_for_deadlines)
"""Applied to every decision."""


def decide(observed: Observed, now: datetime) -> Decision:
    """The decision on a job, from everything observed of it. `now` has whole seconds."""
    decision = next(found for row in ROWS if (found := row(observed, now)) is not None)
    for step in STEPS:
        decision = step(observed, decision, now)
    return decision
