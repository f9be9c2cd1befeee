"""Labels and annotations of a job's RayCluster and pods.

The chart's defaults, the spec's, which override them by key, and the operator's own, by which it
finds its objects.
"""

from collections.abc import Mapping

from ..defaults import JobDefaults
from ..model.naming import (
    CLAIM_LABEL,
    KUEUE_DOMAIN,
    QUEUE_LABEL,
    ROLE_LABEL,
    claim_label,
    job_labels,
)
from ..model.observed import Job, Role
from .merge import Object


class KeyNotAllowedError(ValueError):
    """A job sets a label or annotation that the administrator does not allow."""


def cluster_metadata(job: Job, defaults: JobDefaults) -> Object:
    """Labels and annotations of the RayCluster.

    Only it has the labels of Kueue: pods with a queue would be queued once more, by themselves.

    Raises KeyNotAllowedError.
    """
    labels, annotations = _given(job, defaults)
    queue = queue_name(job, defaults)
    own = job_labels(job.name, job.uid) | ({QUEUE_LABEL: queue} if queue is not None else {})
    return _metadata(labels | own, annotations)


def pod_metadata(job: Job, defaults: JobDefaults) -> Object:
    """Labels and annotations of all pods, before a pod template. Raises KeyNotAllowedError."""
    labels, annotations = _given(job, defaults)
    return _metadata(
        {key: value for key, value in labels.items() if not key.startswith(KUEUE_DOMAIN)},
        annotations,
    )


def own_pod_labels(job: Job, role: Role, node_claim: str | None = None) -> dict[str, str]:
    """The labels that no pod template can change."""
    claim = {CLAIM_LABEL: claim_label(node_claim)} if node_claim is not None else {}
    return {**job_labels(job.name, job.uid), ROLE_LABEL: str(role), **claim}


def queue_name(job: Job, defaults: JobDefaults) -> str | None:
    """The LocalQueue of Kueue that a new RayCluster is for."""
    assert job.spec is not None
    return job.spec.queue_name or defaults.queue_name


def _given(job: Job, defaults: JobDefaults) -> tuple[dict[str, str], dict[str, str]]:
    assert job.spec is not None
    for field, keys in (("labels", job.spec.labels), ("annotations", job.spec.annotations)):
        for key in keys:
            if not defaults.allows(key):
                allowed = ", ".join(defaults.allowed_keys)
                raise KeyNotAllowedError(
                    f"spec.{field}: Invalid value: {key!r}: must be one of the keys that the "
                    f"administrator allows: {allowed}"
                )
    return defaults.labels | job.spec.labels, defaults.annotations | job.spec.annotations


def _metadata(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Object:
    found = {"labels": dict(labels), "annotations": dict(annotations)}
    return {kind: given for kind, given in found.items() if given}
