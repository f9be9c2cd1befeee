"""Environment variables of a job's containers."""

from collections.abc import Mapping, Sequence

from grpo_trainer.spec import GRPOJobSpec
from grpo_trainer.spec.cluster import EnvVar

from ..clients.tokens import TOKEN_KEY
from ..model.naming import child_name
from ..model.observed import Job
from .environment_pods import environment_url, has_environment_pods
from .merge import Object
from .objects import secret_name

CONFIG_DIR = "/etc/grpo"
VOLUME_DIR = "/data"
_PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy", "grpc_proxy"})
_INTERNAL = (
    "localhost",
    "127.0.0.1",
    "::1",
    ".svc",
    ".cluster.local",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "fc00::/7",
)
"""Destinations that are never reached through a proxy: Ray's own traffic and the probes of its
pods would carry the job's token to it."""


def environment(job: Job, spec: GRPOJobSpec, defaults: Sequence[EnvVar]) -> list[Object]:
    """The chart's variables, the spec's, which override them, and ours, which override both."""
    name = child_name(job.name, job.uid)
    token = {"secretKeyRef": {"name": secret_name(job), "key": TOKEN_KEY}}
    ours: list[Object] = [
        {"name": "RAY_AUTH_MODE", "value": "token"},
        {"name": "RAY_AUTH_TOKEN", "valueFrom": token},
        {"name": "GRPO_SPEC", "value": f"{CONFIG_DIR}/spec.json"},
        {"name": "GRPO_RESOLVED_SPEC", "value": f"{CONFIG_DIR}/resolved.json"},
        {"name": "GRPO_RUN_DIR", "value": f"{VOLUME_DIR}/runs/{name}"},
        {"name": "HF_HOME", "value": f"{VOLUME_DIR}/huggingface"},
        {"name": "GRPO_CACHE", "value": f"{VOLUME_DIR}/cache"},
    ]
    if has_environment_pods(spec):
        ours.append({"name": "GRPO_ENVIRONMENT_URL", "value": environment_url(job)})
    wandb = spec.tracking.wandb
    if wandb is not None and wandb.secret_name is not None:
        key = {"name": wandb.secret_name, "key": "WANDB_API_KEY"}
        ours.append({"name": "WANDB_API_KEY", "valueFrom": {"secretKeyRef": key}})
    theirs = {variable.name: variable.plain() for variable in (*defaults, *spec.env)}
    merged = theirs | _without_proxy(theirs) | {variable["name"]: variable for variable in ours}
    return list(merged.values())


def _without_proxy(variables: Mapping[str, Object]) -> dict[str, Object]:
    """NO_PROXY in both spellings, if any variable names a proxy."""
    if not any(name.lower() in _PROXIES for name in variables):
        return {}
    given = [
        variables[name].get("value") or "" for name in ("NO_PROXY", "no_proxy") if name in variables
    ]
    entries = [entry.strip() for value in given for entry in value.split(",") if entry.strip()]
    value = ",".join(dict.fromkeys([*entries, *_INTERNAL]))
    return {name: {"name": name, "value": value} for name in ("NO_PROXY", "no_proxy")}
