"""The objects beside a cluster: the claim, the spec for the trainer, Ray's token."""

import json
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from grpo_trainer.spec import API_VERSION, KIND, GRPOJob, Metadata, resolved_spec
from grpo_trainer.spec.cluster import Retention

from ..clients.tokens import TOKEN_KEY
from ..model.naming import child_name, job_labels
from ..model.observed import Job
from .merge import Object

_DIGEST_DIGITS = 10


def metadata(
    job: Job,
    *,
    owned: bool = True,
    content: Any = None,
) -> Object:
    """Name, labels and owner of a child. Kubernetes deletes owned children with their job.

    With `content` the name has a digest of it: another content is another object, so that the
    operator needs no right to update any.
    """
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    common: Object = {
        "name": child_name(job.name, job.uid) + (f"-{_digest(content)}" if content else ""),
        "namespace": job.namespace,
        "labels": job_labels(job.name, job.uid),
    }
    return common | ({"ownerReferences": [owner]} if owned else {})


def claim(job: Job) -> Object | None:
    """The claim to create, which outlives the job by default; None when the spec names one."""
    storage = job.spec.storage if job.spec is not None else None
    if storage is None or storage.size is None:
        return None
    name = storage.storage_class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(job, owned=storage.retention is Retention.DELETE),
        "spec": {
            "accessModes": [str(mode) for mode in storage.access_modes],
            "resources": {"requests": {"storage": storage.size}},
            **({"storageClassName": name} if name is not None else {}),
        },
    }


def config_map(job: Job) -> Object:
    """The manifest for the trainer, as given and with all defaults, and the scripts of the
    pods' hooks.

    Immutable: its name is its digest.
    """
    assert job.spec is not None
    metadata_ = Metadata(name=job.name, namespace=job.namespace)
    manifest = GRPOJob(metadata=metadata_, spec=job.spec)
    resolved = GRPOJob(metadata=metadata_, spec=resolved_spec(job.spec))
    data = {
        # Without defaults, as trainers up to 0.1.0 read it, to which later fields are unknown.
        "spec.json": json.dumps(manifest.to_manifest(), indent=1, sort_keys=True),
        "resolved.json": json.dumps(resolved.plain(), indent=1, sort_keys=True),
        "drain.py": _script("drain.py"),
        "collect.py": _script("collect.py"),
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(job, content=data),
        "immutable": True,
        "data": data,
    }


@cache
def _script(name: str) -> str:
    return files(__package__).joinpath(name).read_text()


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True)
    return sha256(text.encode()).hexdigest()[:_DIGEST_DIGITS]


def secret_name(job: Job) -> str:
    """Name of the Secret with the token. That of earlier releases had no suffix."""
    return f"{child_name(job.name, job.uid)}-token"


def secret(job: Job, token: str) -> Object:
    """The token of the job's Ray, for its pods."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(job) | {"name": secret_name(job)},
        "type": "Opaque",
        "immutable": True,
        "stringData": {TOKEN_KEY: token},
    }
