"""A container in which a job's volume can be read: one of its own, or one made for the purpose."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress

from grpo_operator.model.naming import child_name
from grpo_operator.model.observed import Job
from grpo_operator.model.resources import PODS
from grpo_trainer.spec import API_VERSION, KIND

from .advice import claim_of
from .api import Api, Object, Target
from .checkpoints import VOLUME
from .errors import CommandError, NotFoundError
from .jobs import pods_of
from .shell import RAY_CONTAINER, Container, Shell

DEFAULT_IMAGE = "busybox:1.37"
"""It needs sh, tar, du, stat and find."""
START_SECONDS = 120.0
_READER = "reader"
_USER = 1000


@asynccontextmanager
async def reading(api: Api, job: Job, image: str | None, seconds: float) -> AsyncIterator[Shell]:
    """A shell where the job's volume is mounted at VOLUME; what is made for it is deleted again.

    `seconds` bounds the life of a pod that could not be deleted. Raises CommandError.
    """
    for pod in await pods_of(api, job):
        if pod.ready and not pod.deleting:
            yield Container(api, job.namespace, pod.name, RAY_CONTAINER)
            return
    body = reader_pod(job, image, seconds)
    target = Target(PODS, job.namespace, body["metadata"]["name"])
    try:
        await api.create(Target(PODS, job.namespace), body)
    except asyncio.CancelledError:  # it may be there all the same
        await _delete(api, target)
        raise
    try:
        await _until_running(api, target)
        yield Container(api, job.namespace, target.name, _READER)
    finally:
        await _delete(api, target)


async def _delete(api: Api, target: Target) -> None:
    with suppress(NotFoundError):
        await api.delete(target)


def reader_pod(job: Job, image: str | None, seconds: float) -> Object:
    """A pod that mounts the job's claim read-only and sleeps; it ends by itself or with the job."""
    assert job.spec is not None
    head = job.spec.head
    own = head.image or job.spec.consumers.image
    container = {
        "name": _READER,
        "image": image or own or DEFAULT_IMAGE,
        "command": ["sleep", str(int(seconds))],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "volumeMounts": [{"name": "data", "mountPath": VOLUME, "readOnly": True}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": job.name, "uid": job.uid}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{child_name(job.name, job.uid)}-reader-{uuid.uuid4().hex[:6]}",
            "namespace": job.namespace,
            "labels": {"app.kubernetes.io/managed-by": "kubectl-grpo"},
            "ownerReferences": [owner],
        },
        "spec": {
            "containers": [container],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": claim_of(job)}},
            ],
            "restartPolicy": "Never",
            "activeDeadlineSeconds": int(seconds),
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "imagePullSecrets": [secret.plain() for secret in job.spec.image_pull_secrets],
            "nodeSelector": head.node_selector,
            "tolerations": [toleration.plain() for toleration in head.tolerations],
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": _USER,
                "runAsGroup": _USER,
                "fsGroup": _USER,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        },
    }


async def _until_running(api: Api, target: Target) -> None:
    """Raises CommandError that says what keeps the pod."""
    waits = "it has not been looked at"
    try:
        async with asyncio.timeout(START_SECONDS), aclosing(api.follow(target)) as changes:
            async for pods in changes:
                if not pods:
                    raise CommandError(f"pod {target.name} was deleted by somebody else")
                waits = why_waiting(pods[0])
                if not waits:
                    return
    except TimeoutError as error:
        raise CommandError(
            f"pod {target.name} did not start within {START_SECONDS:.0f} s: {waits}"
        ) from error


def why_waiting(pod: Object) -> str:
    """What keeps a pod from running; empty when it runs. Raises CommandError when it never will."""
    status = pod.get("status", {})
    phase = status.get("phase", "Pending")
    if phase in ("Failed", "Succeeded"):
        name = pod["metadata"]["name"]
        raise CommandError(f"pod {name} ended: {status.get('message') or status.get('reason')}")
    if phase == "Running":
        return ""
    for container in status.get("containerStatuses", ()):
        waiting = container.get("state", {}).get("waiting", {})
        if waiting:
            return f"{waiting.get('reason', '')}: {waiting.get('message', '')}".rstrip(": ")
    for condition in status.get("conditions", ()):
        if condition["status"] == "False" and condition.get("message"):
            return str(condition["message"])
    return str(phase)
