"""The order in which a cluster's components start, and what each waits for."""

import string
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import credentials
from api import ApiServer, is_healthy
from components import Component, Components
from processes import Record

MANIFESTS = Path(__file__).resolve().parent / "manifests"
_PROBE_INTERVAL_SECONDS = 0.1  # a health endpoint can only be asked again

_CLUSTER_ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
_CLUSTER_ROLE_BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_STORAGE_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_NODES = "/api/v1/nodes"
_DEFAULT_SERVICE_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"


@dataclass(frozen=True)
class Launch:
    """Starts components with their output in `logs`, and waits for them until `deadline`."""

    components: Components
    state: Path
    logs: Path
    record: Record
    deadline: float
    """Of `time.monotonic`."""
    die_with_parent: bool
    inside: tuple[str, ...] = ()
    """What to write before a command to run it where the cluster is."""

    def control_plane(self) -> tuple[ApiServer, list[Component]]:
        """Starts etcd, API server, controller manager and scheduler; the last two are unready."""
        keys = self.components.keys
        server = self.components.api_server_url
        api = ApiServer(server, keys.certificate, keys.tokens[credentials.ADMIN])

        self.start(self.components.etcd())
        self.wait_for_health(self.start(self.components.api_server()))
        started = [
            self.start(self.components.controller_manager()),
            self.start(self.components.scheduler()),
        ]
        return api, started

    def simulated_cluster(self, *, nodes: int, bare: bool) -> None:
        """Starts the control plane and, unless `bare`, KWOK with fake nodes and KubeRay.

        Raises:
            RuntimeError: a component ended, or the API server refused an object.
            TimeoutError: a component was not ready at the deadline.
        """
        api, started = self.control_plane()
        api.create(_STORAGE_CLASSES, manifest("storageclass.yaml"))
        if not bare:
            started.append(self.start(self.components.kwok(MANIFESTS / "stages.yaml")))
            for index in range(nodes):
                api.create(_NODES, manifest("node.yaml", name=f"node-{index}"))
            started.append(self.kuberay(api))
        for component in started:
            self.wait_for_health(component)
        self.wait_for_default_account(api)

    def wait_for_default_account(self, api: ApiServer) -> None:
        """Pods are not admitted before it exists."""
        self.wait_for("the default service account", partial(api.answers, _DEFAULT_SERVICE_ACCOUNT))

    def kuberay(self, api: ApiServer) -> Component:
        """Starts KubeRay with the rights of its release."""
        self._install_kuberay(api)
        return self.start(self.components.kuberay())

    def _install_kuberay(self, api: ApiServer) -> None:
        """Creates the kinds and the role of its release, and binds the role."""
        released = self.components.programs / "manifests"
        api.create(_CLUSTER_ROLES, (released / "role.yaml").read_text())
        api.create(_CLUSTER_ROLE_BINDINGS, manifest("kuberay-binding.yaml"))
        api.create(_DEFINITIONS, (released / "ray.io_rayclusters.yaml").read_text())
        for kind in ("RayJob", "RayService"):
            plural = kind.lower() + "s"
            api.create(_DEFINITIONS, manifest("unused-definition.yaml", kind=kind, plural=plural))
        kinds = {"rayclusters", "rayjobs", "rayservices"}
        # An operator that does not find its kinds at its start looks again only 10 s later.
        self.wait_for("the kinds of KubeRay", lambda: kinds <= api.discoverable("ray.io"))

    def start(self, component: Component) -> Component:
        self.record.spawn(
            component.name,
            [*self.inside, *component.argv],
            log=self.logs / f"{component.name}.log",
            cwd=self.state,
            die_with_parent=self.die_with_parent,
        )
        return component

    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()

    def wait_for_health(self, component: Component) -> None:
        assert component.health is not None
        self.wait_for(component.name, partial(is_healthy, component.health))

    def wait_for(self, what: str, holds: Callable[[], bool]) -> None:
        while not holds():
            if ended := self.record.ended():
                raise RuntimeError(f"ended while starting: {', '.join(ended)}")
            if time.monotonic() > self.deadline:
                raise TimeoutError(f"not ready in time: {what}")
            time.sleep(_PROBE_INTERVAL_SECONDS)


def manifest(file: str, /, **values: str) -> str:
    """A manifest of this project, with its $names filled in."""
    return string.Template((MANIFESTS / file).read_text()).substitute(values)
