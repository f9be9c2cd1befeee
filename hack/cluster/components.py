"""The components of a cluster: command line and health endpoint of each.

They run in the state directory and name the store's socket relative to it: a socket's path may
not be longer than 107 bytes, a state directory's may.
"""

import random
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import credentials
import network
from credentials import Credentials

# Below the ephemeral range, from which the kernel takes the ports of outgoing connections.
_PORTS = range(20_000, 32_000)
# etcd wants a port even here, and takes it for a part of the socket's name.
_STORE = "unix://etcd.sock:0"
_STORE_PEER = "unix://etcd-peer.sock:0"
_API_SERVER_ON_LOOPBACK = (
    "--bind-address=127.0.0.1",
    "--advertise-address=127.0.0.1",
    "--endpoint-reconciler-type=none",
    # The pods of a lost node are deleted after 5 s, not 5 min.
    "--default-not-ready-toleration-seconds=5",
    "--default-unreachable-toleration-seconds=5",
)
_SIMULATED_NODES = (
    # A claim binds to a directory that no node ever mounts.
    "--enable-hostpath-provisioner",
    # A node is lost when its lease, which KWOK renews every 2 s, is 10 s old.
    "--node-monitor-period=1s",
    "--node-monitor-grace-period=10s",
    "--node-eviction-rate=10",
)


@dataclass(frozen=True)
class Ports:
    """Ports of loopback, one for each component that serves there.

    Those of real nodes serve inside a network namespace, and a gateway carries them outside.
    """

    kubelets: tuple[int, ...]
    api_server: int
    controller_manager: int
    scheduler: int
    kwok: int
    kuberay: int
    proxy: int
    dns: int
    monitoring: int


def free_ports(kubelets: int = 0) -> Ports:
    """Ports that nobody listens on."""
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < 8 + kubelets:
            listener = held.enter_context(socket.socket())
            port = random.choice(_PORTS)
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
    return Ports(tuple(found[8:]), *found[:8])


@dataclass(frozen=True)
class Component:
    name: str
    argv: list[str]
    health: str | None = None
    """URL that answers with success once the component works."""


@dataclass(frozen=True)
class Components:
    programs: Path
    ports: Ports
    keys: Credentials
    real_nodes: bool = False
    """Pods run, and have to reach the API server."""

    @property
    def api_server_url(self) -> str:
        return f"https://127.0.0.1:{self.ports.api_server}"

    def etcd(self) -> Component:
        """The store. The API server is not ready before it, so it needs no health endpoint."""
        return self._component(
            "etcd",
            None,
            "--name=etcd",
            "--data-dir=etcd",
            f"--listen-client-urls={_STORE}",
            f"--advertise-client-urls={_STORE}",
            f"--listen-peer-urls={_STORE_PEER}",
            f"--initial-advertise-peer-urls={_STORE_PEER}",
            f"--initial-cluster=etcd={_STORE_PEER}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )

    def api_server(self) -> Component:
        return self._component(
            "kube-apiserver",
            f"{self.api_server_url}/readyz",
            f"--etcd-servers={_STORE}",
            f"--secure-port={self.ports.api_server}",
            f"--tls-cert-file={self.keys.certificate}",
            f"--tls-private-key-file={self.keys.certificate_key}",
            f"--token-auth-file={self.keys.token_file}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            f"--service-cluster-ip-range={network.SERVICES}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.keys.service_account_key}",
            f"--service-account-signing-key-file={self.keys.service_account_key}",
            "--profiling=false",
            *(self._api_server_of_pods() if self.real_nodes else _API_SERVER_ON_LOOPBACK),
        )

    def _api_server_of_pods(self) -> Sequence[str]:
        """Kubelets and servers of aggregated APIs know the API server by its certificates."""
        return (
            "--bind-address=0.0.0.0",
            f"--advertise-address={network.FIRST.address}",
            "--enable-admission-plugins=NodeRestriction",
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-client-certificate={self.keys.kubelet_client}",
            f"--kubelet-client-key={self.keys.kubelet_client_key}",
            f"--proxy-client-cert-file={self.keys.front_proxy}",
            f"--proxy-client-key-file={self.keys.front_proxy_key}",
            f"--requestheader-client-ca-file={self.keys.front_proxy}",
            "--requestheader-allowed-names=front-proxy",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        )

    def controller_manager(self) -> Component:
        return self._component(
            "kube-controller-manager",
            f"https://127.0.0.1:{self.ports.controller_manager}/healthz",
            self._kubeconfig_flag(credentials.CONTROLLER_MANAGER),
            "--bind-address=127.0.0.1",
            f"--secure-port={self.ports.controller_manager}",
            "--leader-elect=false",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={self.keys.service_account_key}",
            f"--root-ca-file={self.keys.certificate}",
            "--pvclaimbinder-sync-period=1s",
            "--profiling=false",
            *(() if self.real_nodes else _SIMULATED_NODES),
        )

    def scheduler(self) -> Component:
        return self._component(
            "kube-scheduler",
            f"https://127.0.0.1:{self.ports.scheduler}/readyz",
            self._kubeconfig_flag(credentials.SCHEDULER),
            "--bind-address=127.0.0.1",
            f"--secure-port={self.ports.scheduler}",
            "--leader-elect=false",
            "--profiling=false",
        )

    def kwok(self, stages: Path) -> Component:
        return self._component(
            "kwok",
            f"http://127.0.0.1:{self.ports.kwok}/healthz",
            self._kubeconfig_flag(credentials.KWOK),
            f"--config={stages}",
            "--manage-nodes-with-label-selector=type=kwok",
            "--node-lease-duration-seconds=8",
            "--cidr=10.64.0.1/16",
            "--node-ip=10.63.0.1",
            f"--server-address=127.0.0.1:{self.ports.kwok}",
        )

    def kuberay(self) -> Component:
        return self._component(
            "kuberay-operator",
            f"http://127.0.0.1:{self.ports.kuberay}/readyz",
            self._kubeconfig_flag(credentials.KUBERAY),
            "--enable-leader-election=false",
            "--use-kubernetes-proxy",
            "--metrics-addr=0",
            f"--health-probe-bind-address=127.0.0.1:{self.ports.kuberay}",
        )

    def _component(self, name: str, health: str | None, *flags: str) -> Component:
        return Component(name, [str(self.programs / name), *flags], health)

    def _kubeconfig_flag(self, user: str) -> str:
        return f"--kubeconfig={self.keys.kubeconfig(user)}"
