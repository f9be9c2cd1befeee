"""Changes to a job: suspend, resume, scale."""

from grpo_operator.model.decision import TERMINAL
from grpo_operator.model.observed import Job
from grpo_operator.model.resources import JOBS
from grpo_trainer.spec import GRPOJobSpec

from .access import Session
from .errors import CommandError
from .jobs import find_job


async def suspend(session: Session, name: str, *, suspended: bool) -> str:
    """Set `spec.suspend`; returns the line to print."""
    job = await find_job(session, name)
    _refuse_terminal(job)
    if job.spec is not None and job.spec.suspend is suspended:
        return f"{name}: suspend is already {str(suspended).lower()}, phase {job.status.phase}"
    body = {"spec": {"suspend": suspended}}
    await session.kube.patch(JOBS, session.namespace, name, body)
    return f"{name}: {'suspending' if suspended else 'resuming'}"


async def scale(session: Session, name: str, producers: int) -> str:
    """Set `spec.producers.replicas`; returns the line to print."""
    job = await find_job(session, name)
    _refuse_terminal(job)
    if job.spec is not None and (owner := owner_of_replicas(job.spec)):
        raise CommandError(f"{name}: cannot scale the producers: {owner}")
    body = {"spec": {"replicas": producers}}
    await session.kube.patch(JOBS, session.namespace, name, body, subresource="scale")
    before = job.spec.producers.replicas if job.spec is not None else "?"
    return f"{name}: producers {before} -> {producers}"


def owner_of_replicas(spec: GRPOJobSpec) -> str:
    """What controls the number of producers; empty when the user does."""
    if spec.queue_name is not None and not spec.suspend:
        count = spec.producers.replicas
        return f"Kueue reserved quota for {count} of them (queueName {spec.queue_name})"
    if spec.producers.autoscale is not None:
        scale = spec.producers.autoscale
        return f"autoscale keeps them between {scale.min_replicas} and {scale.max_replicas}"
    return ""


def _refuse_terminal(job: Job) -> None:
    if job.status.phase in TERMINAL:
        raise CommandError(f"{job.name}: the job has ended ({job.status.phase}) and cannot change")
