"""The API resources that the operator uses."""

from dataclasses import dataclass

from grpo_trainer.spec import API_GROUP


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object in the API."""

    group: str
    version: str
    plural: str

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """URL path of the collection, of an object, or of its subresource."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if namespace else ""
        parts = (self.plural, name, subresource)
        return root + scope + "".join(f"/{part}" for part in parts if part)


JOBS = Resource(API_GROUP, "v1alpha1", "grpojobs")
CLUSTERS = Resource("ray.io", "v1", "rayclusters")
PODS = Resource("", "v1", "pods")
DEPLOYMENTS = Resource("apps", "v1", "deployments")
SERVICES = Resource("", "v1", "services")
CLAIMS = Resource("", "v1", "persistentvolumeclaims")
CONFIG_MAPS = Resource("", "v1", "configmaps")
SECRETS = Resource("", "v1", "secrets")
EVENTS = Resource("", "v1", "events")
NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies")
LEASES = Resource("coordination.k8s.io", "v1", "leases")
