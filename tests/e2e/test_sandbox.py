"""Programs that a model writes, in the head's pod of a job.

Each program runs twice there: by Python, which shows what is accessible, and in the sandbox of the
code reward.
Aspects: a Service of the cluster; Ray's token and the pod's environment; the volume.
"""

import base64
import shlex
from dataclasses import dataclass

import pytest_asyncio

from e2e.runs import STEADY, Runs

SANDBOX = """
import sys
from grpo_trainer.rewards.sandbox import Sandbox
with Sandbox(sys.argv[1], seconds=60) as sandbox:
    execution = sandbox.run("", seconds=60)
assert execution.ok
print(execution.output, end="")
"""
# Nodes learn of a new Service within a second or two.
NETWORK = """
import socket, time
for host in {hosts}:
    for attempt in range(5):
        try:
            socket.create_connection((host, 80), timeout=5).close()
            print("reached")
            break
        except OSError:
            time.sleep(1)
    else:
        print("kept out")
"""
ENVIRONMENT = """
import os
print(dict(os.environ))
for process in ("1", "self"):
    try:
        print(open(f"/proc/{process}/environ").read())
    except OSError:
        print("kept out")
"""
FILES = """
import os
path = {path!r}
def remove_a_new_one():
    open(path + "-new", "x").close()
    os.remove(path + "-new")
for act in (lambda: os.listdir("/data"), lambda: open(path).read(), remove_a_new_one):
    try:
        act()
        print("done")
    except OSError:
        print("kept out")
"""


@dataclass(frozen=True)
class Head:
    """The head's pod of a job."""

    runs: Runs
    name: str

    def python(self, program: str) -> str:
        """What a program prints there."""
        return self._run(program)

    def sandbox(self, program: str) -> str:
        """What it prints when it is a model's."""
        return self._run(SANDBOX, program)

    def _run(self, *words: str) -> str:
        command = shlex.join(["python", "-c", *words])
        return self.runs.deployment.in_pod(self.runs.namespace, self.name, command)


@pytest_asyncio.fixture(loop_scope="session")
async def head(steady_runs: Runs) -> Head:
    return Head(steady_runs, await steady_runs.pod(STEADY, "head"))


async def test_a_program_reaches_no_service(head: Head, namespace: str) -> None:
    deployment = head.runs.deployment
    deployment.start_toolbox(namespace, "server", app="server")
    deployment.in_pod(namespace, "server", "httpd -p 8080 -h /bin")
    ports = ("--port=80", "--target-port=8080")
    deployment.kubectl("expose", "pod", "server", "-n", namespace, *ports)
    address = deployment.kubectl(
        "get", "service", "server", "-n", namespace, "-o=jsonpath={.spec.clusterIP}"
    )
    program = NETWORK.format(hosts=[f"server.{namespace}", address])
    assert head.python(program).splitlines() == ["reached", "reached"]

    assert head.sandbox(program).splitlines() == ["kept out", "kept out"]


async def test_a_program_learns_nothing_of_token_and_environment(head: Head) -> None:
    job = await head.runs.jobs.get(STEADY)
    name = head.runs.deployment.run_directory(job).name
    encoded = head.runs.deployment.kubectl(
        "get", "secret", f"{name}-token", "-n", head.runs.namespace, "-o=jsonpath={.data.token}"
    )
    token = base64.b64decode(encoded).decode()
    assert head.python(ENVIRONMENT).count(token) >= 3

    printed = head.sandbox(ENVIRONMENT)

    assert token not in printed
    assert "GRPO_" not in printed
    assert printed.splitlines()[1:] == ["kept out"] * 2


async def test_a_program_neither_reads_nor_writes_the_volume(head: Head) -> None:
    job = await head.runs.jobs.get(STEADY)
    run = head.runs.deployment.run_directory(job).name
    program = FILES.format(path=f"/data/runs/{run}/metrics.jsonl")
    assert head.python(program).splitlines() == ["done"] * 3

    assert head.sandbox(program).splitlines() == ["kept out"] * 3
