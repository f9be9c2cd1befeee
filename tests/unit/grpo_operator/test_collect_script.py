"""The postStart hook of the pods: the output of driver and actors reaches the volume and the
container's log, and is bounded."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import grpo_operator.render

SCRIPT = Path(grpo_operator.render.__file__).with_name("collect.py")


class Pod:
    """A pod's directories, and the hook in it."""

    def __init__(self, root: Path) -> None:
        self.logs, self.run_dir, fifo = root / "ray", root / "run", root / "stdout"
        self.logs.mkdir()
        os.mkfifo(fifo)
        self.variables = {
            "GRPO_RAY_LOGS": str(self.logs),
            "GRPO_RUN_DIR": str(self.run_dir),
            "GRPO_CONTAINER_LOG": str(fifo),
            "HOSTNAME": "job-head-abc",
        }
        self.fifo = fifo

    def start(self, keep: int = 3, **variables: str) -> None:
        command = [sys.executable, str(SCRIPT), "head", str(keep)]
        self.process = subprocess.Popen(command, env={**self.variables, **variables})
        self.stdout = self.fifo.open("rb")

    def write(self, name: str, text: str) -> None:
        with (self.logs / name).open("a") as file:
            file.write(text)

    def copy(self, name: str, pod: str = "job-head-abc") -> Path:
        return self.run_dir / "logs" / "pods" / "head" / pod / name

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.stdout.close()


@pytest.fixture
def pod(tmp_path):
    pod = Pod(tmp_path)
    yield pod
    pod.stop()


def test_output_reaches_the_volume_and_the_containers_log(pod):
    pod.write("job-driver-0a1b2c3d-1.log", "first\n")
    pod.write("raylet.out", "not ours\n")
    pod.start()
    assert pod.stdout.readline() == b"first\n"
    pod.write("worker-1.err", "half a line")
    pod.write("job-driver-0a1b2c3d-1.log", "second\n")
    assert pod.stdout.readline() == b"second\n"
    pod.write("worker-1.err", ", now whole\n")
    assert pod.stdout.readline() == b"half a line, now whole\n"
    assert pod.copy("job-driver-0a1b2c3d-1.log").read_text() == "first\nsecond\n"
    assert pod.copy("worker-1.err").read_text() == "half a line, now whole\n"
    assert not pod.copy("raylet.out").exists()


def test_a_copy_is_rotated(pod):
    pod.write("worker-1.out", "a" * 200 + "\n")
    pod.start(GRPO_LOG_FILE_BYTES="100")
    assert pod.stdout.readline()
    pod.write("worker-1.out", "b\n")
    assert pod.stdout.readline() == b"b\n"
    assert pod.copy("worker-1.out.1").read_text() == "a" * 200 + "\n"
    assert pod.copy("worker-1.out").read_text() == "b\n"


def test_the_oldest_copies_of_a_pod_are_removed(pod):
    pod.write("worker-1.out", "a" * 200 + "\n")
    pod.start(GRPO_LOG_POD_BYTES="300")
    assert pod.stdout.readline()
    pod.write("worker-2.out", "b" * 200 + "\n")
    assert pod.stdout.readline()
    pod.write("worker-3.out", "c\n")
    assert pod.stdout.readline()
    assert not pod.copy("worker-1.out").exists()
    assert pod.copy("worker-2.out").exists()


def test_the_newest_pods_of_a_role_are_kept(pod):
    for age in range(4):
        old = pod.copy("worker-1.out", pod=f"old-{age}")
        old.parent.mkdir(parents=True)
        os.utime(old.parent, (1000 - age, 1000 - age))
    pod.write("worker-1.out", "a\n")
    pod.start(keep=3)
    assert pod.stdout.readline()
    kept = {path.name for path in pod.copy("x").parents[1].iterdir()}
    assert kept == {"job-head-abc", "old-0", "old-1"}
