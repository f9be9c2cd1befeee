"""What a cluster needs beside it: the claim, the spec as the trainer reads it, Ray's token."""

import json
from collections.abc import Mapping
from importlib.resources import files

from grpo_trainer.spec import API_VERSION, KIND, GRPOJob, Metadata
from grpo_trainer.spec.cluster import Retention

from ..model.naming import child_name, job_labels
from ..model.observed import Job
from .merge import Object
from .pods import TOKEN_KEY


def metadata(job: Job, *, labels: Mapping[str, str] | None = None, owned: bool = True) -> Object:
    """Name, labels and owner of a child. Owned children are deleted by Kubernetes itself."""
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    common: Object = {
        "name": child_name(job.name, job.uid),
        "namespace": job.namespace,
        "labels": dict(labels or job_labels(job.name, job.uid)),
    }
    return common | ({"ownerReferences": [owner]} if owned else {})


def claim(job: Job) -> Object | None:
    """The claim to create; None when the job brings its own. It outlives the job unless asked."""
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
    """The manifest that the trainer follows, and the script that drains it."""
    assert job.spec is not None
    manifest = GRPOJob(metadata=Metadata(name=job.name, namespace=job.namespace), spec=job.spec)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(job),
        "data": {
            "spec.json": json.dumps(manifest.to_manifest(), indent=1, sort_keys=True),
            "drain.py": files(__package__).joinpath("drain.py").read_text(),
        },
    }


def secret(job: Job, token: str) -> Object:
    """The token without which Ray's dashboard would run anybody's code."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(job),
        "type": "Opaque",
        "immutable": True,
        "stringData": {TOKEN_KEY: token},
    }
