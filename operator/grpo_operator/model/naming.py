"""Names and labels of everything that belongs to a job, none longer than Kubernetes allows."""

from hashlib import sha256

from grpo_trainer.spec import API_GROUP, MAX_NAME_LENGTH

UID_DIGITS = 8
JOB_LABEL = f"{API_GROUP}/job"
UID_LABEL = f"{API_GROUP}/job-uid"
ROLE_LABEL = f"{API_GROUP}/role"
CLAIM_LABEL = f"{API_GROUP}/claim"
"""On pods with a claim that one node at a time can mount: they have to meet on it."""
KUEUE_DOMAIN = "kueue.x-k8s.io/"
QUEUE_LABEL = f"{KUEUE_DOMAIN}queue-name"
CLUSTER_LABEL = "ray.io/cluster"
GROUP_LABEL = "ray.io/group"
CONTAINER = "ray"
"""Name of the container of every pod."""
MANAGED_BY = {"app.kubernetes.io/managed-by": "grpo-operator", "app.kubernetes.io/name": "grpojob"}

CLAIM_LEASE = f"grpojobs.{API_GROUP}"
"""The Lease in a namespace whose holder is the release that serves its jobs."""
CONTROLLER = f"{API_GROUP}/grpo-operator"
"""The operator in `spec.managedBy`."""

_MAX_LABEL_VALUE = 63
MAX_CLUSTER_NAME = 53
assert MAX_NAME_LENGTH + 1 + UID_DIGITS <= MAX_CLUSTER_NAME


def short_uid(uid: str) -> str:
    """The first eight digits of an object's UID."""
    return uid[:UID_DIGITS]


def child_name(job: str, uid: str) -> str:
    """Name of the RayCluster, ConfigMap, Secret, claim and run directory of a job.

    With the UID, a job that is deleted and created again does not adopt objects of the first.
    """
    return f"{job}-{short_uid(uid)}"


def submission_id(uid: str, attempt: int) -> str:
    """Ray's id of one attempt; Ray refuses to use one twice."""
    return f"{short_uid(uid)}-{attempt}"


def attempt_of(uid: str, submission: str) -> int | None:
    """The attempt of a Ray job, or None when the job is not ours."""
    prefix, _, number = submission.rpartition("-")
    return int(number) if prefix == short_uid(uid) and number.isdecimal() else None


def job_labels(job: str, uid: str) -> dict[str, str]:
    """Labels of every child. Nothing is copied from the labels of the job itself."""
    return {**MANAGED_BY, JOB_LABEL: job, UID_LABEL: uid}


def claim_label(claim: str) -> str:
    """A claim's name as the value of a label."""
    digest = sha256(claim.encode()).hexdigest()[:16]
    return claim if len(claim) <= _MAX_LABEL_VALUE else f"{claim[:40].rstrip('-.')}-{digest}"


def producer_selector(cluster: str) -> str:
    """Label selector of a cluster's producer pods, for the scale subresource."""
    return f"{CLUSTER_LABEL}={cluster},{GROUP_LABEL}=producers"
