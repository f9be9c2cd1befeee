"""Pod templates of the head, the producers and the consumers."""

from grpo_trainer.spec import CPU, Backend, ConsumerBackend, GRPOJobSpec
from grpo_trainer.spec.cluster import ConsumersSpec, PodPoolSpec, ProducersSpec

from ..model.images import find_image, pool_of, with_pinned_image
from ..model.naming import CLAIM_LABEL, CONTAINER, child_name, claim_label
from ..model.observed import Job, Role
from ..settings import DASHBOARD_PORT, DRIVER_PORT, Settings
from .environment import CONFIG_DIR, VOLUME_DIR, environment
from .merge import Object, strategic_merge
from .metadata import own_pod_labels, pod_metadata
from .objects import config_map
from .pod_parts import CONTAINER_SECURITY, amounts, joined, pod_security
from .resources import with_equal_view

_GRACE_SECONDS = 30
"""From a container's SIGTERM to its end."""
_KEPT_ATTEMPTS = 3
"""Attempts on new pods whose logs the volume keeps."""

_HEAD_PORTS = {
    "gcs-server": 6379,
    "dashboard": DASHBOARD_PORT,
    "client": 10001,
    "driver": DRIVER_PORT,
}


def pod_template(job: Job, role: Role, settings: Settings, node_claim: str | None = None) -> Object:
    """The template of one pool, with the user's patch applied.

    `node_claim` is the claim if only one node at a time can mount it: all pods have to be there.

    Raises KeyNotAllowedError, and ValueError for a patch that cannot be merged.
    """
    assert job.spec is not None
    pool = pool_of(job.spec, role)
    base = {
        "metadata": pod_metadata(job, settings.defaults),
        "spec": _pod_spec(job, job.spec, pool, role, settings) | _on_one_node(node_claim),
    }
    # Our labels come last: the operator selects the pods by them.
    labels = {"metadata": {"labels": own_pod_labels(job, role, node_claim)}}
    merged = strategic_merge(strategic_merge(base, pool.pod_template), labels)
    run = with_pinned_image(merged, find_image(job.status.images, role))
    return with_equal_view(run, CONTAINER, settings.defaults.head_resources(role))


def _on_one_node(node_claim: str | None) -> Object:
    """Affinity between all pods with the claim, those of other jobs too.

    The scheduler places the first pod anywhere: it only requires a match where a pod could match.
    """
    if node_claim is None:
        return {}
    term = {
        "labelSelector": {"matchLabels": {CLAIM_LABEL: claim_label(node_claim)}},
        "topologyKey": "kubernetes.io/hostname",
    }
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


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
    defaults = settings.defaults
    optional = {
        "nodeSelector": pool.node_selector,
        "tolerations": joined(defaults.tolerations, pool.tolerations),
        "imagePullSecrets": joined(defaults.image_pull_secrets, spec.image_pull_secrets),
        "runtimeClassName": defaults.runtime_class_name,
        "schedulerName": defaults.scheduler_name,
        "priorityClassName": spec.priority_class_name or defaults.priority_class_name,
        "serviceAccountName": spec.service_account_name,
    }
    return {
        "containers": [_container(job, spec, pool, role, settings)],
        "volumes": [
            {"name": "config", "configMap": {"name": config_map(job)["metadata"]["name"]}},
            {"name": "data", "persistentVolumeClaim": {"claimName": claim or name}},
            # Ray's object store is in shared memory, of which a container has 64 MiB by default.
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        ],
        "securityContext": pod_security(defaults, with_volume=True),
        "automountServiceAccountToken": spec.service_account_name is not None,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _GRACE_SECONDS
        + (0 if role is Role.PRODUCER else spec.checkpoint.drain_seconds),
        **{key: value for key, value in optional.items() if value},
    }


def _container(
    job: Job, spec: GRPOJobSpec, pool: PodPoolSpec, role: Role, settings: Settings
) -> Object:
    container: Object = {
        "name": CONTAINER,
        "image": pool.image or _default_image(job, spec, role, settings),
        "imagePullPolicy": settings.defaults.image_pull_policy,
        "workingDir": VOLUME_DIR,
        "env": environment(job, spec, settings.defaults.env) + _pod_variables(spec, role),
        "envFrom": [source.plain() for source in spec.env_from],
        "resources": _resources(pool),
        "volumeMounts": [
            {"name": "config", "mountPath": CONFIG_DIR, "readOnly": True},
            {"name": "data", "mountPath": VOLUME_DIR},
            {"name": "shared-memory", "mountPath": "/dev/shm"},
        ],
        # The collector writes the output of driver and actors to the container's log.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": CONTAINER_SECURITY,
    }
    if role is Role.HEAD:
        container["ports"] = [
            {"name": name, "containerPort": port} for name, port in _HEAD_PORTS.items()
        ]
    container["lifecycle"] = _hooks(spec, role)
    return {key: value for key, value in container.items() if value}


def _hooks(spec: GRPOJobSpec, role: Role) -> Object:
    """The collector of logs, and the wait for a checkpoint."""
    pods = {Role.HEAD: 1, Role.CONSUMER: spec.consumers.replicas}
    keep = _KEPT_ATTEMPTS * pods.get(role, spec.producers.most_replicas)
    # In the background and without its streams: the pod is not Running before the hook has ended,
    # and a hook that fails would restart the container.
    script = f"python {CONFIG_DIR}/collect.py {role} {keep} </dev/null >/dev/null 2>&1 &"
    hooks: Object = {"postStart": {"exec": {"command": ["sh", "-c", script]}}}
    if role is not Role.PRODUCER:
        hooks["preStop"] = {"exec": {"command": ["python", f"{CONFIG_DIR}/drain.py"]}}
    return hooks


def _pod_variables(spec: GRPOJobSpec, role: Role) -> list[Object]:
    """Variables for the drain: where the driver is served from, and how long to wait for it."""
    if role is Role.PRODUCER:
        return []
    drain = {"name": "GRPO_DRAIN_SECONDS", "value": str(spec.checkpoint.drain_seconds)}
    address = {"name": "GRPO_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    return [drain, address] if role is Role.HEAD else [drain]


def _default_image(job: Job, spec: GRPOJobSpec, role: Role, settings: Settings) -> str:
    """That of the run: an upgrade of the chart changes the default for later runs only.

    With consumers by FSDP one image serves all roles; the driver is in the head.
    """
    recorded = find_image(job.status.images, role)
    if recorded is not None and not recorded.from_spec:
        return recorded.image
    vllm = role is Role.PRODUCER and spec.producers.backend is Backend.VLLM
    fsdp = spec.consumers.backend is ConsumerBackend.FSDP
    return settings.images.vllm if vllm or fsdp else settings.images.trainer


def _resources(pool: PodPoolSpec) -> Object:
    """Those of the spec, and the accelerators as both request and limit."""
    resources = amounts(pool)
    if isinstance(pool, ProducersSpec | ConsumersSpec) and (count := accelerators(pool)):
        for given in resources.values():
            given[pool.accelerator] = str(count)
    return {kind: given for kind, given in resources.items() if given}
