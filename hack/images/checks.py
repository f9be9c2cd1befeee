"""What each image must do, checked in containers."""

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from recipes import ROOT
from store import Store

_SHORT_SECONDS = 180.0
_TRAINING_SECONDS = 900.0
_STEPS = 5
_PODMAN = ("podman", "run", "--rm", "--network=none")
_RESTRICTED = ("--cap-drop=ALL", "--security-opt=no-new-privileges")
"""As in a pod that the operator makes."""
_READ_ONLY = (*_RESTRICTED, "--read-only", "--read-only-tmpfs=false")


@dataclass(frozen=True, slots=True)
class Check:
    claim: str
    """A sentence with the image as its subject."""
    command: tuple[str, ...]
    """Empty is the image's own."""
    prints: str
    """Must be in what it prints."""
    exits: int = 0
    environment: tuple[str, ...] = ()


def _python(claim: str, code: str, prints: str) -> Check:
    return Check(claim, ("python", "-c", code), prints)


_OPERATOR = (
    Check("is user 65532", ("id",), "uid=65532(grpo) gid=65532(grpo)"),
    Check("reports that there is no cluster", (), "no cluster: found neither", exits=2),
    Check(
        "names an invalid setting",
        (),
        "GRPO_CONCURRENCY: Invalid value: 'many': must be an integer",
        exits=2,
        environment=("GRPO_CONCURRENCY=many",),
    ),
    Check("has the CRD", ("python", "-m", "grpo_operator.crd"), "grpojobs.grpo-operator.io"),
    Check("has the plugin", ("kubectl-grpo", "--help"), "usage: kubectl"),
    _python(
        "has nothing to build with",
        "import shutil; print([p for p in ('pip', 'uv', 'gcc') if shutil.which(p)])",
        "[]",
    ),
    _python(
        "has no libraries of the trainer's",
        "import importlib.util as u; print([m for m in ('torch', 'ray') if u.find_spec(m)])",
        "[]",
    ),
)
_TRAINER = (
    Check("is user 1000", ("id",), "uid=1000(grpo) gid=1000(grpo)"),
    Check("works in /data and can write to its home", ("sh", "-c", "touch ~/x && pwd"), "/data"),
    Check("has grpo", ("grpo", "--help"), "usage: grpo"),
    Check("has bash and wget", ("bash", "-c", "wget --version"), "GNU Wget"),
    Check("has ray in a login shell", ("bash", "-lc", "ray --version"), "ray, version 2."),
    _python(
        "has its code compiled",
        "import grpo_trainer.spec as s, os; print(os.path.exists(s.__cached__))",
        "True",
    ),
)
_CONSUMER = (
    *_TRAINER,
    _python(
        "imports the trainer's libraries",
        "import colossalai, ray, torch, transformers, wandb; print('torch', torch.__version__)",
        "torch 2.",
    ),
)
_PRODUCER = (
    *_TRAINER,
    _python(
        "imports vLLM and the engine",
        "import vllm, grpo_trainer.rollout.vllm_engine; print('vllm', vllm.__version__)",
        "vllm 0.",
    ),
)
_CHECKS = {"operator": _OPERATOR, "consumer": _CONSUMER, "producer": _PRODUCER}


def run(store: Store, name: str, tag: str) -> None:
    """Runs the checks of one image.

    Raises:
        FileNotFoundError: it has not been built.
        RuntimeError: a check failed; the message holds what the container printed.
    """
    image = store.load(name, tag)
    security = _READ_ONLY if name == "operator" else _RESTRICTED
    for check in _CHECKS[name]:
        command = [*_PODMAN, *security, *(f"--env={variable}" for variable in check.environment)]
        if check.command:
            command.append(f"--entrypoint={check.command[0]}")
        command += [image, *check.command[1:]]
        _try(store, f"{name} {check.claim}", command, check.prints, check.exits, _SHORT_SECONDS)
    if name == "consumer":
        _train(store, image)


def _train(store: Store, image: str) -> None:
    """A few steps of the example, on a volume that belongs to the image's user."""
    example = (ROOT / "examples" / "quickstart.yaml").read_text()
    shortened = example.replace("maxSteps: 150", f"maxSteps: {_STEPS}")
    assert shortened != example
    with tempfile.TemporaryDirectory() as directory:
        volume = Path(directory)
        (volume / "quickstart.yaml").write_text(shortened)
        os.chown(volume, 1000, 1000)
        # More threads would only compete with other processes for the cores.
        options = [f"--volume={volume}:/data", "--shm-size=1g", "--env=OMP_NUM_THREADS=1"]
        command = [*_PODMAN, *_RESTRICTED, *options, image]
        command += ["grpo", "run", "quickstart.yaml", "--run-dir", "runs/check"]
        expected = f"step {_STEPS}/{_STEPS}"
        _try(store, f"consumer trains {_STEPS} steps", command, expected, 0, _TRAINING_SECONDS)


def _try(
    store: Store, claim: str, command: list[str], prints: str, exits: int, timeout: float
) -> None:
    started = time.monotonic()
    code, output = store.tools.outcome(command, timeout=timeout)
    if code != exits or prints not in output:
        raise RuntimeError(
            f"{claim}: exit code {code}, expected {exits} and {prints!r}, printed:\n{output}"
        )
    print(f"{claim} ({time.monotonic() - started:.1f} s)", flush=True)
