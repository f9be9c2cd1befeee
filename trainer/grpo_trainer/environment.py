"""The second Python environment, whose libraries conflict with ColossalAI's.

It has vLLM and transformers 5. With consumers by FSDP the whole run uses it, driver and producers
included; with consumers by ColossalAI only vLLM producers do.

Ray does not check an actor's environment: it waits for a missing interpreter without end, and
another version of Ray fails later, and elsewhere. So the environment is checked first.
"""

import json
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from grpo_trainer.errors import InvalidInputError, invalid
from grpo_trainer.spec import Backend, ConsumerBackend, GRPOJobSpec

VARIABLE = "GRPO_VLLM_PYTHON"
FSDP_TRANSFORMERS = 5
"""Major version of the first transformers with distributed loading."""
PROBE_SECONDS = 180.0
"""Deadline of importing vLLM, which takes long on a cold disk."""

_PROBE = """
import json, platform, ray
found = {"Python": platform.python_version(), "Ray": ray.__version__}
import vllm, grpo_trainer.rollout.producer
print("\\n" + json.dumps(found))
"""


def vllm_python() -> Path:
    """The interpreter of the second environment: that of GRPO_VLLM_PYTHON, else of the environment
    beside this one whose name ends in `-vllm`."""
    return Path(os.environ.get(VARIABLE) or Path(f"{sys.prefix}-vllm") / "bin" / "python")


def has_fsdp() -> bool:
    """Whether this interpreter can run a job with consumers by FSDP: it has transformers 5."""
    try:
        return int(version("transformers").split(".")[0]) >= FSDP_TRANSFORMERS
    except PackageNotFoundError:
        return False


def producer_python(spec: GRPOJobSpec) -> Path | None:
    """The interpreter of producers on one machine; None is that of the driver."""
    vllm = spec.producers.backend is Backend.VLLM
    fsdp = spec.consumers.backend is ConsumerBackend.FSDP
    return vllm_python() if vllm and not fsdp else None


def check_vllm_python(python: Path, deadline_seconds: float = PROBE_SECONDS) -> None:
    """Run the interpreter once and import what a producer needs.

    Raises:
        InvalidInputError: it cannot be run, lacks a module, or has other versions than this one.
    """
    found = _probe(python, deadline_seconds)
    ours = {"Python": platform.python_version(), "Ray": version("ray")}
    if found != ours:
        raise _invalid(python, f"it has {_names(found)} and must have {_names(ours)}")


def _probe(python: Path, deadline_seconds: float) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [str(python), "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=deadline_seconds,
        )
    except OSError as error:
        raise _invalid(python, f"it cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        reason = f"it did not import vllm within {deadline_seconds:g} s"
        raise _invalid(python, reason) from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"it exited with code {done.returncode}"]
        raise _invalid(python, lines[-1])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _invalid(python: Path, reason: str) -> InvalidInputError:
    must = (
        f"must be transformers, or have an environment: {python}: {reason}. Build one from "
        f"environments/vllm and set {VARIABLE} to its python"
    )
    return InvalidInputError(invalid("spec.producers.backend", "vllm", must))


def _names(versions: dict[str, Any]) -> str:
    return " and ".join(f"{name} {number}" for name, number in versions.items())
