"""Which cluster, as whom, and in which namespace: as kubectl finds it."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from kubernetes.aio import client, config

from .api import Api
from .errors import CommandError

_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_DEFAULT_FILE = "~/.kube/config"


@dataclass(frozen=True, slots=True)
class Access:
    """The options that kubectl has too."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None


@asynccontextmanager
async def connect(access: Access) -> AsyncIterator[Api]:
    """The API server, by kubeconfig or in a pod by its service account. Raises CommandError."""
    configuration = client.Configuration()
    files = access.kubeconfig or os.environ.get("KUBECONFIG") or os.path.expanduser(_DEFAULT_FILE)
    if any(Path(name).exists() for name in files.split(os.pathsep) if name):
        found = await _from_files(files, access.context, configuration)
    elif access.kubeconfig is None and access.context is None and _OWN_NAMESPACE.exists():
        config.load_incluster_config(client_configuration=configuration)
        found = _OWN_NAMESPACE.read_text().strip()
    else:
        raise CommandError(f"no cluster: there is no {files}; give --kubeconfig or set KUBECONFIG")
    async with client.ApiClient(configuration) as api:
        yield Api(api, access.namespace or found)


async def _from_files(files: str, context: str | None, configuration: client.Configuration) -> str:
    """Sets up the configuration; returns the context's namespace."""
    try:
        loader = await config.load_kube_config(
            config_file=files,
            context=context,
            client_configuration=configuration,
            persist_config=False,
        )
    except (AttributeError, TypeError) as error:  # the library checks some of its shape only
        raise CommandError(f"kubeconfig {files}: this is no kubeconfig") from error
    except (config.ConfigException, OSError, yaml.YAMLError) as error:
        raise CommandError(f"kubeconfig {files}: {' '.join(str(error).split())}") from error
    chosen = loader.current_context.get("context", {})
    return str(chosen.get("namespace") or "default")
