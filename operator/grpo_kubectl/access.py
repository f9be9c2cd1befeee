"""The cluster, user and namespace of a command, found as kubectl finds them."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from kubernetes.aio import client

from grpo_operator.clients.connection import (
    DEFAULT_KUBECONFIG,
    ConfigurationError,
    kubeconfig_exists,
    load_kubeconfig,
    load_service_account,
    open_client,
)
from grpo_operator.clients.kube import Kube

_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True)
class Access:
    """The options that kubectl has too."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """A connection to the API server, and the namespace of the command."""

    kube: Kube
    namespace: str


@asynccontextmanager
async def connect(access: Access) -> AsyncIterator[Session]:
    """The API server by kubeconfig, or in a pod by its service account.

    Unlike the operator, a kubeconfig comes first, its file and context are options, and the
    proxies of the environment are used. Raises ConfigurationError.
    """
    configuration = client.Configuration()
    files = access.kubeconfig or os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG
    if kubeconfig_exists(files):
        found = await load_kubeconfig(configuration, files, access.context)
        source = f"kubeconfig {files}"
    elif access.kubeconfig is None and access.context is None and _OWN_NAMESPACE.exists():
        load_service_account(configuration)
        found, source = _OWN_NAMESPACE.read_text().strip(), "the service account"
    else:
        raise ConfigurationError(
            f"no cluster: {files} does not exist; set KUBECONFIG or use --kubeconfig"
        )
    async with open_client(configuration, source) as api:
        yield Session(Kube(api), access.namespace or found)
