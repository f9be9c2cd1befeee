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

_MANIFESTS = Path(__file__).resolve().parent / "manifests"
_PROBE_INTERVAL_SECONDS = 0.1  # a health endpoint can only be asked again

_CLUSTER_ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
_CLUSTER_ROLE_BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_STORAGE_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_NODES = "/api/v1/nodes"
# Pods are not admitted before it exists.
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

    def cluster(self, *, nodes: int, bare: bool) -> None:
        """Starts the control plane and, unless `bare`, KWOK with fake nodes and KubeRay.

        Raises:
            RuntimeError: a component ended, or the API server refused an object.
            TimeoutError: a component was not ready at the deadline.
        """
        keys = self.components.keys
        server = self.components.api_server_url
        api = ApiServer(server, keys.certificate, keys.tokens[credentials.ADMIN])

        self._start(self.components.etcd())
        self._wait_for_health(self._start(self.components.api_server()))
        started = [
            self._start(self.components.controller_manager()),
            self._start(self.components.scheduler()),
        ]
        api.create(_STORAGE_CLASSES, _manifest("storageclass.yaml"))
        if not bare:
            started.append(self._start(self.components.kwok(_MANIFESTS / "stages.yaml")))
            for index in range(nodes):
                api.create(_NODES, _manifest("node.yaml", name=f"node-{index}"))
            self._install_kuberay(api)
            started.append(self._start(self.components.kuberay()))
        for component in started:
            self._wait_for_health(component)
        self._wait_for(
            "the default service account", partial(api.answers, _DEFAULT_SERVICE_ACCOUNT)
        )

    def _install_kuberay(self, api: ApiServer) -> None:
        """Creates the kinds and the role of its release, and binds the role."""
        released = self.components.programs / "manifests"
        api.create(_CLUSTER_ROLES, (released / "role.yaml").read_text())
        api.create(_CLUSTER_ROLE_BINDINGS, _manifest("kuberay-binding.yaml"))
        api.create(_DEFINITIONS, (released / "ray.io_rayclusters.yaml").read_text())
        for kind in ("RayJob", "RayService"):
            plural = kind.lower() + "s"
            api.create(_DEFINITIONS, _manifest("unused-definition.yaml", kind=kind, plural=plural))
        kinds = {"rayclusters", "rayjobs", "rayservices"}
        # An operator that does not find its kinds at its start looks again only 10 s later.
        self._wait_for("the kinds of KubeRay", lambda: kinds <= api.discoverable("ray.io"))

    def _start(self, component: Component) -> Component:
        self.record.spawn(
            component.name,
            component.argv,
            log=self.logs / f"{component.name}.log",
            cwd=self.state,
            die_with_parent=self.die_with_parent,
        )
        return component

    def _wait_for_health(self, component: Component) -> None:
        assert component.health is not None
        self._wait_for(component.name, partial(is_healthy, component.health))

    def _wait_for(self, what: str, holds: Callable[[], bool]) -> None:
        while not holds():
            if ended := self.record.ended():
                raise RuntimeError(f"ended while starting: {', '.join(ended)}")
            if time.monotonic() > self.deadline:
                raise TimeoutError(f"not ready in time: {what}")
            time.sleep(_PROBE_INTERVAL_SECONDS)


def _manifest(file: str, /, **values: str) -> str:
    return string.Template((_MANIFESTS / file).read_text()).substitute(values)
