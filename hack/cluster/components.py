"""The components of a cluster: command line and health endpoint of each.

They run in the state directory and name the store's socket relative to it: a socket's path may
not be longer than 107 bytes, a state directory's may.
"""

import random
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import credentials
from credentials import Credentials

# Below the ephemeral range, from which the kernel takes the ports of outgoing connections.
_PORTS = range(20_000, 32_000)
# etcd wants a port even here, and takes it for a part of the socket's name.
_STORE = "unix://etcd.sock:0"
_STORE_PEER = "unix://etcd-peer.sock:0"


@dataclass(frozen=True)
class Ports:
    """Ports of loopback, one for each component that serves there."""

    api_server: int
    controller_manager: int
    scheduler: int
    kwok: int
    kuberay: int


def free_ports() -> Ports:
    """Ports that nobody listens on."""
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < 5:
            listener = held.enter_context(socket.socket())
            port = random.choice(_PORTS)
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
    return Ports(*found)


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
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--secure-port={self.ports.api_server}",
            f"--tls-cert-file={self.keys.certificate}",
            f"--tls-private-key-file={self.keys.certificate_key}",
            f"--token-auth-file={self.keys.token_file}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.keys.service_account_key}",
            f"--service-account-signing-key-file={self.keys.service_account_key}",
            # The pods of a lost node are deleted after 5 s, not 5 min.
            "--default-not-ready-toleration-seconds=5",
            "--default-unreachable-toleration-seconds=5",
            "--profiling=false",
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
            # A claim binds to a directory that nothing ever mounts.
            "--enable-hostpath-provisioner",
            "--pvclaimbinder-sync-period=1s",
            # A node is lost when its lease, which KWOK renews every 2 s, is 10 s old.
            "--node-monitor-period=1s",
            "--node-monitor-grace-period=10s",
            "--node-eviction-rate=10",
            "--profiling=false",
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
