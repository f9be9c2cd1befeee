"""The number of producers that a RayCluster requests."""

from dataclasses import replace
from datetime import datetime

from grpo_trainer.spec import Phase

from ..model.decision import Decision, DeleteCluster, ScaleProducers
from ..model.observed import Observed

_SCALED_PHASES = (Phase.STARTING, Phase.RUNNING, Phase.RETRYING)


def scaling(observed: Observed, decision: Decision, now: datetime) -> Decision:
    """The decision, with a change of the number of producers where a cluster remains."""
    spec, cluster = observed.job.spec, observed.cluster
    if spec is None or cluster is None or cluster.deleting:
        return decision
    deleting = any(isinstance(action, DeleteCluster) for action in decision.actions)
    if deleting or decision.status.phase not in _SCALED_PHASES:
        return decision
    if cluster.producers == observed.producers:
        return decision
    scale = ScaleProducers(observed.producers)
    return replace(decision, actions=(*decision.actions, scale))
