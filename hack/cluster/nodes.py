"""What runs on a real node: containerd, kubelet and, once for all nodes, kube-proxy and DNS.

Sockets and other short-lived files lie in /run, which inside the cluster's namespaces is its own.
"""

import hashlib
import string
from dataclasses import dataclass
from pathlib import Path

import credentials
import network
from components import Component, Ports
from container_images import PAUSE
from credentials import Credentials
from network import Node

_TEMPLATES = Path(__file__).resolve().parent / "templates"


def cgroup(state: Path, node: Node) -> str:
    """The cgroup of a node's pods, which no other cluster on this machine has."""
    return f"grpo-{hashlib.sha256(str(state).encode()).hexdigest()[:8]}-{node.name}"


def directory(state: Path, node: Node) -> Path:
    """Images, containers and volumes of one node."""
    return state / "nodes" / node.name


def containerd_configuration(place: Path, name: str) -> Path:
    """Writes the configuration of a containerd with its root in `place`, its socket by `name`."""
    configuration = place / "containerd.toml"
    configuration.write_text(_template("containerd.toml", directory=place, node=name, pause=PAUSE))
    return configuration


@dataclass(frozen=True)
class NodeComponents:
    """The components of all nodes, and their configuration files, which they write."""

    programs: Path
    ports: Ports
    keys: Credentials
    state: Path

    def containerd(self, node: Node) -> Component:
        """The container runtime, with the pods' network. It is asked by `ctr`."""
        place = directory(self.state, node)
        (place / "network").mkdir(parents=True, exist_ok=True)
        (place / "network" / "pods.conflist").write_text(
            _template(
                "network.conflist",
                node=node.name,
                bridge=node.bridge,
                subnet=node.subnet,
                address=node.address,
            )
        )
        configuration = containerd_configuration(place, node.name)
        # With another mask, images of users other than root unpack to files that they cannot read.
        command = f"umask 022; exec containerd --config {configuration}"
        return Component(f"containerd-{node.index}", ["sh", "-c", command])

    def kubelet(self, node: Node) -> Component:
        place = directory(self.state, node)
        configuration = place / "kubelet.yaml"
        configuration.write_text(
            _template(
                "kubelet.yaml",
                address=node.address,
                cgroup=cgroup(self.state, node),
                directory=place,
                dns=network.FIRST.address,
                health_port=self.ports.kubelets[node.index],
                kubelet_client=self.keys.kubelet_client,
                node=node.name,
            )
        )
        flags = (
            f"--config={configuration}",
            f"--kubeconfig={self.keys.kubeconfig(credentials.node_user(node.name))}",
            f"--root-dir={place / 'kubelet'}",
            f"--cert-dir={place / 'certificates'}",
            f"--hostname-override={node.name}",
            f"--node-ip={node.address}",
        )
        return self._component(
            f"kubelet-{node.index}", "kubelet", self.ports.kubelets[node.index], "healthz", flags
        )

    def kube_proxy(self) -> Component:
        """Services, for all nodes: they share the tables that it writes."""
        configuration = self.state / "nodes" / "kube-proxy.yaml"
        configuration.write_text(
            _template(
                "kube-proxy.yaml",
                address=network.FIRST.address,
                health_port=self.ports.proxy,
                kubeconfig=self.keys.kubeconfig(credentials.PROXY),
                node=network.FIRST.name,
                pods=network.PODS,
            )
        )
        flags = (f"--config={configuration}",)
        return self._component("kube-proxy", "kube-proxy", self.ports.proxy, "healthz", flags)

    def dns(self) -> Component:
        configuration = self.state / "nodes" / "Corefile"
        configuration.write_text(
            _template(
                "Corefile",
                address=network.FIRST.address,
                health_port=self.ports.dns,
                kubeconfig=self.keys.kubeconfig(credentials.DNS),
            )
        )
        flags = (f"-conf={configuration}",)
        return self._component("coredns", "coredns", self.ports.dns, "ready", flags)

    def _component(
        self, name: str, program: str, port: int, path: str, flags: tuple[str, ...]
    ) -> Component:
        argv = [str(self.programs / program), *flags]
        return Component(name, argv, f"http://127.0.0.1:{port}/{path}")


def _template(file: str, /, **values: object) -> str:
    return string.Template((_TEMPLATES / file).read_text()).substitute(values)
