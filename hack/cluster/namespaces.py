"""Network, mounts and processes of one cluster, apart from the machine's own.

All that runs inside ends with the first process in there, and takes its mounts, its bridges and
its firewall rules along: nothing has to be undone one by one. Only cgroups are the machine's.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from processes import Process, Record

NAME = "namespaces"
INIT = "init"
_UNSHARE = ("unshare", "--net", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child")
_INIT = ("catatonit", "-P")  # adopts and reaps whatever loses its parent
# Directories that container programs write to by fixed paths: inside, each is a fresh tmpfs.
_PRIVATE = ("/run", "/var/lib/cni", "/var/lib/kubelet", "/var/log")


@dataclass(frozen=True)
class Namespaces:
    holder: Process
    directory: Path
    """Where commands inside start."""

    @property
    def network(self) -> Path:
        return Path(f"/proc/{self.holder.pid}/ns/net")

    @property
    def enter(self) -> tuple[str, ...]:
        """What to write before a command to run it inside."""
        of_holder = f"/proc/{self.holder.pid}/ns"
        return (
            "nsenter",
            f"--net={of_holder}/net",
            f"--mount={of_holder}/mnt",
            f"--pid={of_holder}/pid_for_children",
            f"--wdns={self.directory}",
        )

    def init(self) -> int | None:
        """The pid of the first process inside, once it is there and /proc is theirs."""
        pids = Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children").read_text()
        if not pids:
            return None
        command = Path(f"/proc/{pids.strip()}/comm").read_text().strip()
        return int(pids) if command == _INIT[0] else None

    def run(self, *command: str, seconds: float = 60) -> str:
        """The output of a command inside.

        Raises:
            RuntimeError: it failed; the message holds what it said.
            TimeoutError: it took longer than `seconds`.
        """
        argv = [*self.enter, *command]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"{command[0]} took longer than {seconds:.0f} s") from error
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def prepare(self, commands: list[str]) -> None:
        """Brings up loopback and forwarding, hides the machine's directories, runs `commands`."""
        for directory in _PRIVATE:
            Path(directory).mkdir(parents=True, exist_ok=True)
        mounts = [f"mount -t tmpfs -o mode=755 tmpfs {directory}" for directory in _PRIVATE]
        # Pods of one bridge reach each other without routing: firewall rules see them only so.
        kernel = "sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1"
        script = ["set -e", "ip link set lo up", kernel, *mounts, *commands]
        self.run("sh", "-c", "\n".join(script))


def create(record: Record, directory: Path, log: Path, *, die_with_parent: bool) -> Namespaces:
    """Starts the holder of new namespaces; they can be entered once `init` is there."""
    holder = record.spawn(
        NAME,
        [*_UNSHARE, *_INIT],
        log=log,
        cwd=directory,
        die_with_parent=die_with_parent,
    )
    return Namespaces(holder, directory)


def find(record: Record, directory: Path) -> Namespaces:
    """The namespaces of a running cluster.

    Raises:
        RuntimeError: there are none.
    """
    for process in record.running():
        if process.name == NAME:
            return Namespaces(process, directory)
    raise RuntimeError(f"no cluster with real nodes is running in {directory}")
