"""The page of one job: phase, reason, pods, Events and next steps."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from grpo_operator.clients.kube import Object
from grpo_operator.model.observed import Job, Pod
from grpo_operator.model.parsing import time
from grpo_trainer.spec import Condition

from . import text
from .advice import next_steps
from .jobs import event_time, explaining_condition

MAX_EVENTS = 10
_LABEL_WIDTH = 13


def render(job: Job, pods: Sequence[Pod], events: Sequence[Object], now: datetime) -> list[str]:
    """The lines of the page; `events` are sorted, oldest first."""
    lines = [f"{label + ':':<{_LABEL_WIDTH}}{value}" for label, value in _facts(job, now) if value]
    lines += _section(
        "Conditions", _CONDITIONS, [_condition(c, now) for c in job.status.conditions]
    )
    lines += _section("Pods", _PODS, [_pod(pod, now) for pod in pods])
    lines += _section("Events", _EVENTS, [_event(e, now) for e in events[-MAX_EVENTS:]])
    return [*lines, "", "Next", *(f"  {line}" for line in next_steps(job))]


def _facts(job: Job, now: datetime) -> Iterator[tuple[str, str]]:
    status, why = job.status, explaining_condition(job)
    yield "Name", f"{job.name} (namespace {job.namespace}, {_since(job.created, now)} old)"
    yield "Phase", str(status.phase) + (f" ({why.reason})" if why and why.reason else "")
    yield "Message", "; ".join(why.message.splitlines()) if why else ""
    yield "Deleting", "yes" if job.deleting else ""
    yield "Progress", _progress(job)
    yield "Metrics", _metrics(job)
    yield "Workers", _workers(job)
    yield "Checkpoint", _checkpoint(job, now)
    yield "Attempt", _attempt(job)


def _progress(job: Job) -> str:
    p = job.status.progress
    if not p.total_steps:
        return ""
    left = "" if p.eta_seconds is None else f", {text.age(p.eta_seconds)} left"
    return f"step {p.step} of {p.total_steps} ({p.percent:.0f}%), episode {p.episode}{left}"


def _metrics(job: Job) -> str:
    m = job.status.metrics
    named = {
        "reward": m.reward,
        "accuracy": m.accuracy,
        "samples/s": m.samples_per_second,
        "tokens/s": m.tokens_per_second,
        "staleness": m.staleness,
    }
    found = [f"{name} {text.number(value)}" for name, value in named.items() if value is not None]
    if m.consumer_idle_ratio is not None:
        found.append(f"consumers idle {100 * m.consumer_idle_ratio:.0f}%")
    if m.buffer_capacity:
        found.append(f"buffer {m.buffer_depth}/{m.buffer_capacity}")
    return ", ".join(found)


def _workers(job: Job) -> str:
    w = job.status.workers
    if not w.producers_desired:
        return ""
    producers = f"producers {w.producers_ready}/{w.producers_desired} ready"
    return f"{producers}, consumers {w.consumers_ready}/{w.consumers_desired} ready"


def _checkpoint(job: Job, now: datetime) -> str:
    found = job.status.checkpoint
    if found is None:
        return "none"
    return f"step {found.step}, {_since(found.time, now)} ago, {found.path}"


def _attempt(job: Job) -> str:
    if not job.status.attempt:
        return ""
    allowed = f" of {job.spec.backoff_limit} allowed" if job.spec else ""
    return f"{job.status.attempt}, {job.status.restarts}{allowed} failures"


_CONDITIONS = ("TYPE", "STATUS", "SINCE", "REASON", "MESSAGE")
_PODS = ("NAME", "ROLE", "STATE", "AGE", "NODE", "MESSAGE")
_EVENTS = ("AGE", "TYPE", "REASON", "MESSAGE")


def _condition(it: Condition, now: datetime) -> list[str]:
    since = _since(it.last_transition_time, now) if it.last_transition_time else ""
    return [str(it.type), str(it.status), since, it.reason, it.message]


def _pod(pod: Pod, now: datetime) -> list[str]:
    message = pod.problem.message if pod.problem else ""
    if not message and pod.last_termination:
        message = f"last termination: {pod.last_termination}"
    state = pod_state(pod)
    return [pod.name, str(pod.role), state, _since(pod.created, now), pod.node or "", message]


def pod_state(pod: Pod) -> str:
    """The state of a pod in one word."""
    if pod.deleting:
        return "Terminating"
    if pod.problem:
        return pod.problem.reason
    return "Ready" if pod.ready else "NotReady"


def _event(event: Object, now: datetime) -> list[str]:
    reason, message = str(event.get("reason", "")), str(event.get("message", ""))
    return [_since(time(event_time(event)), now), str(event.get("type", "")), reason, message]


def _since(moment: datetime, now: datetime) -> str:
    return text.age((now - moment).total_seconds())


def _section(title: str, headers: Sequence[str], rows: list[list[str]]) -> list[str]:
    return ["", title, *(f"  {line}" for line in text.table(headers, rows))] if rows else []
