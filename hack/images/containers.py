"""buildah and podman over a store of their own: the machine's configuration is left alone."""

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_PACKAGES = {
    "buildah": "buildah",
    "podman": "podman",
    "runc": "runc",
    "/usr/lib/podman/netavark": "netavark",
    "/usr/lib/podman/aardvark-dns": "aardvark-dns",
    "catatonit": "catatonit",
    "iptables": "iptables",
    "debootstrap": "debootstrap",
}
_MAX_FILES, _MAX_PROCESSES = 1 << 20, 1 << 15


@dataclass(frozen=True, slots=True)
class Tools:
    """Runs the programs; everything they keep lies in `directory`."""

    directory: Path

    def run(self, *command: str, timeout: float) -> str:
        """Standard output of a program that succeeds.

        Raises:
            subprocess.CalledProcessError: it failed.
            subprocess.TimeoutExpired: it took longer than `timeout` seconds.
        """
        done = subprocess.run(
            command,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=timeout,
            text=True,
            check=True,
        )
        return done.stdout

    def show(self, *command: str, timeout: float, cwd: Path) -> None:
        """Runs a program whose output people want to see; raises as `run` does."""
        subprocess.run(
            command,
            env=self._environment(),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            timeout=timeout,
            check=True,
        )

    def outcome(self, command: Sequence[str], *, timeout: float) -> tuple[int, str]:
        """Exit code of a program, and all that it printed."""
        done = subprocess.run(
            command,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    def configure(self) -> None:
        """Writes the configuration of the store."""
        self.directory.mkdir(parents=True, exist_ok=True)
        # A container may not ask for more than this process could: some machines forbid that.
        files = _limit(resource.RLIMIT_NOFILE, _MAX_FILES)
        processes = _limit(resource.RLIMIT_NPROC, _MAX_PROCESSES)
        (self.directory / "containers.conf").write_text(
            "[containers]\n"
            f'default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]\n'
            '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        )
        (self.directory / "storage.conf").write_text(
            '[storage]\ndriver = "overlay"\n'
            f'graphroot = "{self.directory}/store"\nrunroot = "{self.directory}/run"\n'
        )

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "CONTAINERS_CONF": str(self.directory / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(self.directory / "storage.conf"),
        }


def install_missing() -> None:
    """Installs what lacks of Debian's packages, as root.

    Raises:
        FileNotFoundError: something lacks, and this user cannot install it.
    """
    lacking = [package for program, package in _PACKAGES.items() if shutil.which(program) is None]
    if not lacking:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise FileNotFoundError(f"not installed: {', '.join(lacking)}")
    for arguments in (["update"], ["install", "--yes", "--no-install-recommends", *lacking]):
        subprocess.run(["apt-get", "-qq", *arguments], stdout=subprocess.DEVNULL, check=True)


def _limit(kind: int, most: int) -> int:
    hard = resource.getrlimit(kind)[1]
    return most if hard == resource.RLIM_INFINITY else min(hard, most)
