"""The way to the API server: in a pod by its service account, elsewhere by a kubeconfig."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml
from kubernetes.aio import client, config
from kubernetes.aio.config.incluster_config import SERVICE_TOKEN_FILENAME

_CHECK = "check it with `kubectl config view`"


class ConfigurationError(Exception):
    """Where the API server is, or as whom to ask it, is not said: a person has to mend it."""


@asynccontextmanager
async def api_client() -> AsyncIterator[client.ApiClient]:
    """A client of the API server, which need not answer yet. Raises ConfigurationError."""
    configuration = client.Configuration()
    # Like kopf's watches, which know no proxy of the environment: to ask for one at each call costs
    # two threads. One of the kubeconfig is used.
    configuration.client_session_kwargs = {"trust_env": False}
    try:
        config.load_incluster_config(configuration)
        configuration.refresh_api_key_hook = _read_token
        source = "the service account"
    except config.ConfigException as error:
        source = await _load_kubeconfig(configuration, f"{error}".rstrip("."))
    except OSError as error:
        raise ConfigurationError(f"the service account cannot be read: {error}") from error
    try:
        api = client.ApiClient(configuration)
    except (OSError, ValueError) as error:  # it reads the certificates
        raise ConfigurationError(f"{source}: its certificates are not legal: {error}") from error
    async with api:
        yield api


async def _load_kubeconfig(configuration: client.Configuration, no_pod: str) -> str:
    """Returns its name; `no_pod` is why there is no service account."""
    files = os.environ.get("KUBECONFIG", "~/.kube/config")
    if not any(Path(name).expanduser().exists() for name in files.split(os.pathsep) if name):
        raise ConfigurationError(
            f"no cluster: there is neither a kubeconfig {files!r} nor a pod's service account "
            f"({no_pod}): set KUBECONFIG to a file that exists, or run in a pod"
        )
    source = f"kubeconfig {files}"
    try:
        await config.load_kube_config(client_configuration=configuration, persist_config=False)
    except (AttributeError, KeyError, TypeError) as error:  # the library checks little of its shape
        text = f"{source}: clusters, contexts or users are missing or of a wrong shape"
        raise ConfigurationError(f"{text}; {_CHECK}") from error
    except (config.ConfigException, OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{source}: {' '.join(f'{error}'.split())}; {_CHECK}") from error
    if not configuration.host:
        raise ConfigurationError(f"{source}: the current context's cluster has no server; {_CHECK}")
    return source


def _read_token(configuration: client.Configuration) -> None:
    """For each call, since the kubelet renews the token while it is used."""
    configuration.api_key["BearerToken"] = f"bearer {Path(SERVICE_TOKEN_FILENAME).read_text()}"
