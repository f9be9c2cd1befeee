"""Built images: layers in buildah's store, and an archive of each, outside the checkout."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import base
from containers import Tools, install_missing
from recipes import RECIPES, ROOT, project_version

_BUILD_SECONDS = 3600.0
_SAVE_SECONDS = 900.0
_STORE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Store:
    """A docker-archive is uncompressed: quick to write and to load, and a file of its own."""

    directory: Path

    @classmethod
    def in_cache(cls) -> Self:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return cls(Path(home) / "grpo-operator" / "images")

    @property
    def tools(self) -> Tools:
        return Tools(self.directory)

    def archive(self, name: str, tag: str) -> Path:
        """The archive of an image as the checkout describes it now.

        Raises:
            FileNotFoundError: it has not been built.
        """
        link = self._link(name, tag)
        if not link.exists():
            raise FileNotFoundError(
                f"{RECIPES[name].repository}:{tag} is not built from these files: "
                f"run `hack/images/images.py build {name}` first"
            )
        return link.resolve()

    def build(self, name: str, tag: str) -> Path:
        """Builds what `archive` names, unless it is there. Appears whole or not at all.

        Raises:
            FileNotFoundError: a program that this needs cannot be installed.
            RuntimeError: there is no base image, and none can be made.
            subprocess.CalledProcessError: the build failed; it has said why.
        """
        with self._locked():
            link = self._link(name, tag)
            while not link.exists():
                install_missing()
                self.tools.configure()
                base.ensure(self.tools)
                image = self._image(name, tag)
                if (now := self._link(name, tag)) != link:
                    link = now  # a file was edited meanwhile: nobody knows which state went in
                    continue
                archive = self._save(name, tag, image)
                link.unlink(missing_ok=True)
                link.symlink_to(archive)
            return link.resolve()

    def load(self, name: str, tag: str) -> str:
        """Has an image in the store, from its archive if need be; returns its name there.

        Raises:
            FileNotFoundError: it has not been built.
        """
        archive, reference = self.archive(name, tag), RECIPES[name].reference(tag)
        install_missing()
        self.tools.configure()
        # The store may hold another checkout's build under this name.
        image = archive.stem.rpartition("-")[2]
        code, found = self.tools.outcome(
            ["podman", "image", "inspect", "--format={{.Id}}", reference], timeout=_STORE_SECONDS
        )
        if code != 0 or not found.startswith(image):
            self.tools.run(
                "podman", "load", "--quiet", "--input", str(archive), timeout=_SAVE_SECONDS
            )
        return reference

    def _image(self, name: str, tag: str) -> str:
        """Runs the build; returns the image's id."""
        recipe = RECIPES[name]
        stage = [] if recipe.target is None else [f"--target={recipe.target}"]
        identity = self.directory / "identity"
        self.tools.show(
            *["buildah", "build", "--layers", "--pull-never", "--iidfile", str(identity), *stage],
            f"--file={recipe.dockerfile}",
            f"--ignorefile={ROOT / '.dockerignore'}",
            f"--build-arg=VERSION={project_version()}",
            f"--tag={recipe.reference(tag)}",
            ".",
            cwd=ROOT,
            timeout=_BUILD_SECONDS,
        )
        return identity.read_text().removeprefix("sha256:")[:12]

    def _save(self, name: str, tag: str, image: str) -> Path:
        """Writes an image's archive, unless an equal build has left one."""
        recipe = RECIPES[name]
        archive = self.directory / f"{recipe.repository}-{tag}-{image}.tar"
        if not archive.exists():
            self._forget_all(name, tag)
            unfinished = archive.with_suffix(".unfinished")
            unfinished.unlink(missing_ok=True)
            target = f"docker-archive:{unfinished}:{recipe.reference(tag)}"
            self.tools.run("buildah", "push", "--quiet", image, target, timeout=_SAVE_SECONDS)
            unfinished.rename(archive)
        return archive

    def _forget_all(self, name: str, tag: str) -> None:
        """Removes an image's archives before a new one is written: they are large."""
        for archive in self.directory.glob(f"{RECIPES[name].repository}-{tag}-{'?' * 12}.tar"):
            archive.unlink()
        for link in self.directory.glob(f"{name}-*"):
            if not link.exists():
                link.unlink()

    def _link(self, name: str, tag: str) -> Path:
        return self.directory / f"{name}-{RECIPES[name].key(ROOT, tag)}"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
