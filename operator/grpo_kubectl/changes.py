"""What a user changes in a job: suspend, resume, scale."""

from grpo_operator.model.decision import TERMINAL
from grpo_operator.model.observed import Job
from grpo_operator.model.resources import JOBS
from grpo_trainer.spec import GRPOJobSpec

from .api import Api, Target
from .errors import CommandError
from .jobs import find_job


async def suspend(api: Api, name: str, *, wanted: bool) -> str:
    """Set `spec.suspend`; returns what was done."""
    job = await find_job(api, name)
    _refuse_finished(job)
    if job.spec is not None and job.spec.suspend is wanted:
        return f"{name}: suspend is {str(wanted).lower()} already, phase {job.status.phase}"
    await api.merge(Target(JOBS, api.namespace, name), {"spec": {"suspend": wanted}})
    return f"{name}: {'suspending' if wanted else 'resuming'}"


async def scale(api: Api, name: str, producers: int) -> str:
    """Set `spec.producers.replicas`; returns what was done."""
    job = await find_job(api, name)
    _refuse_finished(job)
    if job.spec is not None and (holder := who_sets_producers(job.spec)):
        raise CommandError(f"{name}: producers cannot be set: {holder}")
    target = Target(JOBS, api.namespace, name, "scale")
    await api.merge(target, {"spec": {"replicas": producers}})
    before = job.spec.producers.replicas if job.spec is not None else "?"
    return f"{name}: producers {before} -> {producers}"


def who_sets_producers(spec: GRPOJobSpec) -> str:
    """Why the number of producers is not the user's to set; empty when it is."""
    if spec.queue_name is not None:
        count = spec.producers.replicas
        return f"Kueue reserved its quota for {count} of them (queueName {spec.queue_name})"
    if spec.producers.autoscale is not None:
        scale = spec.producers.autoscale
        return f"autoscale keeps them between {scale.min_replicas} and {scale.max_replicas}"
    return ""


def _refuse_finished(job: Job) -> None:
    if job.status.phase in TERMINAL:
        raise CommandError(f"{job.name}: it is over ({job.status.phase}) and cannot change")
