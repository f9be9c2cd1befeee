"""What a run ran on: `environment.json` in the run directory, of its newest start."""

import os
import platform
import shlex
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

_PACKAGES = ("grpo-operator", "torch", "ray", "transformers", "colossalai", "numpy", "math-verify")
_GPUS = Path("/proc/driver/nvidia/gpus")


def describe_environment() -> dict[str, str]:
    """Command, versions and the driver's machine; nothing of the environment variables."""
    memory = psutil.virtual_memory().total / (1 << 30)
    return {
        "command": shlex.join(sys.argv),
        "python": platform.python_version(),
        **{name: found for name in _PACKAGES if (found := _version(name))},
        "platform": platform.platform(),
        "machine of the driver": f"{os.cpu_count()} CPUs, {memory:.0f} GiB of memory",
        "accelerators of the driver": _accelerators(),
    }


def _accelerators() -> str:
    """Names of the GPUs that the driver sees; in a cluster they are on other machines."""
    found = [line for file in _GPUS.glob("*/information") for line in file.read_text().splitlines()]
    names = [line.partition(":")[2].strip() for line in found if line.startswith("Model:")]
    counted = [f"{names.count(name)} x {name}" for name in dict.fromkeys(names)]
    return ", ".join(counted) or "none"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
