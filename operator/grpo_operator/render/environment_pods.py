"""The pods of a job's environment: a Deployment, its headless Service and its NetworkPolicy.

They run the user's code against texts of the model: without a token, without the volume, without
the job's variables, and without any connection but those from the job's own pods.
"""

from grpo_trainer.spec import API_GROUP, GRPOJobSpec
from grpo_trainer.spec.environment import EnvironmentPodsSpec

from ..model.naming import MANAGED_BY, UID_LABEL, child_name
from ..model.observed import Job
from ..settings import Settings
from .merge import Object, strategic_merge
from .metadata import pod_metadata
from .objects import metadata
from .pod_parts import CONTAINER_SECURITY, amounts, joined, pod_security

ENVIRONMENT_LABEL = f"{API_GROUP}/environment-of"
"""With the job's UID. They have no label of the job's own pods, which would count them as such."""
ENVIRONMENT_PORT = 8000
_CONTAINER = "environment"
_GRACE_SECONDS = 30
_DNS_PORT = 53


def has_environment_pods(spec: GRPOJobSpec) -> bool:
    """Whether the job has an environment that runs in pods."""
    return spec.environment is not None and spec.environment.module is not None


def environment_url(job: Job) -> str:
    """Where the job's pods reach the environment's. Each of its addresses is one pod."""
    return f"http://{environment_name(job)}.{job.namespace}.svc:{ENVIRONMENT_PORT}"


def environment_name(job: Job) -> str:
    """Name of the Deployment, the Service and the NetworkPolicy."""
    return f"{child_name(job.name, job.uid)}-env"


def environment_deployment(job: Job, settings: Settings) -> Object:
    """The Deployment, which replaces lost pods.

    Raises KeyNotAllowedError, and ValueError for a pod template that cannot be merged.
    """
    assert job.spec is not None and job.spec.environment is not None
    pods = job.spec.environment.pods or EnvironmentPodsSpec()
    defaults = settings.defaults
    labels = _labels(job)
    base: Object = {
        "metadata": pod_metadata(job, defaults),
        "spec": _pod_spec(job.spec, pods, settings),
    }
    # Ours come last: the Service and the NetworkPolicy select the pods by them.
    ours = {"metadata": {"labels": {**MANAGED_BY, **labels}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(job),
        "spec": {
            "replicas": pods.replicas,
            "selector": {"matchLabels": labels},
            "template": strategic_merge(strategic_merge(base, pods.pod_template), ours),
        },
    }


def environment_service(job: Job) -> Object:
    """The Service without an address of its own: an episode stays with the pod it began in."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(job),
        "spec": {
            "clusterIP": "None",
            "selector": _labels(job),
            "ports": [{"name": "http", "port": ENVIRONMENT_PORT}],
        },
    }


def environment_policy(job: Job) -> Object:
    """The NetworkPolicy: calls from the job's pods, and DNS. An environment that needs more has a
    policy of its owner's, which adds to this one."""
    dns = [{"protocol": protocol, "port": _DNS_PORT} for protocol in ("UDP", "TCP")]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(job),
        "spec": {
            "podSelector": {"matchLabels": _labels(job)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [
                {
                    "from": [{"podSelector": {"matchLabels": {UID_LABEL: job.uid}}}],
                    "ports": [{"protocol": "TCP", "port": ENVIRONMENT_PORT}],
                }
            ],
            "egress": [{"ports": dns}],
        },
    }


def _labels(job: Job) -> dict[str, str]:
    return {ENVIRONMENT_LABEL: job.uid}


def _metadata(job: Job) -> Object:
    labels = {**MANAGED_BY, **_labels(job)}
    return metadata(job) | {"name": environment_name(job), "labels": labels}


def _pod_spec(spec: GRPOJobSpec, pods: EnvironmentPodsSpec, settings: Settings) -> Object:
    defaults = settings.defaults
    optional = {
        "nodeSelector": pods.node_selector,
        "tolerations": joined(defaults.tolerations, pods.tolerations),
        "imagePullSecrets": joined(defaults.image_pull_secrets, spec.image_pull_secrets),
        "runtimeClassName": defaults.runtime_class_name,
        "priorityClassName": spec.priority_class_name,
    }
    return {
        "containers": [_container(spec, pods, settings)],
        "securityContext": pod_security(defaults, with_volume=False),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        **{key: value for key, value in optional.items() if value},
    }


def _container(spec: GRPOJobSpec, pods: EnvironmentPodsSpec, settings: Settings) -> Object:
    assert spec.environment is not None and spec.environment.module is not None
    arguments = ["environment", spec.environment.module]
    port = str(ENVIRONMENT_PORT)
    container: Object = {
        "name": _CONTAINER,
        "image": pods.image or settings.images.trainer,
        "imagePullPolicy": settings.defaults.image_pull_policy,
        "command": ["grpo", *arguments, "--host", "0.0.0.0", "--port", port],
        "ports": [{"name": "http", "containerPort": ENVIRONMENT_PORT}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": ENVIRONMENT_PORT}},
        "resources": {kind: given for kind, given in amounts(pods).items() if given},
        "securityContext": CONTAINER_SECURITY,
    }
    return {key: value for key, value in container.items() if value}
