"""The operator's own settings, from its environment."""

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from .access import NetworkAccess
from .defaults import JobDefaults

DASHBOARD_PORT = 8265
DRIVER_PORT = 9464
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Images:
    """Default images of the pods, and the Ray in them."""

    trainer: str = "grpo-trainer:latest"
    """Head, consumers, and producers of the transformers backend, with ColossalAI."""
    vllm: str = "grpo-trainer-vllm:latest"
    """Producers of the vllm backend; with consumers by FSDP all pods."""
    ray_version: str = "2.60.0"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of this replica of the operator."""

    images: Images = Images()
    namespaces: tuple[str, ...] = ()
    """Namespaces to serve; all when empty."""
    head_url_template: str = "http://{service}.{namespace}.svc:{port}"
    """Base URL of a head's port; outside a cluster Services have no DNS names."""
    identity: str = "grpo-operator"
    """Name of this replica in the Lease."""
    lease_namespace: str = "default"
    lease_name: str = "grpo-operator"
    leader_election: bool = True
    listen_port: int = 8080
    """Port of /metrics, /healthz and /readyz."""
    log_format: str = "json"
    log_level: str = "INFO"
    concurrency: int = 32
    """Concurrent calls to the API server."""
    status_seconds: int = 15
    """Minimum time between two writes of a job's status for progress alone."""
    network_access: NetworkAccess | None = None
    """Peers that may connect to the pods of a job; None creates no NetworkPolicy."""

    defaults: JobDefaults = field(default_factory=JobDefaults)
    """Defaults for the pods of all jobs."""

    def head_url(self, namespace: str, service: str, port: int) -> str:
        """Base URL of one port of a head."""
        return self.head_url_template.format(namespace=namespace, service=service, port=port)

    @property
    def release(self) -> str:
        """Name of this release among all of a cluster; its replicas share it."""
        return f"{self.lease_namespace}/{self.lease_name}"

    @classmethod
    def from_environment(cls, env: Mapping[str, str] = os.environ) -> "Settings":
        """Read GRPO_* and POD_* variables.

        Raises ValueError that names the variable, its value and what it must be.
        """
        own = cls()
        images = Images(
            trainer=_text(env, "GRPO_TRAINER_IMAGE", own.images.trainer),
            vllm=_text(env, "GRPO_VLLM_IMAGE", own.images.vllm),
            ray_version=_text(env, "GRPO_RAY_VERSION", own.images.ray_version),
        )
        return cls(
            images=images,
            namespaces=_namespaces(env),
            head_url_template=_template(env, own.head_url_template),
            identity=env.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}",
            lease_namespace=_text(env, "POD_NAMESPACE", own.lease_namespace),
            lease_name=_text(env, "GRPO_LEASE_NAME", own.lease_name),
            leader_election=_choice(env, "GRPO_LEADER_ELECTION", ("true", "false")) == "true",
            listen_port=_number(env, "GRPO_LISTEN_PORT", own.listen_port, most=65535),
            log_format=_choice(env, "GRPO_LOG_FORMAT", ("json", "plain")),
            log_level=_choice(env, "GRPO_LOG_LEVEL", ("INFO", "DEBUG", "WARNING", "ERROR")),
            concurrency=_number(env, "GRPO_CONCURRENCY", own.concurrency, least=1),
            status_seconds=_number(env, "GRPO_STATUS_SECONDS", own.status_seconds),
            network_access=NetworkAccess.parse(
                "GRPO_NETWORK_POLICY", env.get("GRPO_NETWORK_POLICY", "")
            ),
            defaults=JobDefaults.parse("GRPO_JOB_DEFAULTS", env.get("GRPO_JOB_DEFAULTS", "")),
        )


def _choice(env: Mapping[str, str], name: str, legal: tuple[str, ...]) -> str:
    value = env.get(name, legal[0])
    if value not in legal:
        raise ValueError(f"{name}: Invalid value: {value!r}: must be one of {', '.join(legal)}")
    return value


def _text(env: Mapping[str, str], name: str, default: str) -> str:
    value = env.get(name, default)
    if not value.strip():
        raise ValueError(
            f"{name}: Invalid value: {value!r}: must not be empty; unset it for the default"
        )
    return value


def _namespaces(env: Mapping[str, str]) -> tuple[str, ...]:
    name = "GRPO_NAMESPACES"
    value = env.get(name, "")
    names = tuple(part.strip() for part in value.split(",") if part.strip())
    if not all(map(_NAMESPACE.fullmatch, names)):
        must = "must be names of namespaces, separated by commas"
        raise ValueError(f"{name}: Invalid value: {value!r}: {must}")
    return names


def _number(
    env: Mapping[str, str], name: str, default: int, *, least: int = 0, most: int | None = None
) -> int:
    value = env.get(name, str(default))
    legal = f"at least {least}" + (f" and at most {most}" if most is not None else "")
    if not value.isdecimal() or int(value) < least or (most is not None and int(value) > most):
        raise ValueError(f"{name}: Invalid value: {value!r}: must be an integer, {legal}")
    return int(value)


def _template(env: Mapping[str, str], default: str) -> str:
    name = "GRPO_HEAD_URL_TEMPLATE"
    value = env.get(name, default)
    try:
        url = value.format(service="s", namespace="n", port=1)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):
        url = ""
    if not url.startswith(("http://", "https://")):
        fields = "{service}, {namespace} and {port}"
        must = f"must be an http(s) URL with {fields}"
        raise ValueError(f"{name}: Invalid value: {value!r}: {must}")
    return value
