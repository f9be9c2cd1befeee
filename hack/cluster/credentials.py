"""Keys, tokens and kubeconfigs of one cluster, in which every client has an identity of its own."""

import base64
import json
import secrets
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ADMIN = "admin"
CONTROLLER_MANAGER = "system:kube-controller-manager"
SCHEDULER = "system:kube-scheduler"
KUBERAY = "kuberay-operator"
KWOK = "kwok"
PROXY = "system:kube-proxy"
DNS = "coredns"
VOLUMES = "local-path-provisioner"
MONITORING = "prometheus-operator"


def node_user(node: str) -> str:
    """The user that the kubelet of `node` is."""
    return f"system:node:{node}"


# Names with the prefix system: have their rights by the API server's own bootstrap policy.
_GROUPS = {
    ADMIN: "system:masters",
    KWOK: "system:masters",
    CONTROLLER_MANAGER: "",
    SCHEDULER: "",
    KUBERAY: "",
    PROXY: "",
    DNS: "",
    VOLUMES: "system:masters",
    MONITORING: "system:masters",
}
_NAMES = "DNS:localhost,DNS:kubernetes.default.svc,IP:127.0.0.1"


@dataclass(frozen=True)
class Credentials:
    directory: Path
    tokens: dict[str, str]
    """Bearer token by user name."""

    @property
    def certificate(self) -> Path:
        """The API server's, signed by itself: the one thing its clients have to trust."""
        return self.directory / "apiserver.crt"

    @property
    def certificate_key(self) -> Path:
        return self.directory / "apiserver.key"

    @property
    def kubelet_client(self) -> Path:
        """What the API server shows to kubelets; its key is `kubelet_client_key`."""
        return self.directory / "kubelet-client.crt"

    @property
    def kubelet_client_key(self) -> Path:
        return self.directory / "kubelet-client.key"

    @property
    def front_proxy(self) -> Path:
        """What the API server shows to servers of aggregated APIs."""
        return self.directory / "front-proxy.crt"

    @property
    def front_proxy_key(self) -> Path:
        return self.directory / "front-proxy.key"

    @property
    def service_account_key(self) -> Path:
        return self.directory / "service-accounts.key"

    @property
    def token_file(self) -> Path:
        return self.directory / "tokens.csv"

    def kubeconfig(self, user: str) -> Path:
        return kubeconfig(self.directory, user)


def kubeconfig(directory: Path, user: str) -> Path:
    """Where the kubeconfig of `user` lies among the credentials in `directory`."""
    return directory / f"{user.removeprefix('system:').replace(':', '-')}.kubeconfig"


def create(
    directory: Path, server: str, *, nodes: Sequence[str] = (), addresses: Sequence[str] = ()
) -> Credentials:
    """Writes fresh credentials for the API server at the URL `server` into `directory`.

    Args:
        nodes: real nodes, whose kubelets are users of their own.
        addresses: of the API server, beside loopback.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    groups = _GROUPS | {node_user(node): "system:nodes" for node in nodes}
    credentials = Credentials(directory, {user: secrets.token_hex(16) for user in groups})
    names = ",".join([_NAMES, *(f"IP:{address}" for address in addresses)])
    for subject, certificate, key in (
        ("/CN=kube-apiserver", credentials.certificate, credentials.certificate_key),
        (
            "/O=system:masters/CN=kubelet-client",
            credentials.kubelet_client,
            credentials.kubelet_client_key,
        ),
        ("/CN=front-proxy", credentials.front_proxy, credentials.front_proxy_key),
    ):
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"),
            *("-subj", subject, "-addext", f"subjectAltName={names}", "-days", "30"),
            *("-keyout", key, "-out", certificate),
        )
    _openssl(
        *("ecparam", "-name", "prime256v1", "-genkey", "-noout"),
        *("-out", credentials.service_account_key),
    )
    credentials.token_file.write_text(
        "".join(
            f'{token},{user},{user},"{groups[user]}"\n'
            for user, token in credentials.tokens.items()
        )
    )
    for user, token in credentials.tokens.items():
        credentials.kubeconfig(user).write_text(
            _kubeconfig(server, credentials.certificate.read_bytes(), user, token)
        )
    return credentials


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def _kubeconfig(server: str, certificate: bytes, user: str, token: str) -> str:
    name = "test-cluster"
    cluster = {
        "server": server,
        "certificate-authority-data": base64.b64encode(certificate).decode(),
    }
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
            "current-context": name,
        },
        indent=2,
    )
