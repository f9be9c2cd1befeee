"""What a cluster with real nodes takes from the machine."""

import os
import shutil
import subprocess
from pathlib import Path

# By package of Debian: one of its programs or files.
_PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "catatonit": "/usr/bin/catatonit",
    "busybox-static": "/bin/busybox",
    "iproute2": "ip",
    "procps": "sysctl",
    "util-linux": "nsenter",
}


def ensure() -> None:
    """Installs the packages that are missing, where apt-get does so.

    Raises:
        RuntimeError: not root, or a package or kubectl is missing and could not be installed.
    """
    if os.geteuid() != 0:
        raise RuntimeError("real nodes need root: namespaces, mounts and cgroups are made")
    if not shutil.which("kubectl"):
        raise RuntimeError("real nodes need `kubectl` on the PATH")
    if missing := _missing():
        if shutil.which("apt-get"):
            _install(missing)
        if missing := _missing():
            raise RuntimeError(f"real nodes need these packages: {' '.join(missing)}")


def _missing() -> list[str]:
    return [package for package, program in _PACKAGES.items() if not _is_there(program)]


def _is_there(program: str) -> bool:
    found = shutil.which(program)
    if found is None:
        return Path(program).exists()
    # Debian's other busybox needs libraries, which an image made of this one file has not.
    return program != "/bin/busybox" or b"ld-linux" not in Path(found).read_bytes()[:4096]


def _install(packages: list[str]) -> None:
    apt = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *packages]
    # Services that a package brings must not start: the cluster runs its own.
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    subprocess.run(["apt-get", "update", "-qq"], check=False, env=quiet, capture_output=True)
    done = subprocess.run(apt, env=quiet, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(apt)}: {done.stderr.strip()}")
