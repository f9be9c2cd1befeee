"""Ray for one run: an instance of its own on a laptop, or the cluster that the driver runs in."""

import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import ray

from grpo_trainer.errors import InvalidInputError
from grpo_trainer.options import RunOptions
from grpo_trainer.spec import CPU, GRPOJobSpec
from grpo_trainer.watchdog import watchdog

PRODUCER = "grpo_producer"
CONSUMER = "grpo_consumer"

ENDED_BY_SIGNAL = 130


@contextmanager
def ray_session(spec: GRPOJobSpec, options: RunOptions, logs: Path) -> Iterator[None]:
    """Start or join Ray for the block; a Ray of our own leaves its logs, and no process."""
    if options.ray_address is not None:
        with _connected(actor_environment(spec, own=False), address=options.ray_address):
            yield
        return
    # Ray puts sockets there, whose paths must stay short.
    directory = Path(tempfile.mkdtemp(prefix="grpo-ray-", dir=options.ray_temp_dir)).resolve()
    with watchdog(directory):
        try:
            with _connected(
                actor_environment(spec, own=True),
                num_cpus=os.cpu_count() or 1,
                resources={
                    PRODUCER: spec.producers.most_replicas,
                    CONSUMER: spec.consumer_processes,
                },
                include_dashboard=False,
                _temp_dir=str(directory),
            ):
                check_accelerators(spec)
                yield
        finally:
            _keep_worker_logs(directory, logs)


@contextmanager
def _connected(environment: dict[str, str], **how: Any) -> Iterator[None]:
    ours = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            runtime_env={"env_vars": environment},
            log_to_driver=False,
            logging_level=logging.WARNING,
            **how,
        )
        # Ray takes SIGTERM for itself, and would exit where we leave a checkpoint.
        signal.signal(signal.SIGTERM, ours)
        yield
    finally:
        ray.shutdown()


def actor_environment(spec: GRPOJobSpec, *, own: bool) -> dict[str, str]:
    """Variables of every actor. Those of a Ray of our own share the cores of one machine."""
    fixed = {"TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}
    if own:
        actors = spec.producers.most_replicas + spec.consumer_processes
        threads = max(1, (os.cpu_count() or 1) // actors)
        fixed["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", str(threads))
    return {**fixed, **plain_environment(spec)}


def plain_environment(spec: GRPOJobSpec) -> dict[str, str]:
    """The spec's variables that need no cluster to have a value."""
    return {variable.name: variable.value for variable in spec.env if variable.value is not None}


def cluster_only_environment(spec: GRPOJobSpec) -> list[str]:
    """What a run on this machine goes without, in words: Secrets and ConfigMaps are a cluster's."""
    names = [variable.name for variable in spec.env if variable.value_from is not None]
    lines = []
    if names:
        lines.append(
            f"spec.env: {', '.join(names)} come from Secrets or ConfigMaps, which only a cluster "
            "has; set them in the environment of this command"
        )
    if spec.env_from:
        lines.append(
            "spec.envFrom: Secrets and ConfigMaps are only in a cluster; set their variables in "
            "the environment of this command"
        )
    return lines


def check_accelerators(spec: GRPOJobSpec) -> None:
    """Raises InvalidInputError when a Ray of our own has GPUs, but fewer than the spec wants."""
    here = int(ray.cluster_resources().get("GPU", 0))
    producers, consumers = spec.producers, spec.consumers
    wanted = 0
    if producers.accelerator != CPU:
        wanted += producers.most_replicas * producers.tensor_parallel_size
    if consumers.accelerator != CPU:
        wanted += spec.consumer_processes
    if 0 < here < wanted:
        raise InvalidInputError(
            f"spec: {producers.most_replicas} producers and {spec.consumer_processes} consumer "
            f"processes want {wanted} GPUs and {here} are here; use fewer of them, or "
            "accelerator: cpu for one side"
        )


def device_for(accelerator: str, options: RunOptions) -> str:
    """`cuda` where the spec asks for an accelerator, `cpu` where it asks for none or none is here.

    A laptop trains with the same manifest as a cluster, so a Ray of our own without a GPU falls
    back to the CPU; in a cluster a missing GPU is a fault, which the actor's start reports.
    """
    if accelerator == CPU:
        return "cpu"
    if options.ray_address is not None or ray.cluster_resources().get("GPU", 0) > 0:
        return "cuda"
    logging.getLogger(__name__).warning(
        "accelerator %s is not here: running on the CPU instead", accelerator
    )
    return "cpu"


def end_at_once() -> NoReturn:
    """End this process without a word to anybody; the watchdog ends what it leaves."""
    os._exit(ENDED_BY_SIGNAL)


def _keep_worker_logs(directory: Path, logs: Path) -> None:
    """Copy what the actors printed next to the run's other files."""
    for session in directory.glob("session_2*"):
        for pattern in ("worker-*.out", "worker-*.err"):
            for file in session.joinpath("logs").glob(pattern):
                if file.stat().st_size:
                    shutil.copy2(file, logs / file.name)
