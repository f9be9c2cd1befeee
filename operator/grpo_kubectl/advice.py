"""What to do next about a job, by its phase and the reason that it gives."""

from grpo_operator.model.conditions import Reason
from grpo_operator.model.naming import child_name
from grpo_operator.model.observed import Job
from grpo_trainer.spec import Phase

from .jobs import cause

_FINAL = "A failed job is final: create a new one"
_BY_REASON: dict[str, tuple[str, ...]] = {
    Reason.INVALID_SPEC: (
        "Mend what the message names (grpo validate FILE), delete the job and create it again.",
    ),
    Reason.BAD_INPUT: (
        f"Spec, data or model are unfit. {_FINAL}, with what the message names mended.",
    ),
    Reason.BACKOFF_LIMIT_EXCEEDED: (f"The message holds the last failure. {_FINAL}{{resume}}.",),
    Reason.DEADLINE_EXCEEDED: (
        f"activeDeadlineSeconds is over. {_FINAL} with a longer one{{resume}}.",
    ),
    Reason.STARTUP_DEADLINE_EXCEEDED: (
        "The message says what kept the pods. Mend it, or raise startupDeadlineSeconds;",
        "then create a new job{resume}.",
    ),
    Reason.DRIVER_FAILED: (
        "The next attempt goes on from the newest checkpoint by itself. Why the last one ended:",
        "kubectl grpo logs {name} --attempt {previous}",
    ),
    Reason.STALLED: (
        "The next attempt starts by itself. Where the last one stood: logs/ in its run directory.",
    ),
    Reason.HEAD_LOST: ("The next attempt goes on from the newest checkpoint by itself.",),
    Reason.CLUSTER_LOST: ("The next attempt goes on from the newest checkpoint by itself.",),
    Reason.OLD_PODS_LEAVING: (
        "Pods of a lost node stay until it is back or deleted: kubectl get nodes",
    ),
    Reason.QUEUED: ("Kueue has not admitted it: kubectl describe workload -n {namespace}",),
    Reason.PREEMPTED: ("Kueue took the pods back and will return them; nothing needs to be done.",),
    Reason.HEAD_NOT_ANSWERING: (
        "The head runs and its dashboard (port 8265) does not answer the operator.",
        "If it lasts, a NetworkPolicy may keep it out: kubectl grpo logs {name} --role head",
    ),
    "Unschedulable": (
        "No node has room: compare the message with kubectl describe nodes,",
        "or with the volume's state: kubectl get pvc -n {namespace}",
    ),
    "ImagePullBackOff": ("Check image and imagePullSecrets against the message.",),
    "ErrImagePull": ("Check image and imagePullSecrets against the message.",),
    "QuotaExceeded": ("See what is left: kubectl describe resourcequota -n {namespace}",),
    "AdmissionDenied": (
        "The message names the rule that refused the pod; mend the spec or ask who keeps the rule.",
    ),
    "InvalidPodTemplate": (f"Mend the podTemplate that the message names. {_FINAL}.",),
    "SubmissionRefused": ("Ray refused the driver: kubectl grpo logs {name} --role head",),
    "CrashLoopBackOff": ("kubectl grpo logs {name} --role head, or the role of the pod above",),
    "OOMKilled": ("The memory limit of that pod is too low: raise its resources.limits.memory.",),
}
_BY_PHASE: dict[Phase, tuple[str, ...]] = {
    Phase.STARTING: ("It is on its way: kubectl grpo wait {name} --for Running --timeout 30m",),
    Phase.RUNNING: ("kubectl grpo top {name}", "kubectl grpo logs {name} -f"),
    Phase.SUSPENDING: ("It writes a checkpoint and frees its pods; nothing needs to be done.",),
    Phase.SUSPENDED: ("kubectl grpo resume {name}", "kubectl grpo checkpoints {name}"),
    Phase.SUCCEEDED: (
        "kubectl grpo checkpoints {name}",
        "kubectl grpo copy-checkpoint {name} ./{name}",
    ),
    Phase.RETRYING: ("The next attempt starts by itself.",),
}
_UNSEEN = (
    "The operator has not looked at it. Is it running, and does it serve namespace {namespace}?",
    "kubectl get pods -A -l app.kubernetes.io/name=grpo-operator",
)
_RESUME = ", with checkpoint.resumeFrom: {path} and storage.claimName: {claim}"


def next_steps(job: Job) -> list[str]:
    """A few lines; a reason that is known says more than the phase."""
    why = cause(job)
    known = _BY_REASON.get(why.reason) if why is not None else None
    found = known or _BY_PHASE.get(job.status.phase, ("kubectl describe grpo {name}",))
    if not job.status.conditions:
        found = _UNSEEN
    names = {
        "name": job.name,
        "namespace": job.namespace,
        "previous": max(1, job.status.attempt - 1),
        "resume": _resume(job),
    }
    return [line.format(**names) for line in found]


def claim_of(job: Job) -> str:
    """Name of the claim that holds a job's run directory."""
    storage = job.spec.storage if job.spec is not None else None
    own = storage.claim_name if storage is not None else None
    return own or child_name(job.name, job.uid)


def _resume(job: Job) -> str:
    checkpoint = job.status.checkpoint
    if checkpoint is None:
        return ""
    return _RESUME.format(path=checkpoint.path, claim=claim_of(job))
