#!/usr/bin/env python3
"""A Kubernetes cluster of real parts on loopback, without root, for tests of controllers.

etcd, API server, controller manager, scheduler and the KubeRay operator are the real programs;
KWOK stands in for the kubelets of fake nodes. Building needs Go, running needs openssl.

    cluster.py build                      build the programs, unless they are there
    cluster.py up         [--state DIR]   start a cluster and leave it running
    cluster.py down       [--state DIR]   stop it
    cluster.py kubeconfig [--state DIR]   print the path of its administrator's kubeconfig
    cluster.py logs       [--state DIR]   print the end of every component's log
    cluster.py run        [--state DIR]   start one, print that path, stop it when stdin closes
"""

import argparse
import os
import select
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import build
import credentials
from components import Components, free_ports
from launch import Launch
from processes import Record

_STOP_GRACE_SECONDS = 5.0
_LOG_TAIL_LINES = 15
_LOG_TAIL_COLUMNS = 300


@dataclass(frozen=True)
class Cluster:
    """One instance: what it writes lies in `state`, what it started is in its record."""

    state: Path

    @property
    def record(self) -> Record:
        return Record(self.state / "processes.jsonl")

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def credentials(self) -> Path:
        return self.state / "credentials"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return credentials.kubeconfig(self.credentials, credentials.ADMIN)

    def up(self, *, nodes: int, bare: bool, timeout: float, die_with_parent: bool) -> None:
        """Starts an empty cluster and returns once all its parts are ready.

        Args:
            nodes: fake nodes to create, with eight accelerators each.
            bare: only the control plane: no KubeRay, no KWOK, no nodes.
            timeout: seconds until all must be ready.
            die_with_parent: the cluster ends with this process, however that ends.

        Raises:
            FileNotFoundError: the programs have not been built.
            RuntimeError: a cluster is running in this directory, or a part of this one ended.
            TimeoutError: a part was not ready in time.
        """
        programs = build.programs()
        if self.record.running():
            raise RuntimeError(f"a cluster is already running in {self.state}")
        self.down()
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.logs.mkdir(exist_ok=True)
        ports = free_ports()
        keys = credentials.create(self.credentials, f"https://127.0.0.1:{ports.api_server}")
        launch = Launch(
            Components(programs, ports, keys),
            state=self.state,
            logs=self.logs,
            record=self.record,
            deadline=time.monotonic() + timeout,
            die_with_parent=die_with_parent,
        )
        try:
            launch.cluster(nodes=nodes, bare=bare)
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """Stops what `up` started and removes what it wrote, but for the logs."""
        self.record.stop_all(grace_seconds=_STOP_GRACE_SECONDS)
        for directory in (self.state / "etcd", self.credentials):
            if directory.exists():
                shutil.rmtree(directory)

    def wait(self) -> None:
        """Returns when stdin closes.

        Raises:
            RuntimeError: a part of the cluster ended before.
        """
        with self.record.pidfds() as pidfds:
            select.select([sys.stdin, *pidfds], [], [])
        if ended := self.record.ended():
            raise RuntimeError(f"ended by itself: {', '.join(ended)}")

    def log_tails(self) -> str:
        """The end of every component's log."""
        tails = []
        for log in sorted(self.logs.glob("*.log")):
            lines = log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
            tails += [f"==> {log} <==", *(line[:_LOG_TAIL_COLUMNS] for line in lines)]
        return "\n".join(tails)


def main() -> None:
    arguments = _arguments()
    # Turns `kill` into an exception, so that what has been started is stopped.
    signal.signal(signal.SIGTERM, lambda signum, _: sys.exit(128 + signum))
    if arguments.command == "build":
        print(build.build())
        return
    cluster = Cluster(arguments.state.absolute())
    try:
        _COMMANDS[arguments.command](cluster, arguments)
    except FileNotFoundError as error:
        sys.exit(f"error: {error}")
    except (RuntimeError, TimeoutError) as error:
        sys.exit(f"{cluster.log_tails()}\nerror: {error}")


def _up(cluster: Cluster, arguments: argparse.Namespace) -> None:
    cluster.up(
        nodes=arguments.nodes,
        bare=arguments.bare,
        timeout=arguments.timeout,
        die_with_parent=arguments.command == "run",
    )
    _kubeconfig(cluster, arguments)


def _down(cluster: Cluster, _: argparse.Namespace) -> None:
    cluster.down()


def _kubeconfig(cluster: Cluster, _: argparse.Namespace) -> None:
    print(cluster.kubeconfig, flush=True)


def _logs(cluster: Cluster, _: argparse.Namespace) -> None:
    print(cluster.log_tails())


def _run(cluster: Cluster, arguments: argparse.Namespace) -> None:
    _up(cluster, arguments)
    try:
        cluster.wait()
    finally:
        cluster.down()


_COMMANDS = {"up": _up, "down": _down, "kubeconfig": _kubeconfig, "logs": _logs, "run": _run}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["build", *_COMMANDS])
    parser.add_argument("--state", type=Path, default=_default_state(), help="default: %(default)s")
    parser.add_argument("--nodes", type=int, default=4, help="default: %(default)s")
    parser.add_argument("--bare", action="store_true", help="only the control plane")
    parser.add_argument("--timeout", type=float, default=120, help="seconds; default: %(default)s")
    return parser.parse_args()


def _default_state() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "grpo-operator" / "cluster"


if __name__ == "__main__":
    main()
