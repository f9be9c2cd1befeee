"""The RayCluster of a job: a head and two pools."""

from grpo_trainer.spec import GRPOJobSpec

from ..model.observed import Job, Role
from ..settings import Settings
from .merge import Object
from .metadata import cluster_metadata
from .objects import metadata
from .pods import pod_template

API_VERSION = "ray.io/v1"


def ray_cluster(job: Job, settings: Settings, node_claim: str | None = None) -> Object:
    """The RayCluster.

    `node_claim` is the claim if only one node at a time can mount it.

    Raises KeyNotAllowedError, and ValueError for a pod template that cannot be merged.
    """
    spec = job.spec
    assert spec is not None
    head = {
        # Otherwise tasks without resource requests could run beside the driver.
        "rayStartParams": {"dashboard-host": "0.0.0.0", "num-cpus": "0"},
        "template": pod_template(job, Role.HEAD, settings, node_claim),
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "RayCluster",
        "metadata": metadata(job) | cluster_metadata(job, settings.defaults),
        "spec": {
            "rayVersion": settings.images.ray_version,
            "enableInTreeAutoscaling": False,
            "headGroupSpec": head,
            "workerGroupSpecs": [
                _group(job, spec, Role.PRODUCER, settings, node_claim),
                _group(job, spec, Role.CONSUMER, settings, node_claim),
            ],
        },
    }


def scale_patch(cluster: Object, replicas: int) -> list[Object]:
    """A JSON patch that scales the producers; it fails if the groups have changed.

    Kueue counts `replicas` and KubeRay clamps it between the bounds, so all three agree.
    """
    groups = [group["groupName"] for group in cluster["spec"]["workerGroupSpecs"]]
    at = f"/spec/workerGroupSpecs/{groups.index(Role.PRODUCER)}"
    test: list[Object] = [{"op": "test", "path": f"{at}/groupName", "value": str(Role.PRODUCER)}]
    return test + [
        {"op": "replace", "path": f"{at}/{field}", "value": replicas}
        for field in ("minReplicas", "maxReplicas", "replicas")
    ]


def _group(
    job: Job, spec: GRPOJobSpec, role: Role, settings: Settings, node_claim: str | None
) -> Object:
    """A pool. Its custom resource keeps the actors of the other pool off its pods.

    A producer is one actor for its whole pod; a consumer pod has one actor for each process.
    """
    if role is Role.PRODUCER:
        replicas, resources = spec.producers.replicas, {"grpo_producer": "1"}
    else:
        replicas = spec.consumers.replicas
        resources = {"grpo_consumer": str(spec.consumers.processes_per_replica)}
    return {
        "groupName": str(role),
        "replicas": replicas,
        "minReplicas": replicas,
        "maxReplicas": replicas,
        "rayStartParams": {},
        "resources": resources,
        "template": pod_template(job, role, settings, node_claim),
    }
