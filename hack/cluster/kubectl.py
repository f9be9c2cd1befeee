"""What bringing up a cluster with real nodes asks of kubectl."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

# Some definitions are too large for the annotation that applying on the client's side leaves.
_APPLY = ("apply", "--server-side", "--force-conflicts")


@dataclass(frozen=True)
class Kubectl:
    kubeconfig: Path

    def apply(self, manifests: str) -> None:
        """Applies the objects of YAML documents.

        Raises:
            RuntimeError: one was refused; the message holds the answer.
        """
        self._run(*_APPLY, "-f", "-", given=manifests)

    def apply_kustomization(self, directory: Path) -> None:
        """Applies what the kustomization in `directory` gives."""
        self._run(*_APPLY, "-k", str(directory))

    def claim_accelerators(self, node: str, count: int) -> None:
        """Lets a node offer accelerators that it does not have."""
        path = "/status/capacity/nvidia.com~1gpu"
        patch = json.dumps([{"op": "add", "path": path, "value": str(count)}])
        self._run("patch", "node", node, "--subresource=status", "--type=json", "-p", patch)

    def wait(self, what: str, condition: str, seconds: float, namespace: str = "default") -> None:
        """Watches until `condition` holds of `what`, such as `deployment/name` or `node --all`.

        Raises:
            RuntimeError: not within `seconds`.
        """
        deadline = f"--timeout={max(1, int(seconds))}s"
        self._run("wait", f"--for={condition}", deadline, "-n", namespace, *what.split())

    def _run(self, *arguments: str, given: str | None = None) -> None:
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(command, input=given, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"kubectl {arguments[0]}: {done.stderr.strip()}")
