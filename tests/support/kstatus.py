"""The state of an object by the rules of kstatus, which Flux and `kubectl`'s appliers follow.

A transcription for custom resources of `Compute` in
https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/status/status.go and of
`checkGenericProperties` in generic.go beside it.
"""

from typing import Any

IN_PROGRESS, CURRENT, FAILED, TERMINATING = "InProgress", "Current", "Failed", "Terminating"


def kstatus(job: dict[str, Any]) -> str:
    """InProgress, Current, Failed or Terminating."""
    metadata, status = job["metadata"], job.get("status", {})
    if metadata.get("deletionTimestamp"):
        return TERMINATING
    if status.get("observedGeneration", metadata["generation"]) != metadata["generation"]:
        return IN_PROGRESS
    conditions = status.get("conditions", [])
    for condition in conditions:
        if (condition["type"], condition["status"]) == ("Reconciling", "True"):
            return IN_PROGRESS
        if (condition["type"], condition["status"]) == ("Stalled", "True"):
            return FAILED
    for condition in conditions:
        if condition["type"] == "Ready":
            return CURRENT if condition["status"] == "True" else IN_PROGRESS
    return CURRENT
