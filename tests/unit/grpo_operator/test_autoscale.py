"""The number of producers that the driver requests.

Aspects: it is applied within the range; while the driver does not respond the cluster stays as it
is; without autoscale its wish is nothing.
"""

import pytest

from grpo_operator.controller.decide import decide
from grpo_operator.model.decision import CreateCluster, ScaleProducers
from grpo_operator.model.observed import Observed
from grpo_trainer.spec import Progress, RunState
from support.observations import (
    NOTHING,
    NOW,
    cluster,
    job,
    observed,
    ray_job,
    retrying,
    running,
)

SCALED = {"replicas": 2, "autoscale": {"minReplicas": 1, "maxReplicas": 6}}


def training(requested: int | None, producers: int = 2, spec: dict = SCALED) -> Observed:
    """A run whose driver requests a number of producers, in a cluster that has another."""
    return observed(
        job(running(), producers=spec),
        cluster=cluster(producers=producers),
        ray_jobs=(ray_job(),),
        progress=Progress(state=RunState.RUNNING, attempt=1, producers_wanted=requested),
    )


@pytest.mark.parametrize(("requested", "count"), [(4, 4), (1, 1), (0, 1), (9, 6)])
def test_the_drivers_request_is_applied_within_the_range(requested, count):
    decision = decide(training(requested), NOW)
    assert decision.actions == (ScaleProducers(count),)
    assert decision.status.workers.producers_desired == count


def test_a_demand_that_is_met_asks_for_no_more():
    assert decide(training(4, producers=4), NOW).actions == ()


def test_a_driver_that_has_not_decided_yet_keeps_what_it_has():
    decision = decide(training(None, producers=5), NOW)
    assert decision.actions == ()
    assert decision.status.workers.producers_desired == 5


def test_a_head_that_does_not_answer_changes_nothing():
    seen = observed(job(running(), producers=SCALED), cluster=cluster(producers=5), ray_jobs=None)
    assert decide(seen, NOW).actions == ()


def test_the_next_attempt_begins_with_the_producers_that_are_there():
    seen = observed(job(retrying(-60), producers=SCALED), cluster=cluster(producers=5))
    assert ScaleProducers(2) not in decide(seen, NOW).actions


def test_a_new_cluster_begins_with_the_specs_number():
    seen = observed(job(producers=SCALED), **NOTHING)
    decision = decide(seen, NOW)
    assert decision.actions == (CreateCluster(),)
    assert decision.status.workers.producers_desired == 2


def test_without_autoscale_the_spec_alone_counts():
    assert decide(training(4, spec={"replicas": 2}), NOW).actions == ()
