"""Next steps for a job, by its phase and reason."""

from grpo_operator.model.conditions import Reason
from grpo_operator.model.naming import CONTROLLER, child_name
from grpo_operator.model.observed import Job
from grpo_trainer.spec import Phase

from .jobs import explaining_condition

_FINAL = "A failed job cannot be restarted: create a new one"
_BY_REASON: dict[str, tuple[str, ...]] = {
    Reason.INVALID_SPEC: (
        "Fix the field in the message (grpo validate FILE), delete the job and create it again.",
    ),
    Reason.BAD_INPUT: (
        "The spec, the data or the model are invalid: fix what the message names.",
        f"{_FINAL}.",
    ),
    Reason.BACKOFF_LIMIT_EXCEEDED: (f"The message contains the last failure. {_FINAL}{{resume}}.",),
    Reason.DEADLINE_EXCEEDED: (
        f"activeDeadlineSeconds has passed. {_FINAL} with a longer one{{resume}}.",
    ),
    Reason.STARTUP_DEADLINE_EXCEEDED: (
        "The message explains why the pods did not start. Fix it, or raise",
        "startupDeadlineSeconds; then create a new job{resume}.",
    ),
    Reason.DRIVER_FAILED: (
        "The next attempt resumes from the newest checkpoint. Log of the last attempt:",
        "kubectl grpo logs {name} --attempt {previous}",
    ),
    Reason.STALLED: (
        "The next attempt starts automatically. Stacks of the last one: logs/ in the run directory",
    ),
    Reason.HEAD_LOST: ("The next attempt resumes from the newest checkpoint automatically.",),
    Reason.CLUSTER_LOST: ("The next attempt resumes from the newest checkpoint automatically.",),
    Reason.OLD_PODS_LEAVING: (
        "Pods of a lost node remain until it returns or is deleted: kubectl get nodes",
    ),
    Reason.QUEUED: ("Kueue has not admitted the job: kubectl describe workload -n {namespace}",),
    Reason.PREEMPTED: ("Kueue preempted the job and admits it again; no action is needed.",),
    Reason.HEAD_NOT_ANSWERING: (
        "The head pod is running, but its dashboard (port 8265) does not respond.",
        "If this persists, check NetworkPolicies: kubectl grpo logs {name} --role head",
    ),
    "Unschedulable": (
        "No node fits the pod: compare the message with kubectl describe nodes,",
        "and the state of the claim: kubectl get pvc -n {namespace}",
    ),
    "ImagePullBackOff": ("Check image and imagePullSecrets against the message.",),
    "ErrImagePull": ("Check image and imagePullSecrets against the message.",),
    "QuotaExceeded": ("Show the quota: kubectl describe resourcequota -n {namespace}",),
    "AdmissionDenied": (
        "The message names the policy that denied the pod: change the spec, or ask its owner.",
    ),
    "InvalidPodTemplate": (f"Fix the podTemplate field in the message. {_FINAL}.",),
    "KeyNotAllowed": (f"Use only the labels and annotations that the message lists. {_FINAL}.",),
    "TokenRefused": (
        "The head has another token than the operator; training is not affected. To replace it,",
        "delete the RayCluster: the next attempt resumes from the newest checkpoint.",
    ),
    "SubmissionRefused": ("Ray rejected the driver: kubectl grpo logs {name} --role head",),
    "CrashLoopBackOff": ("kubectl grpo logs {name} --role head, or the role of the pod above",),
    "OOMKilled": ("The pod exceeded its memory limit: raise its resources.limits.memory.",),
}
_BY_PHASE: dict[Phase, tuple[str, ...]] = {
    Phase.STARTING: ("kubectl grpo wait {name} --for Running --timeout 30m",),
    Phase.RUNNING: ("kubectl grpo top {name}", "kubectl grpo logs {name} -f"),
    Phase.SUSPENDING: ("The job writes a checkpoint and frees its pods; no action is needed.",),
    Phase.SUSPENDED: ("kubectl grpo resume {name}", "kubectl grpo checkpoints {name}"),
    Phase.SUCCEEDED: (
        "kubectl grpo checkpoints {name}",
        "kubectl grpo copy-checkpoint {name} ./{name}",
    ),
    Phase.RETRYING: ("The next attempt starts automatically.",),
}
_UNOBSERVED = (
    "The operator has not reconciled the job. Is it running, and does it serve namespace "
    "{namespace}?",
    "kubectl get pods -A -l app.kubernetes.io/name=grpo-operator",
)
_RESUME = ", with checkpoint.resumeFrom: {path} and storage.claimName: {claim}"


def next_steps(job: Job) -> list[str]:
    """A few lines, by the reason if it is a known one, else by the phase."""
    why = explaining_condition(job)
    known = _BY_REASON.get(why.reason) if why is not None else None
    found = known or _BY_PHASE.get(job.status.phase, ("kubectl describe grpo {name}",))
    if not job.status.conditions:
        found = _UNOBSERVED
    if job.spec is not None and job.spec.managed_by not in (None, CONTROLLER):
        found = (f"The job is managed by {job.spec.managed_by}, not by the GRPO operator.",)
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
