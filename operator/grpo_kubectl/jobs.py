"""Finding jobs and what belongs to them."""

from datetime import UTC, datetime
from difflib import get_close_matches

from pydantic import ValidationError

from grpo_operator.model.conditions import find
from grpo_operator.model.naming import UID_LABEL
from grpo_operator.model.observed import Job, Pod, Role
from grpo_operator.model.parsing import parse_job, parse_pod
from grpo_operator.model.resources import EVENTS, JOBS, PODS
from grpo_trainer.spec import Condition, ConditionStatus, ConditionType, Phase

from .api import Api, Object, Target
from .errors import CommandError, ForbiddenError, NotFoundError

_CAUSES = {
    Phase.SUCCEEDED: ConditionType.COMPLETE,
    Phase.FAILED: ConditionType.FAILED,
    Phase.SUSPENDED: ConditionType.SUSPENDED,
    Phase.SUSPENDING: ConditionType.SUSPENDED,
    Phase.RUNNING: ConditionType.TRAINING,
    Phase.RETRYING: ConditionType.TRAINING,
}


def now() -> datetime:
    return datetime.now(UTC)


def read_job(raw: Object) -> Job:
    """A job as the API server has it. Raises CommandError for one of another version."""
    try:
        return parse_job(raw)
    except ValidationError as error:
        name = raw["metadata"]["name"]
        fault = error.errors()[0]
        place = ".".join(str(part) for part in fault["loc"])
        raise CommandError(
            f"GRPOJob {name}: status.{place}: {fault['msg']}; it was written by another version"
        ) from error


async def find_job(api: Api, name: str) -> Job:
    """The job of this name. Raises CommandError that names those nearest to it."""
    try:
        return read_job(await api.get(Target(JOBS, api.namespace, name)))
    except NotFoundError as error:
        message = f"no GRPOJob {name!r} in namespace {api.namespace}"
        raise CommandError(message + await _hint(api, name)) from error


async def _hint(api: Api, name: str) -> str:
    try:
        listed = await api.list(Target(JOBS, api.namespace))
    except ForbiddenError:
        return ""
    return near_misses(name, [item["metadata"]["name"] for item in listed["items"]])


def near_misses(name: str, names: list[str]) -> str:
    """What the user may have meant."""
    near = get_close_matches(name, names, n=3, cutoff=0.5) or [n for n in names if name in n][:3]
    if near:
        return f"; did you mean {' or '.join(near)}?"
    return "; there is none there" if not names else f"; there are {', '.join(sorted(names)[:5])}"


async def pods_of(api: Api, job: Job) -> list[Pod]:
    """The job's pods, the head first."""
    selector = {"labelSelector": f"{UID_LABEL}={job.uid}"}
    listed = await api.list(Target(PODS, job.namespace), selector)
    found = [pod for item in listed["items"] if (pod := parse_pod(item)) is not None]
    order = list(Role)
    return sorted(found, key=lambda pod: (order.index(pod.role), pod.name))


async def events_of(api: Api, job: Job) -> list[Object]:
    """The job's Events, oldest first."""
    selector = {"fieldSelector": f"involvedObject.uid={job.uid}"}
    listed = await api.list(Target(EVENTS, job.namespace), selector)
    return sorted(listed["items"], key=lambda event: str(event_time(event)))


def event_time(event: Object) -> str:
    """When it last happened, as the API has it."""
    found = event.get("lastTimestamp") or event.get("eventTime")
    return str(found or event["metadata"]["creationTimestamp"])


def cause(job: Job) -> Condition | None:
    """The condition that says why a job is in its phase."""
    kind = _CAUSES.get(job.status.phase)
    if kind is not None:
        return find(job.status, kind)
    ready = find(job.status, ConditionType.CLUSTER_READY)
    if ready is not None and ready.status is ConditionStatus.TRUE:
        return find(job.status, ConditionType.TRAINING) or ready
    return ready
