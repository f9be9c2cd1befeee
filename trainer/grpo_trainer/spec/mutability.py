"""What may change in a job that exists; all else is fixed at its creation."""

MUTABLE_FIELDS = frozenset(
    {
        "spec.suspend",
        "spec.producers.replicas",
        "spec.backoffLimit",
        "spec.activeDeadlineSeconds",
        "spec.startupDeadlineSeconds",
        "spec.stallTimeoutSeconds",
        "spec.ttlSecondsAfterFinished",
    }
)
"""Paths in a manifest."""
