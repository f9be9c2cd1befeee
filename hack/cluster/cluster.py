#!/usr/bin/env python3
"""A Kubernetes cluster of real parts for tests, on this machine.

etcd, API server, controller manager, scheduler and the KubeRay operator are the real programs.
By default KWOK replaces the kubelets of fake nodes, on loopback and without root. With
--real-nodes pods run in containers, in namespaces of the cluster's own, which needs root.
Building needs Go, running needs openssl.
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
import namespaces
import network
import real
from components import Components, free_ports
from groups import DEFAULT_GROUP, GROUPS
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

    def up(
        self, nodes: "Simulated | real.Options", *, timeout: float, die_with_parent: bool
    ) -> None:
        """Starts an empty cluster and returns once all its parts are ready.

        Args:
            nodes: what kind of nodes it has.
            timeout: seconds until all must be ready.
            die_with_parent: the cluster ends with this process, however that ends.

        Raises:
            FileNotFoundError: the programs have not been built.
            RuntimeError: a cluster is running in this directory, or a part of this one ended.
            TimeoutError: a part was not ready in time.
        """
        programs = build.programs()
        real_nodes = nodes.nodes if isinstance(nodes, real.Options) else 0
        if isinstance(nodes, real.Options):
            real.check(nodes)
        if self.record.running():
            raise RuntimeError(f"a cluster is already running in {self.state}")
        self.down()
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.logs.mkdir(exist_ok=True)
        ports = free_ports(real_nodes)
        keys = credentials.create(
            self.credentials,
            f"https://127.0.0.1:{ports.api_server}",
            nodes=[node.name for node in real.members(real_nodes)],
            addresses=[network.FIRST.address, network.API_SERVICE] if real_nodes else [],
        )
        launch = Launch(
            Components(programs, ports, keys, real_nodes=real_nodes > 0),
            state=self.state,
            logs=self.logs,
            record=self.record,
            deadline=time.monotonic() + timeout,
            die_with_parent=die_with_parent,
        )
        try:
            if isinstance(nodes, real.Options):
                real.start(launch, nodes)
            else:
                launch.simulated_cluster(nodes=nodes.nodes, bare=nodes.bare)
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """Stops what `up` started and removes what it wrote, but for the logs."""
        # What runs in namespaces of its own ends with them; nothing of it is worth a farewell.
        has_namespaces = any(item.name == namespaces.INIT for item in self.record.running())
        self.record.stop_all(grace_seconds=0 if has_namespaces else _STOP_GRACE_SECONDS)
        real.remove(self.state)
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


@dataclass(frozen=True)
class Simulated:
    """Fake nodes with eight accelerators each; `bare`: the control plane alone."""

    nodes: int
    bare: bool


def main() -> None:
    arguments = _arguments()
    # Turns `kill` into an exception, so that what has been started is stopped.
    signal.signal(signal.SIGTERM, lambda signum, _: sys.exit(128 + signum))
    cluster = Cluster(arguments.state.absolute())
    try:
        arguments.act(cluster, arguments)
    except FileNotFoundError as error:
        sys.exit(f"error: {error}")
    except (RuntimeError, TimeoutError) as error:
        sys.exit(f"{cluster.log_tails()}\nerror: {error}")


def _build(_: Cluster, arguments: argparse.Namespace) -> None:
    for group in arguments.groups:
        print(build.build(group), flush=True)


def _up(cluster: Cluster, arguments: argparse.Namespace) -> None:
    nodes: Simulated | real.Options = Simulated(arguments.nodes, arguments.bare)
    if arguments.real_nodes:
        nodes = real.Options(
            nodes=arguments.real_nodes,
            accelerators=arguments.accelerators,
            network_policies=arguments.network_policies,
            monitoring=arguments.monitoring,
            kueue=arguments.kueue,
            archives=tuple(arguments.images),
        )
    cluster.up(nodes, timeout=arguments.timeout, die_with_parent=arguments.act is _run)
    _kubeconfig(cluster, arguments)


def _down(cluster: Cluster, _: argparse.Namespace) -> None:
    cluster.down()


def _load(cluster: Cluster, arguments: argparse.Namespace) -> None:
    inside = namespaces.find(cluster.record, cluster.state)
    real.load(cluster.state, inside, arguments.archives)


def _enter(cluster: Cluster, arguments: argparse.Namespace) -> None:
    command = [*namespaces.find(cluster.record, cluster.state).enter, *arguments.program]
    os.execvp(command[0], command)


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


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    state = argparse.ArgumentParser(add_help=False)
    state.add_argument("--state", type=Path, default=_default_state(), help="default: %(default)s")
    start = _start_options()
    for name, act, parents, text in (
        ("build", _build, [], "build groups of programs, unless they are there"),
        ("up", _up, [start], "start a cluster and leave it running"),
        ("down", _down, [], "stop it"),
        ("kubeconfig", _kubeconfig, [], "print the path of its administrator's kubeconfig"),
        ("logs", _logs, [], "print the end of every component's log"),
        ("run", _run, [start], "start one, print that path, stop it when stdin closes"),
        ("load", _load, [], "import image archives into all its real nodes"),
        ("enter", _enter, [], "run a program inside the namespaces of its real nodes"),
    ):
        command = commands.add_parser(name, parents=[state, *parents], help=text)
        command.set_defaults(act=act)
        if act is _build:
            command.add_argument(
                "groups", nargs="*", type=_group, default=[DEFAULT_GROUP], metavar="GROUP"
            )
        elif act is _load:
            command.add_argument("archives", nargs="+", type=Path, metavar="ARCHIVE")
        elif act is _enter:
            command.add_argument("program", nargs=argparse.REMAINDER, metavar="COMMAND")
    return parser.parse_args()


def _group(name: str) -> str:
    if name not in GROUPS:
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(GROUPS)}")
    return name


def _start_options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--nodes", type=int, default=4, help="fake ones; default: %(default)s")
    options.add_argument("--bare", action="store_true", help="only the control plane")
    options.add_argument("--timeout", type=float, default=120, help="seconds; default: %(default)s")
    real_ones = options.add_argument_group("real nodes (needs root)")
    number = range(real.MAX_NODES + 1)
    real_ones.add_argument("--real-nodes", type=int, default=0, choices=number, metavar="N")
    real_ones.add_argument(
        "--accelerators", type=int, default=0, help="nvidia.com/gpu that each claims to have"
    )
    real_ones.add_argument(
        "--images",
        type=Path,
        nargs="+",
        default=[],
        metavar="ARCHIVE",
        help="images that every node has from the start; kept unpacked for the next cluster",
    )
    real_ones.add_argument("--network-policies", action="store_true", help="enforce them")
    real_ones.add_argument("--monitoring", action="store_true", help="the Prometheus operator")
    real_ones.add_argument("--kueue", action="store_true", help="Kueue, with its webhooks")
    return options


def _default_state() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "grpo-operator" / "cluster"


if __name__ == "__main__":
    main()
