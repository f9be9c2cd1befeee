"""A container with a job's volume: one of the job's own, or a pod created to read it."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from grpo_operator.clients.kube import Object
from grpo_operator.model.images import find_image
from grpo_operator.model.naming import child_name
from grpo_operator.model.observed import Job, Role
from grpo_operator.model.resources import PODS
from grpo_trainer.spec import API_VERSION, KIND

from .access import Session
from .advice import claim_of
from .checkpoints import VOLUME
from .errors import CommandError
from .follow import follow
from .jobs import pods_of
from .shell import RAY_CONTAINER, Container, Shell

DEFAULT_IMAGE = "busybox:1.37"
"""Must contain sh, tar, du, stat and find."""
START_SECONDS = 120.0
_READER = "reader"
_USER = 1000


@asynccontextmanager
async def reading(
    session: Session, job: Job, image: str | None, seconds: float
) -> AsyncIterator[Shell]:
    """A shell with the job's volume mounted at VOLUME; a pod created for it is deleted at the end.

    `seconds` bounds the life of a pod that could not be deleted. Raises CommandError or ApiError.
    """
    for pod in await pods_of(session, job):
        if pod.ready and not pod.deleting:
            yield Container(session.kube, job.namespace, pod.name, RAY_CONTAINER)
            return
    body = reader_pod(job, image, seconds)
    pod_name = body["metadata"]["name"]
    try:
        await session.kube.create(PODS, job.namespace, body)
    except asyncio.CancelledError:  # it may have been created all the same
        await session.kube.delete(PODS, job.namespace, pod_name)
        raise
    try:
        await _until_running(session, job.namespace, pod_name)
        yield Container(session.kube, job.namespace, pod_name, _READER)
    finally:
        await session.kube.delete(PODS, job.namespace, pod_name)


def reader_pod(job: Job, image: str | None, seconds: float) -> Object:
    """A pod that mounts the claim read-only and sleeps until its deadline or the end of the job."""
    assert job.spec is not None
    head, recorded = job.spec.head, find_image(job.status.images, Role.HEAD)
    own = head.image or job.spec.consumers.image or (recorded.image if recorded else None)
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


async def _until_running(session: Session, namespace: str, name: str) -> None:
    """Raises CommandError with the reason why the pod does not run."""
    reason = "its status is not known"
    changes = follow(session.kube, PODS, namespace, name)
    try:
        async with asyncio.timeout(START_SECONDS), aclosing(changes):
            async for pods in changes:
                if not pods:
                    raise CommandError(f"pod {name} was deleted")
                reason = why_waiting(pods[0])
                if not reason:
                    return
    except TimeoutError as error:
        raise CommandError(
            f"pod {name} did not start within {START_SECONDS:.0f} s: {reason}"
        ) from error


def why_waiting(pod: Object) -> str:
    """Why a pod does not run; empty when it runs. Raises CommandError when it has ended."""
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
