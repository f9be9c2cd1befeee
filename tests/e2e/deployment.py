"""The product as users install it: by its chart, controlled with kubectl."""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kube.harness import HACK, Object

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "grpo-operator"
RELEASE = "grpo-operator"
RELEASE_NAMESPACE = "grpo-system"
OPERATOR = f"deployment/{RELEASE}"
OPERATOR_SELECTOR = f"app.kubernetes.io/name={RELEASE}"
TOOLBOX = "localhost/busybox:1"
"""An image with a shell that every node has."""
_COMMAND_SECONDS = 240


@dataclass(frozen=True)
class Deployment:
    """A cluster with real nodes and the chart in it."""

    state: Path
    """The cluster's state directory."""
    helm: Path

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return _kubeconfig(self.state)

    @property
    def models(self) -> Path:
        """Where jobs that do not make their own keep the built-in model."""
        return self.state / "cache"

    @property
    def environment(self) -> dict[str, str]:
        """A user's: the kubeconfig is set, and kubectl finds its plugin on the PATH."""
        plugins = Path(sys.executable).parent
        path = f"{plugins}{os.pathsep}{os.environ['PATH']}"
        return os.environ | {"KUBECONFIG": str(self.kubeconfig), "PATH": path}

    def component_logs(self) -> str:
        """The end of the log of every component of the cluster."""
        return _cluster("logs", self.state)

    def kubectl(self, *arguments: str, given: Object | str | None = None) -> str:
        """What kubectl prints.

        Args:
            given: its standard input, for `-f -`.

        Raises:
            AssertionError: it failed; the message is what it said.
        """
        text = given if isinstance(given, str | None) else json.dumps(given)
        return self._run(["kubectl", *arguments], text)

    def install(self, *options: str) -> None:
        """Installs or upgrades the chart and waits until the operator is ready."""
        self.models.mkdir(exist_ok=True)
        self.models.chmod(0o777)
        self.run_helm(
            *("upgrade", "--install", RELEASE, str(CHART), "--create-namespace"),
            *("--wait", "--timeout=180s", *options),
        )

    def run_helm(self, *arguments: str) -> str:
        return self._run([str(self.helm), "--namespace", RELEASE_NAMESPACE, *arguments], None)

    def in_pod(self, namespace: str, pod: str, script: str) -> str:
        """What a shell script prints inside a pod."""
        return self.kubectl("exec", "-n", namespace, pod, "--", "sh", "-c", script)

    def start_toolbox(self, namespace: str, name: str, **labels: str) -> None:
        """Starts a pod with a shell and waits until it is ready."""
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": TOOLBOX, "command": ["sleep", "100000"]}],
            },
        }
        self.kubectl("apply", "-f", "-", given=pod)
        self.kubectl("wait", f"pod/{name}", "-n", namespace, "--for=condition=Ready")

    def reaches(self, namespace: str, pod: str, url: str) -> bool:
        """Whether a pod with a shell gets any answer from a URL."""
        ask = f"timeout 5 wget -q -O /dev/null {url} 2>&1"
        output = self.in_pod(namespace, pod, f"{ask} && echo answered || true")
        return "answered" in output or "server returned error" in output

    def volume(self, namespace: str, claim: str) -> Path:
        """The directory of this machine that is a claim's volume."""
        volume = self.kubectl(
            "get", "pvc", claim, "-n", namespace, "-o=jsonpath={.spec.volumeName}"
        )
        spec = json.loads(self.kubectl("get", "pv", volume, "-o=jsonpath={.spec}"))
        source = spec.get("local") or spec["hostPath"]
        return Path(source["path"])

    def run_directory(self, job: Object) -> Path:
        """Where a job's run writes, as seen from this machine."""
        meta = job["metadata"]
        name = f"{meta['name']}-{meta['uid'][:8]}"
        return self.volume(meta["namespace"], name) / "runs" / name

    def account(self, namespace: str) -> str:
        """All that there is to say when a test of this namespace has failed."""
        head = "ray.io/node-type=head"
        driver = "tail -n 80 /tmp/ray/session_latest/logs/job-driver-*.log"
        commands = {
            "jobs": ["describe", "grpo", "-n", namespace],
            "pods": ["describe", "pods", "-n", namespace],
            "events": ["get", "events", "-n", namespace, "--sort-by=.lastTimestamp"],
            "operator": ["logs", "-n", RELEASE_NAMESPACE, f"-l={OPERATOR_SELECTOR}", "--tail=80"],
        }
        output = [f"===== {name} =====\n{self._try(command)}" for name, command in commands.items()]
        names = self._try(["get", "pods", "-n", namespace, f"-l={head}", "-o=name"])
        for pod in names.split():
            logs = self._try(["exec", "-n", namespace, pod, "--", "sh", "-c", driver])
            output.append(f"===== driver in {pod} =====\n{logs}")
        return "\n".join(output)

    def _run(self, command: Sequence[str], text: str | None) -> str:
        done = self._outcome(command, text)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    def _try(self, arguments: Sequence[str]) -> str:
        done = self._outcome(["kubectl", *arguments], None)
        return done.stdout + done.stderr

    def _outcome(
        self, command: Sequence[str], text: str | None
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            env=self.environment,
        )


@functools.cache
def _kubeconfig(state: Path) -> Path:
    return Path(_cluster("kubeconfig", state).strip())


def _cluster(command: str, state: Path) -> str:
    argv = [sys.executable, str(HACK / "cluster.py"), command, "--state", str(state)]
    return subprocess.check_output(argv, text=True)


def built(group: str) -> Path:
    """The directory of a group of the test cluster's programs, which `make` has built."""
    command = [sys.executable, str(HACK / "cluster.py"), "build", group]
    return Path(subprocess.check_output(command, text=True).split()[-1])


def image_archives(names: Sequence[str]) -> list[Path]:
    """The archives of the project's images, which `make` has built."""
    script = ROOT / "hack" / "images" / "images.py"
    return [
        Path(subprocess.check_output([sys.executable, script, "archive", name], text=True).strip())
        for name in names
    ]


def merged(base: Any, changes: Any) -> Any:
    """`base` with `changes` in it: maps merge, all else replaces."""
    if not isinstance(base, dict) or not isinstance(changes, dict):
        return changes
    return base | {key: merged(base.get(key), value) for key, value in changes.items()}
