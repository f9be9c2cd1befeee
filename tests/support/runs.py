"""Starting `grpo run` as a user does, and reading its files."""

import copy
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import yaml

GRPO = (sys.executable, "-m", "grpo_trainer.cli")
MODEL_TIMEOUT = 240.0

BASE: dict[str, Any] = {
    "apiVersion": "grpo-operator.io/v1alpha1",
    "kind": "GRPOJob",
    "metadata": {"name": "test"},
    "spec": {
        "model": {"path": "builtin://tiny", "dtype": "float32", "gradientCheckpointing": False},
        "dataset": {"path": "builtin://addition"},
        "algorithm": {"learningRate": 7e-4, "klCoefficient": 0},
        "maxSteps": 6,
        "reward": {"type": "boxed"},
        "sampling": {"numGenerations": 4, "maxNewTokens": 16, "maxPromptTokens": 16},
        "batch": {
            "inferenceBatchSize": 8,
            "inferenceMicrobatchSize": 4,
            "trainBatchSize": 8,
            "trainMinibatchSize": 8,
            "trainMicrobatchSize": 16,
        },
        "buffer": {"maxStaleness": 0},
        "producers": {"replicas": 1, "accelerator": "cpu"},
        "consumers": {"processesPerReplica": 1, "accelerator": "cpu"},
        "checkpoint": {"interval": 2},
        "tracking": {"tensorboard": False},
        "workerTimeoutSeconds": 120,
    },
}


def manifest(path: Path, **sections: Any) -> Path:
    """Write a manifest: the base with the given sections merged in."""
    body = copy.deepcopy(BASE)
    for name, value in sections.items():
        if isinstance(value, dict) and isinstance(body["spec"].get(name), dict):
            body["spec"][name] |= value
        else:
            body["spec"][name] = value
    path.write_text(yaml.safe_dump(body))
    return path


class Run:
    """A `grpo run` in a process of its own."""

    def __init__(
        self, directory: Path, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> None:
        """`environment` adds variables to those of the tests."""
        self.directory = directory
        self._log = directory.with_suffix(".log").open("w+")
        self.process = subprocess.Popen(
            [*GRPO, "run", *arguments, "--run-dir", str(directory), "--port", "0"],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
            start_new_session=True,
        )
        self._seen: dict[int, psutil.Process] = {}

    @property
    def output(self) -> str:
        self._log.flush()
        return Path(self._log.name).read_text()

    def until(self, condition: Callable[[], bool], seconds: float = MODEL_TIMEOUT) -> None:
        """Wait for a condition while the run is alive."""
        deadline = time.monotonic() + seconds
        while not condition():
            self.remember_children()
            assert self.process.poll() is None, f"the run ended early:\n{self.output[-3000:]}"
            assert time.monotonic() < deadline, f"deadline:\n{self.output[-3000:]}"
            time.sleep(0.1)

    def wait(self, seconds: float = MODEL_TIMEOUT) -> int:
        """The exit code."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            self.remember_children()
            assert time.monotonic() < deadline, f"deadline:\n{self.output[-3000:]}"
            time.sleep(0.2)
        return self.process.returncode

    def remember_children(self) -> list[psutil.Process]:
        """Every descendant, including those whose parent has ended."""
        try:
            children = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        self._seen |= {child.pid: child for child in children}
        return children

    def actors(self, name: str) -> list[psutil.Process]:
        """The processes of Ray actors of a class."""
        found = []
        for child in self.remember_children():
            try:
                if f"ray::{name}" in " ".join(child.cmdline()):
                    found.append(child)
            except psutil.NoSuchProcess:
                continue
        return found

    def leftovers(self, seconds: float = 20.0) -> list[str]:
        """Descendants that outlive the run by more than `seconds`."""
        _, alive = psutil.wait_procs(list(self._seen.values()), timeout=seconds)
        return [" ".join(process.cmdline()) for process in alive]

    def end(self) -> None:
        for process in [*self._seen.values()]:
            if process.is_running():
                process.kill()
        self.process.kill()
        self.process.wait(10)
        self._log.close()

    def get(self, path: str) -> str:
        """A page of the driver's HTTP server."""
        url = (self.directory / "endpoint").read_text().strip() + path
        with urllib.request.urlopen(url, timeout=10) as response:
            body: str = response.read().decode()
        return body

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The rows of steps."""
        path = self.directory / "metrics.jsonl"
        if not path.exists():
            return []
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        return [row for row in rows if row["event"] == "step"]

    @property
    def steps(self) -> int:
        return len(self.metrics)

    @property
    def summary(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads((self.directory / "summary.json").read_text())
        return body
