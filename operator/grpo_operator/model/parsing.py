"""Parsing of Kubernetes and Ray objects, as plain dicts, into observed records."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from grpo_trainer.spec import (
    ConditionStatus,
    ConditionType,
    GRPOJobSpec,
    GRPOJobStatus,
    InvalidManifestError,
    Phase,
    parse_manifest,
)
from grpo_trainer.spec.faults import required

from .conditions import since
from .lenient import read_leniently
from .naming import CONTAINER, CONTROLLER, JOB_LABEL, QUEUE_LABEL, UID_LABEL, attempt_of
from .observed import Cluster, Job, Pod, Problem, RayJob, RayJobState, Role

Object = Mapping[str, Any]
_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_CREATING = frozenset({"ContainerCreating", "PodInitializing"})
_WAITING_WELL = _CREATING | {""}
_EVICTIONS = frozenset({"Evicted", "NodeShutdown", "NodeLost", "Terminated", "Preempting"})
"""Reasons of a failed pod that its kubelet or the node controller ended."""
_ROLES = {"headgroup": Role.HEAD, "producers": Role.PRODUCER, "consumers": Role.CONSUMER}


def time(text: str) -> datetime:
    """An RFC 3339 time of the API."""
    return datetime.fromisoformat(text)


def owner_key(raw: Object) -> tuple[str, str] | None:
    """Namespace and name of the job that a child's labels name."""
    metadata = raw["metadata"]
    name = metadata.get("labels", {}).get(JOB_LABEL)
    return (metadata["namespace"], name) if name else None


def owner_uid(raw: Object) -> str:
    """UID of the job that a child's labels name."""
    return str(raw["metadata"].get("labels", {}).get(UID_LABEL, ""))


def managed_by_others(raw: Object) -> bool:
    """Whether a job's `spec.managedBy`, which never changes, names another controller."""
    return bool(raw.get("spec", {}).get("managedBy", CONTROLLER) != CONTROLLER)


def parse_job(raw: Object, known: Job | None = None) -> Job:
    """A GRPOJob; the spec of `known` is reused while its generation is the same.

    Both are read leniently: another version of the operator or of the definition may have written
    them. A phase that this version lacks is derived from the conditions.
    """
    metadata = raw["metadata"]
    same = known and (known.uid, known.generation) == (metadata["uid"], metadata["generation"])
    spec, faults = (known.spec, known.faults) if known and same else _spec(raw)
    return Job(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        generation=metadata["generation"],
        created=time(metadata["creationTimestamp"]),
        deleting="deletionTimestamp" in metadata,
        spec=spec,
        faults=faults,
        status=_status(raw.get("status") or {}),
    )


def _status(raw: Object) -> GRPOJobStatus:
    status = read_leniently(GRPOJobStatus, dict(raw))
    if raw.get("phase", Phase.PENDING) in set(Phase):
        return status
    return status.model_copy(update={"phase": _phase_of(status)})


def _phase_of(status: GRPOJobStatus) -> Phase:
    """The phase that the conditions imply."""
    implied = (
        (ConditionType.COMPLETE, Phase.SUCCEEDED),
        (ConditionType.FAILED, Phase.FAILED),
        (ConditionType.SUSPENDED, Phase.SUSPENDED),
        (ConditionType.TRAINING, Phase.RUNNING),
    )
    for kind, phase in implied:
        if since(status, kind, ConditionStatus.TRUE) is not None:
            return phase
    return Phase.STARTING if status.attempt else Phase.PENDING


def _spec(raw: Object) -> tuple[GRPOJobSpec | None, str]:
    """The spec, and the faults for which it is None. Unknown fields are ignored.

    Otherwise as strict as the API server: an invalid value may not turn into a default.
    """
    try:
        spec = GRPOJobSpec.model_validate_json(
            json.dumps(raw.get("spec", {})),
            strict=True,
            by_alias=True,
            by_name=False,
            extra="ignore",
        )
    except ValidationError:
        return None, _faults(raw)
    if spec.storage is None:
        return None, str(required("spec.storage", "in a cluster"))
    return spec, ""


def _faults(raw: Object) -> str:
    try:
        parse_manifest(raw)
    except InvalidManifestError as error:
        return str(error)
    raise AssertionError("a spec that is read strictly is read leniently")


def parse_cluster(raw: Object) -> Cluster:
    """A RayCluster."""
    metadata, spec, status = raw["metadata"], raw["spec"], raw.get("status", {})
    groups = {group["groupName"]: group for group in spec.get("workerGroupSpecs", ())}
    failures = (
        Problem(c.get("reason", "ReplicaFailure"), c.get("message", ""))
        for c in status.get("conditions", ())
        if c["type"] == "ReplicaFailure" and c["status"] == "True"
    )
    return Cluster(
        name=metadata["name"],
        uid=metadata["uid"],
        deleting="deletionTimestamp" in metadata,
        suspended=bool(spec.get("suspend", False)),
        producers=groups.get(str(Role.PRODUCER), {}).get("replicas", 0),
        queued=QUEUE_LABEL in metadata.get("labels", {}),
        service=_service(status.get("head", {}).get("serviceName")),
        problem=next(failures, None),
    )


def _service(name: Any) -> str | None:
    """The name of the head's Service.

    It becomes part of a URL, and a tenant may be able to write this status: only a DNS label can be
    a Service's name.
    """
    return name if isinstance(name, str) and _DNS_LABEL.fullmatch(name) else None


def parse_pod(raw: Object) -> Pod | None:
    """A pod of one of our groups, or None for any other."""
    metadata, status = raw["metadata"], raw.get("status", {})
    role = _ROLES.get(metadata["labels"].get("ray.io/group", ""))
    if role is None:
        return None
    ready: Object = next((c for c in status.get("conditions", ()) if c["type"] == "Ready"), {})
    changed = ready.get("lastTransitionTime") or metadata["creationTimestamp"]
    deletion_deadline = metadata.get("deletionTimestamp")
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        role=role,
        created=time(metadata["creationTimestamp"]),
        ready=ready.get("status") == "True",
        ready_changed=time(changed),
        deletion_deadline=time(deletion_deadline) if deletion_deadline else None,
        node=raw.get("spec", {}).get("nodeName"),
        image=_of_container(raw.get("spec", {}).get("containers", ()), "image"),
        image_id=_of_container(status.get("containerStatuses", ()), "imageID"),
        creating=_creating(status),
        problem=next(_problems(metadata["name"], status), None),
        last_termination=next(_terminations(status), None),
        stopped=_stopped(status),
        controlled=_by_a_ray_cluster(metadata),
        disruption=next(_disruptions(status), None),
    )


def _by_a_ray_cluster(metadata: Object) -> bool:
    return any(
        owner.get("controller") and owner["kind"] == "RayCluster"
        for owner in metadata.get("ownerReferences", ())
    )


def _of_container(containers: Iterable[Object], field: str) -> str | None:
    """A field of our container."""
    found = (c.get(field) for c in containers if c.get("name") == CONTAINER)
    return next(filter(None, found), None)


def _containers(status: Object) -> Iterator[Object]:
    yield from status.get("initContainerStatuses", ())
    yield from status.get("containerStatuses", ())


def _problems(name: str, status: Object) -> Iterator[Problem]:
    """Why a pod does not run, the most specific cause first."""
    for container in _containers(status):
        where = f"pod {name}, container {container['name']}"
        waiting = container.get("state", {}).get("waiting", {})
        reason = waiting.get("reason", "")
        if reason not in _WAITING_WELL:
            ended = container.get("lastState", {}).get("terminated", {})
            last = f" (last ended: {_ending(ended)})" if ended else ""
            yield Problem(reason, f"{where}: {waiting.get('message', reason)}{last}")
        terminated = container.get("state", {}).get("terminated", {})
        if terminated and terminated.get("exitCode", 0) != 0:
            yield Problem(terminated.get("reason") or "Error", f"{where}: {_ending(terminated)}")
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            reason = condition.get("reason", "Unschedulable")
            yield Problem(reason, f"pod {name}: {condition.get('message', reason)}")
    if status.get("phase") == "Failed":
        reason = status.get("reason", "PodFailed")
        yield Problem(reason, f"pod {name}: {status.get('message', reason)}")


def _creating(status: Object) -> bool:
    waiting = (c.get("state", {}).get("waiting", {}) for c in _containers(status))
    return any(state.get("reason") in _CREATING for state in waiting)


def _ending(terminated: Object) -> str:
    reason, code = terminated.get("reason", "Error"), terminated.get("exitCode", "?")
    message = terminated.get("message", "")
    return f"{reason}, exit code {code}" + (f", {message}" if message else "")


def _terminations(status: Object) -> Iterator[str]:
    for container in status.get("containerStatuses", ()):
        for state in (container.get("state", {}), container.get("lastState", {})):
            if "terminated" in state:
                yield state["terminated"].get("reason", "Error")
    if status.get("phase") == "Failed" and status.get("reason"):
        yield status["reason"]


def _stopped(status: Object) -> bool:
    """Whether a container has terminated and does not run again."""
    if status.get("phase") in ("Failed", "Succeeded"):
        return True
    for container in status.get("containerStatuses", ()):
        state, last = container.get("state", {}), container.get("lastState", {})
        if "terminated" in state or ("waiting" in state and "terminated" in last):
            return True
    return False


def _disruptions(status: Object) -> Iterator[str]:
    """Why Kubernetes removes a pod that did nothing wrong."""
    for condition in status.get("conditions", ()):
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            yield condition.get("reason", "Disrupted")
    if status.get("phase") == "Failed" and status.get("reason") in _EVICTIONS:
        yield status["reason"]


def parse_ray_jobs(uid: str, answer: Any) -> tuple[RayJob, ...]:
    """The attempts of one job among all jobs of Ray.

    Raises KeyError, TypeError or ValueError for an invalid response.
    """
    found = []
    for item in answer:
        attempt = attempt_of(uid, item.get("submission_id") or "")
        if attempt is not None:
            state, code = RayJobState(item["status"]), item.get("driver_exit_code")
            found.append(RayJob(attempt, state, code, item.get("message") or ""))
    return tuple(sorted(found, key=lambda job: job.attempt))
