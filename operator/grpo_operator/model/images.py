"""The images of a run: which its pods run, and by which digest later pods of it are pinned."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from grpo_trainer.spec import GRPOJobSpec, ImageStatus
from grpo_trainer.spec.cluster import PodPoolSpec

from .naming import CONTAINER
from .observed import Observed, Pod, Role

_DIGEST = re.compile(r"(?:[a-z-]+://)?([^@]+)@(sha256:[0-9a-f]{64})")
"""An image ID of a kubelet that names where it was pulled from; others name a local image."""


def pool_of(spec: GRPOJobSpec, role: Role) -> PodPoolSpec:
    """The pods of a role in the spec."""
    pools = {Role.HEAD: spec.head, Role.CONSUMER: spec.consumers, Role.PRODUCER: spec.producers}
    return pools[role]


def requested_image(pool: PodPoolSpec) -> str | None:
    """The image that a spec requests, by `image` or by its pod template; None for the default."""
    containers = (pool.pod_template.get("spec") or {}).get("containers") or ()
    patched = (c.get("image") for c in containers if c.get("name") == CONTAINER)
    return next(filter(None, patched), pool.image)


def find_image(images: Iterable[ImageStatus], role: Role) -> ImageStatus | None:
    """The recorded image of a role."""
    return next((image for image in images if image.role == role), None)


def pinned(image: ImageStatus) -> str:
    """The reference by digest, or as it was requested while no digest is known."""
    return f"{_repository(image.image)}@{image.digest}" if image.digest else image.image


def recorded_images(observed: Observed) -> tuple[ImageStatus, ...]:
    """The images of the status, with what the pods run.

    A record changes only when the pods run another image than it names, as after an edit of a
    suspended job.
    """
    found = (_recorded(observed, role) for role in Role)
    return tuple(image for image in found if image is not None)


def _recorded(observed: Observed, role: Role) -> ImageStatus | None:
    known = find_image(observed.job.status.images, role)
    pods = [pod for pod in observed.own_pods if pod.role is role and pod.image]
    if not pods or observed.job.spec is None:
        return known
    same = [pod for pod in pods if known and pod.image in (known.image, pinned(known))]
    if known is not None and same:
        digest = known.digest or _digest(known.image, same)
        return known if digest is None else known.model_copy(update={"digest": digest})
    image = str(pods[0].image)
    requested = requested_image(pool_of(observed.job.spec, role))
    return ImageStatus(
        role=role, image=image, digest=_digest(image, pods), from_spec=requested is not None
    )


def _digest(image: str, pods: Iterable[Pod]) -> str | None:
    """The digest of an image, if it was pulled from the repository that its reference names: in
    another one the same image may have another digest."""
    for pod in pods:
        match = _DIGEST.fullmatch(pod.image_id or "")
        if match is not None and _canonical(match[1]) == _canonical(_repository(image)):
            return match[2]
    return None


def _repository(reference: str) -> str:
    """A reference without tag and digest."""
    name = reference.partition("@")[0]
    path, colon, tag = name.rpartition(":")
    return path if colon and "/" not in tag else name


def _canonical(repository: str) -> str:
    """With the registry, as containerd writes it."""
    first, slash, _ = repository.partition("/")
    if not slash:
        return f"docker.io/library/{repository}"
    registry = "." in first or ":" in first or first == "localhost"
    return repository if registry else f"docker.io/{repository}"


def with_pinned_image(template: Mapping[str, Any], image: ImageStatus | None) -> dict[str, Any]:
    """The pod template whose container runs the recorded image by its digest."""
    spec = template["spec"]
    containers = [
        {**container, "image": pinned(image)}
        if image is not None
        and container["name"] == CONTAINER
        and container.get("image") == image.image
        else container
        for container in spec["containers"]
    ]
    return {**template, "spec": {**spec, "containers": containers}}
