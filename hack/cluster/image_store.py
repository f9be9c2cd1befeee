"""Container images unpacked once and kept outside the checkout, for the nodes of every cluster.

A node begins with copies of the store's two databases and with links to its layers, which nobody
writes to: images of many gigabytes cost neither the time nor the disk of a second copy.
"""

import fcntl
import hashlib
import json
import shutil
import string
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from namespaces import Namespaces
from nodes import containerd_configuration

_NAME = "image-store"
_IMPORT_SECONDS = 1800.0
_SHARED = (
    "io.containerd.content.v1.content/blobs/sha256",
    "io.containerd.snapshotter.v1.overlayfs/snapshots",
)
_COPIED = (
    "io.containerd.metadata.v1.bolt/meta.db",
    "io.containerd.snapshotter.v1.overlayfs/metadata.db",
)
# The daemon runs only while it imports: the databases are copied when nobody has them open.
_IMPORT = string.Template(
    """
set -eu
umask 022
containerd --config $configuration >$log 2>&1 &
daemon=$$!
trap 'kill $$daemon; wait $$daemon' EXIT
images() { ctr --address /run/$name/containerd.sock --namespace k8s.io images "$$@"; }
timeout 30 sh -c 'until ctr --address /run/$name/containerd.sock version; do sleep 0.1; done'
for archive in "$$@"; do images import "$$archive"; done
"""
)


@dataclass(frozen=True)
class ImageStore:
    directory: Path

    @property
    def _containerd(self) -> Path:
        return self.directory / "containerd"

    @property
    def _held(self) -> Path:
        """The record of what has been imported: a digest by image name."""
        return self.directory / "images.json"

    def add(self, archives: Sequence[Path], inside: Namespaces) -> None:
        """Imports the archives whose images the store does not hold.

        An image of the same name as another takes its place, and the other's layers are removed.

        Args:
            inside: where containerd can run.

        Raises:
            RuntimeError: an archive was refused.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            held = json.loads(self._held.read_text()) if self._held.exists() else {}
            found = {archive: _identity(archive) for archive in archives}
            missing = [a for a in archives if found[a].items() - held.items()]
            if missing:
                configuration = containerd_configuration(self.directory, _NAME)
                log = self.directory / "containerd.log"
                script = _IMPORT.substitute(configuration=configuration, log=log, name=_NAME)
                paths = [str(archive.absolute()) for archive in missing]
                inside.run("sh", "-c", script, _NAME, *paths, seconds=_IMPORT_SECONDS)
                for archive in missing:
                    held |= found[archive]
                self._held.write_text(json.dumps(held, indent=1))

    def clone(self, root: Path) -> None:
        """Makes `root`, a node's containerd root, hold what the store holds."""
        for place in _SHARED:
            (root / place).mkdir(parents=True)
            for entry in (self._containerd / place).iterdir():
                (root / place / entry.name).symlink_to(entry)
        for file in _COPIED:
            (root / file).parent.mkdir(exist_ok=True)
            shutil.copyfile(self._containerd / file, root / file)


def _identity(archive: Path) -> dict[str, str]:
    """The names of the images in an archive, each with a digest of what it is.

    Raises:
        RuntimeError: it is no archive of Docker's format.
    """
    try:
        with tarfile.open(archive, "r:") as tar:
            listing = tar.extractfile("manifest.json")
            assert listing is not None
            images = json.load(listing)
    except (tarfile.TarError, KeyError) as error:
        raise RuntimeError(f"{archive} is no image archive as `docker save` writes it") from error
    return {
        name: hashlib.sha256(json.dumps(image).encode()).hexdigest()
        for image in images
        for name in image["RepoTags"]
    }
