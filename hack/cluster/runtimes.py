"""The container runtimes of a cluster's nodes, and the images in them."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from container_images import Image
from namespaces import Namespaces
from network import Node

_IMPORT_SECONDS = 900.0


@dataclass(frozen=True)
class Runtimes:
    inside: Namespaces
    nodes: Sequence[Node]

    def answers(self, node: Node) -> bool:
        """Whether the node's containerd works."""
        command = self._ctr(node, "images", "list", "--quiet")
        return subprocess.run(command, capture_output=True).returncode == 0

    def load(self, archive: Path) -> None:
        """Imports an archive of Docker or OCI into all nodes at once.

        Raises:
            RuntimeError: a node refused it; the message says why.
        """
        imports = [
            subprocess.Popen(
                self._ctr(node, "images", "import", str(archive.absolute())),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for node in self.nodes
        ]
        failures = [
            failure
            for running in imports
            for failure in [running.communicate(timeout=_IMPORT_SECONDS)[1]]
            if running.returncode != 0
        ]
        if failures:
            raise RuntimeError(f"import of {archive}: {'; '.join(failures)}")

    def load_made(self, image: Image, directory: Path) -> None:
        """Makes an image and imports it."""
        archive = image.write(directory / "image.tar")
        self.load(archive)
        archive.unlink()

    def _ctr(self, node: Node, *arguments: str) -> list[str]:
        socket = f"/run/{node.name}/containerd.sock"
        return [*self.inside.enter, "ctr", "--address", socket, "--namespace", "k8s.io", *arguments]
