"""What the images are made of, and the name that this gives to a build of one."""

import hashlib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BASE = "docker.io/library/python:3.11-slim-bookworm"
"""The image that both Dockerfiles begin with."""
_PROJECT = ("LICENSE", "pyproject.toml", "uv.lock")
_TRAINER_INPUTS = (
    *_PROJECT,
    "environments/vllm",
    "hack/images/requirements.py",
    "trainer",
)


@dataclass(frozen=True, slots=True)
class Recipe:
    repository: str
    dockerfile: str
    target: str | None
    """The stage to build; None is the last."""
    inputs: tuple[str, ...]
    """Files and directories that the Dockerfile copies."""

    def reference(self, tag: str) -> str:
        """The name in full, as a kubelet completes the short one."""
        return f"docker.io/library/{self.repository}:{tag}"

    def key(self, root: Path, tag: str) -> str:
        """A name for what goes into a build of the checkout at `root`."""
        digest = hashlib.sha256(f"{self.reference(tag)}\0{self.target}\0".encode())
        for file in sorted(_files(root, (self.dockerfile, ".dockerignore", *self.inputs))):
            digest.update(f"{file.relative_to(root)}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
        return digest.hexdigest()[:16]


RECIPES: Mapping[str, Recipe] = {
    "operator": Recipe(
        repository="grpo-operator",
        dockerfile="Dockerfile.operator",
        target=None,
        inputs=(
            *_PROJECT,
            "operator",
            "trainer/grpo_trainer/__init__.py",
            "trainer/grpo_trainer/spec",
        ),
    ),
    "consumer": Recipe(
        repository="grpo-trainer",
        dockerfile="Dockerfile.trainer",
        target="consumer",
        inputs=_TRAINER_INPUTS,
    ),
    "producer": Recipe(
        repository="grpo-trainer-vllm",
        dockerfile="Dockerfile.trainer",
        target="producer",
        inputs=_TRAINER_INPUTS,
    ),
}


def project_version(root: Path = ROOT) -> str:
    """The version in pyproject.toml, which is the default tag."""
    with (root / "pyproject.toml").open("rb") as file:
        version: str = tomllib.load(file)["project"]["version"]
    return version


def _files(root: Path, paths: tuple[str, ...]) -> Iterator[Path]:
    for path in paths:
        if (root / path).is_file():
            yield root / path
        else:
            every = (root / path).rglob("*")
            yield from (file for file in every if file.is_file() and file.suffix != ".pyc")
