"""Keys, tokens and kubeconfigs of one cluster, in which every client has an identity of its own."""

import base64
import json
import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path

ADMIN = "admin"
CONTROLLER_MANAGER = "system:kube-controller-manager"
SCHEDULER = "system:kube-scheduler"
KUBERAY = "kuberay-operator"
KWOK = "kwok"

# Names with the prefix system: have their rights by the API server's own bootstrap policy.
_GROUPS = {
    ADMIN: "system:masters",
    KWOK: "system:masters",
    CONTROLLER_MANAGER: "",
    SCHEDULER: "",
    KUBERAY: "",
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
    def service_account_key(self) -> Path:
        return self.directory / "service-accounts.key"

    @property
    def token_file(self) -> Path:
        return self.directory / "tokens.csv"

    def kubeconfig(self, user: str) -> Path:
        return kubeconfig(self.directory, user)


def kubeconfig(directory: Path, user: str) -> Path:
    """Where the kubeconfig of `user` lies among the credentials in `directory`."""
    return directory / f"{user.removeprefix('system:')}.kubeconfig"


def create(directory: Path, server: str) -> Credentials:
    """Writes fresh credentials for the API server at the URL `server` into `directory`."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    credentials = Credentials(directory, {user: secrets.token_hex(16) for user in _GROUPS})
    _openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"),
        *("-subj", "/CN=kube-apiserver", "-addext", f"subjectAltName={_NAMES}", "-days", "30"),
        *("-keyout", credentials.certificate_key, "-out", credentials.certificate),
    )
    _openssl(
        *("ecparam", "-name", "prime256v1", "-genkey", "-noout"),
        *("-out", credentials.service_account_key),
    )
    credentials.token_file.write_text(
        "".join(
            f'{token},{user},{user},"{_GROUPS[user]}"\n'
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
