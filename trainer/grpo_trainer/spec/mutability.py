"""The mutable fields: the definition's transition rules and the documentation are made from it."""

MUTABLE_FIELDS = frozenset(
    {
        "spec.suspend",
        "spec.producers.replicas",
        "spec.backoffLimit",
        "spec.activeDeadlineSeconds",
        "spec.startupDeadlineSeconds",
        "spec.firstStepTimeoutSeconds",
        "spec.stallTimeoutSeconds",
        "spec.ttlSecondsAfterFinished",
    }
)
"""Paths in a manifest of the fields that may change; all others are fixed at creation."""
