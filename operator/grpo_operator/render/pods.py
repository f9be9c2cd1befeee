"""Pod templates of head, producers and consumers."""

from grpo_trainer.spec import CPU, Backend, GRPOJobSpec
from grpo_trainer.spec.cluster import ConsumersSpec, PodPoolSpec, ProducersSpec

from ..model.naming import ROLE_LABEL, child_name, job_labels
from ..model.observed import Job, Role
from ..settings import DASHBOARD_PORT, DRIVER_PORT, Settings
from .merge import Object, strategic_merge

CONTAINER = "ray"
CONFIG_DIR = "/etc/grpo"
VOLUME_DIR = "/data"
TOKEN_KEY = "token"
HEAD_GRACE_SECONDS = 120
"""Long enough to write a checkpoint."""
_USER = 1000

_HEAD_PORTS = {
    "gcs-server": 6379,
    "dashboard": DASHBOARD_PORT,
    "client": 10001,
    "driver": DRIVER_PORT,
}


def pod_template(job: Job, role: Role, settings: Settings) -> Object:
    """The template of one pool, with the user's patch over it.

    Raises ValueError for a patch that cannot be merged.
    """
    assert job.spec is not None
    pool = {
        Role.HEAD: job.spec.head,
        Role.CONSUMER: job.spec.consumers,
        Role.PRODUCER: job.spec.producers,
    }[role]
    base = {"spec": _pod_spec(job, job.spec, pool, role, settings)}
    # Our labels come last: by them the operator finds the pods.
    labels = {"metadata": {"labels": {**job_labels(job.name, job.uid), ROLE_LABEL: str(role)}}}
    return strategic_merge(strategic_merge(base, pool.pod_template), labels)


def accelerators(pool: PodPoolSpec) -> int:
    """Accelerators of one pod of a pool."""
    if isinstance(pool, ProducersSpec) and pool.accelerator != CPU:
        return pool.tensor_parallel_size
    if isinstance(pool, ConsumersSpec) and pool.accelerator != CPU:
        return pool.processes_per_replica
    return 0


def _pod_spec(
    job: Job, spec: GRPOJobSpec, pool: PodPoolSpec, role: Role, settings: Settings
) -> Object:
    name = child_name(job.name, job.uid)
    claim = spec.storage.claim_name if spec.storage is not None else None
    optional = {
        "nodeSelector": pool.node_selector,
        "tolerations": [toleration.plain() for toleration in pool.tolerations],
        "imagePullSecrets": [secret.plain() for secret in spec.image_pull_secrets],
        "priorityClassName": spec.priority_class_name,
        "serviceAccountName": spec.service_account_name,
    }
    return {
        "containers": [_container(job, spec, pool, role, settings)],
        "volumes": [
            {"name": "config", "configMap": {"name": name}},
            {"name": "data", "persistentVolumeClaim": {"claimName": claim or name}},
            # Ray's object store lives in shared memory; 64 MiB is a container's default.
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        ],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "automountServiceAccountToken": spec.service_account_name is not None,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": HEAD_GRACE_SECONDS if role is Role.HEAD else 30,
        **{key: value for key, value in optional.items() if value},
    }


def _container(
    job: Job, spec: GRPOJobSpec, pool: PodPoolSpec, role: Role, settings: Settings
) -> Object:
    container: Object = {
        "name": CONTAINER,
        "image": pool.image or _default_image(spec, role, settings),
        "workingDir": VOLUME_DIR,
        "env": _environment(job, spec),
        "envFrom": [source.plain() for source in spec.env_from],
        "resources": _resources(pool),
        "volumeMounts": [
            {"name": "config", "mountPath": CONFIG_DIR, "readOnly": True},
            {"name": "data", "mountPath": VOLUME_DIR},
            {"name": "shared-memory", "mountPath": "/dev/shm"},
        ],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    if role is Role.HEAD:
        ports = [{"name": name, "containerPort": port} for name, port in _HEAD_PORTS.items()]
        command = ["python", f"{CONFIG_DIR}/drain.py"]
        container |= {"ports": ports, "lifecycle": {"preStop": {"exec": {"command": command}}}}
    return {key: value for key, value in container.items() if value}


def _default_image(spec: GRPOJobSpec, role: Role, settings: Settings) -> str:
    vllm = role is Role.PRODUCER and spec.producers.backend is Backend.VLLM
    return settings.images.vllm if vllm else settings.images.trainer


def _resources(pool: PodPoolSpec) -> Object:
    """The user's, and the accelerators as both request and limit."""
    resources: dict[str, dict[str, str]] = {
        kind: {name: str(quantity) for name, quantity in given.items()}
        for kind, given in (
            ("requests", pool.resources.requests),
            ("limits", pool.resources.limits),
        )
    }
    if isinstance(pool, ProducersSpec | ConsumersSpec) and (count := accelerators(pool)):
        for amounts in resources.values():
            amounts[pool.accelerator] = str(count)
    return {kind: amounts for kind, amounts in resources.items() if amounts}


def _environment(job: Job, spec: GRPOJobSpec) -> list[Object]:
    """The user's variables, and ours, which win."""
    name = child_name(job.name, job.uid)
    token = {"secretKeyRef": {"name": name, "key": TOKEN_KEY}}
    ours: list[Object] = [
        {"name": "RAY_AUTH_MODE", "value": "token"},
        {"name": "RAY_AUTH_TOKEN", "valueFrom": token},
        {"name": "GRPO_SPEC", "value": f"{CONFIG_DIR}/spec.json"},
        {"name": "GRPO_RUN_DIR", "value": f"{VOLUME_DIR}/runs/{name}"},
        {"name": "HF_HOME", "value": f"{VOLUME_DIR}/huggingface"},
        {"name": "GRPO_CACHE", "value": f"{VOLUME_DIR}/cache"},
    ]
    wandb = spec.tracking.wandb
    if wandb is not None and wandb.secret_name is not None:
        key = {"name": wandb.secret_name, "key": "WANDB_API_KEY"}
        ours.append({"name": "WANDB_API_KEY", "valueFrom": {"secretKeyRef": key}})
    theirs = [variable.plain() for variable in spec.env]
    return list({variable["name"]: variable for variable in theirs + ours}.values())
