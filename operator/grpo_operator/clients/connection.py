"""Access to the API server: a pod's service account, or a kubeconfig."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml
from kubernetes.aio import client, config
from kubernetes.aio.config.incluster_config import SERVICE_TOKEN_FILENAME

DEFAULT_KUBECONFIG = "~/.kube/config"
_CHECK = "check it with `kubectl config view`"


class ConfigurationError(Exception):
    """The address or the credentials of the API server are missing or invalid."""


def kubeconfig_exists(files: str) -> bool:
    """Whether any of the files of a KUBECONFIG variable exists."""
    return any(Path(name).expanduser().exists() for name in files.split(os.pathsep) if name)


@asynccontextmanager
async def api_client() -> AsyncIterator[client.ApiClient]:
    """A client for a server process: the service account of its pod, else the kubeconfig.

    Nothing is sent yet. Raises ConfigurationError.
    """
    configuration = client.Configuration()
    # kopf's watches ignore the proxies of the environment too, and asking for one costs two
    # threads a call. A proxy that the kubeconfig names is used.
    configuration.client_session_kwargs = {"trust_env": False}
    try:
        load_service_account(configuration)
        source = "the service account"
    except config.ConfigException as error:
        source = await _load_default_kubeconfig(configuration, f"{error}".rstrip("."))
    async with open_client(configuration, source) as api:
        yield api


@asynccontextmanager
async def open_client(
    configuration: client.Configuration, source: str
) -> AsyncIterator[client.ApiClient]:
    """A client with a loaded configuration. Raises ConfigurationError that names its source."""
    try:
        api = client.ApiClient(configuration)
    except (OSError, ValueError) as error:  # it reads the certificates
        raise ConfigurationError(f"{source}: invalid certificates: {error}") from error
    async with api:
        yield api


def load_service_account(configuration: client.Configuration) -> None:
    """Use the service account of this pod.

    Raises ConfigException outside a pod, and ConfigurationError if its files cannot be read.
    """
    try:
        config.load_incluster_config(configuration)
    except OSError as error:
        raise ConfigurationError(f"cannot read the service account: {error}") from error
    configuration.refresh_api_key_hook = _read_token


async def load_kubeconfig(
    configuration: client.Configuration, files: str, context: str | None = None
) -> str:
    """Use a context of a kubeconfig, by default its current one; returns its namespace.

    Raises ConfigurationError that names the files and the fault.
    """
    source = f"kubeconfig {files}"
    try:
        loader = await config.load_kube_config(
            config_file=files,
            context=context,
            client_configuration=configuration,
            persist_config=False,
        )
        namespace = loader.current_context.get("context", {}).get("namespace")
    except (AttributeError, KeyError, TypeError) as error:  # the library checks little of its shape
        text = f"{source}: clusters, contexts or users are missing or malformed"
        raise ConfigurationError(f"{text}; {_CHECK}") from error
    except (config.ConfigException, OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{source}: {' '.join(f'{error}'.split())}; {_CHECK}") from error
    if not configuration.host:
        raise ConfigurationError(f"{source}: the context's cluster has no server; {_CHECK}")
    return str(namespace or "default")


async def _load_default_kubeconfig(configuration: client.Configuration, no_pod: str) -> str:
    """Returns its name; `no_pod` is why there is no service account."""
    files = os.environ.get("KUBECONFIG", DEFAULT_KUBECONFIG)
    if not kubeconfig_exists(files):
        raise ConfigurationError(
            f"no cluster: found neither a kubeconfig {files!r} nor a pod's service account "
            f"({no_pod}): set KUBECONFIG to a file that exists, or run in a pod"
        )
    await load_kubeconfig(configuration, files)
    return f"kubeconfig {files}"


def _read_token(configuration: client.Configuration) -> None:
    """For each call, because the kubelet renews the token while it is used."""
    configuration.api_key["BearerToken"] = f"bearer {Path(SERVICE_TOKEN_FILENAME).read_text()}"
