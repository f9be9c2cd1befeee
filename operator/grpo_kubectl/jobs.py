"""Finding jobs, and the objects that belong to them."""

from datetime import UTC, datetime
from difflib import get_close_matches

from pydantic import ValidationError

from grpo_operator.clients.errors import ForbiddenError, NotFoundError, UnknownKindError
from grpo_operator.clients.kube import Object
from grpo_operator.model.conditions import find_condition
from grpo_operator.model.naming import UID_LABEL
from grpo_operator.model.observed import Job, Pod, Role
from grpo_operator.model.parsing import parse_job, parse_pod
from grpo_operator.model.resources import EVENTS, JOBS, PODS
from grpo_trainer.spec import Condition, ConditionStatus, ConditionType, Phase

from .access import Session
from .errors import CommandError

_EXPLAINING = {
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
    """A job as the API server returned it. Raises CommandError for one of another version."""
    try:
        return parse_job(raw)
    except ValidationError as error:
        name = raw["metadata"]["name"]
        fault = error.errors()[0]
        place = ".".join(str(part) for part in fault["loc"])
        raise CommandError(
            f"GRPOJob {name}: status.{place}: {fault['msg']}; another version wrote it"
        ) from error


async def find_job(session: Session, name: str) -> Job:
    """The job of this name. Raises CommandError that suggests similar names."""
    try:
        return read_job(await session.kube.get(JOBS, session.namespace, name))
    except UnknownKindError:
        raise
    except NotFoundError as error:
        message = f"no GRPOJob {name!r} in namespace {session.namespace}"
        raise CommandError(message + await _hint(session, name)) from error


async def _hint(session: Session, name: str) -> str:
    try:
        listed = await session.kube.list(JOBS, session.namespace)
    except ForbiddenError:
        return ""
    return suggestion(name, [item["metadata"]["name"] for item in listed["items"]])


def suggestion(name: str, names: list[str]) -> str:
    """The end of a message about a name that does not exist."""
    near = get_close_matches(name, names, n=3, cutoff=0.5) or [n for n in names if name in n][:3]
    if near:
        return f"; did you mean {' or '.join(near)}?"
    return f"; existing jobs: {', '.join(sorted(names)[:5])}" if names else "; it has no GRPOJobs"


async def pods_of(session: Session, job: Job) -> list[Pod]:
    """The job's pods, the head first."""
    listed = await session.kube.list(PODS, job.namespace, f"{UID_LABEL}={job.uid}")
    found = [pod for item in listed["items"] if (pod := parse_pod(item)) is not None]
    order = list(Role)
    return sorted(found, key=lambda pod: (order.index(pod.role), pod.name))


async def events_of(session: Session, job: Job) -> list[Object]:
    """The job's Events, oldest first."""
    selector = f"involvedObject.uid={job.uid}"
    listed = await session.kube.list(EVENTS, job.namespace, field_selector=selector)
    return sorted(listed["items"], key=lambda event: str(event_time(event)))


def event_time(event: Object) -> str:
    """When an Event last happened, in the API's format."""
    found = event.get("lastTimestamp") or event.get("eventTime")
    return str(found or event["metadata"]["creationTimestamp"])


def explaining_condition(job: Job) -> Condition | None:
    """The condition that explains the job's phase."""
    kind = _EXPLAINING.get(job.status.phase)
    if kind is not None:
        return find_condition(job.status, kind)
    ready = find_condition(job.status, ConditionType.CLUSTER_READY)
    if ready is not None and ready.status is ConditionStatus.TRUE:
        return find_condition(job.status, ConditionType.TRAINING) or ready
    return ready
