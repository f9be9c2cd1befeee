"""Ray for one run: an instance of its own on a laptop, or the cluster that the driver runs in."""

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
import ray._private.utils

from grpo_trainer.errors import InvalidInputError
from grpo_trainer.options import RunOptions
from grpo_trainer.spec import CPU, GRPOJobSpec
from grpo_trainer.watchdog import watchdog

from .local_environment import ray_directory, temp_variables

PRODUCER = "grpo_producer"
CONSUMER = "grpo_consumer"
_SYSTEM_CONFIG = {"prestart_worker_first_driver": False}
"""Workers that Ray starts ahead lack the actors' variables: each would import Ray and be idle."""


@contextmanager
def ray_session(spec: GRPOJobSpec, options: RunOptions, logs: Path) -> Iterator[None]:
    """Start or join Ray for the block; a local Ray leaves its workers' logs and no process.

    May be entered in a thread, so that an event loop keeps running meanwhile.
    """
    if options.ray_address is not None:
        with _connected(actor_environment(spec, own=False), address=options.ray_address):
            yield
        return
    directory = ray_directory(options.ray_temp_dir)
    with watchdog(directory):
        try:
            with _connected(
                {**actor_environment(spec, own=True), **temp_variables(directory)},
                address="local",
                num_cpus=os.cpu_count() or 1,
                resources={
                    PRODUCER: spec.producers.most_replicas,
                    CONSUMER: spec.consumer_processes,
                },
                include_dashboard=False,
                _system_config=_SYSTEM_CONFIG,
                _temp_dir=str(directory),
            ):
                check_accelerators(spec)
                yield
        finally:
            _keep_worker_logs(directory, logs)


@contextmanager
def _connected(environment: dict[str, str], **how: Any) -> Iterator[None]:
    try:
        with _without_signal_handlers():
            ray.init(
                runtime_env={"env_vars": environment},
                log_to_driver=False,
                logging_level=logging.WARNING,
                **how,
            )
        yield
    finally:
        ray.shutdown()


@contextmanager
def _without_signal_handlers() -> Iterator[None]:
    """Keep Ray from handling SIGTERM: it would exit where this process writes a checkpoint."""
    original = ray._private.utils.set_sigterm_handler
    ray._private.utils.set_sigterm_handler = lambda handler: None
    try:
        yield
    finally:
        ray._private.utils.set_sigterm_handler = original


def actor_environment(spec: GRPOJobSpec, *, own: bool) -> dict[str, str]:
    """Variables of every actor; those of a local Ray share the cores of one machine."""
    fixed = {"TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}
    if own:
        actors = spec.producers.most_replicas + spec.consumer_processes
        threads = max(1, (os.cpu_count() or 1) // actors)
        fixed["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", str(threads))
    return {**fixed, **plain_environment(spec)}


def plain_environment(spec: GRPOJobSpec) -> dict[str, str]:
    """The spec's variables with a plain value."""
    return {variable.name: variable.value for variable in spec.env if variable.value is not None}


def cluster_only_environment(spec: GRPOJobSpec) -> list[str]:
    """Warnings about variables from Secrets and ConfigMaps, which a local run does not have."""
    names = [variable.name for variable in spec.env if variable.value_from is not None]
    lines = []
    if names:
        lines.append(
            f"spec.env: {', '.join(names)}: Secrets and ConfigMaps exist only in a cluster; set "
            "these variables in the environment of this command"
        )
    if spec.env_from:
        lines.append(
            "spec.envFrom: Secrets and ConfigMaps exist only in a cluster; set their variables in "
            "the environment of this command"
        )
    return lines


def check_accelerators(spec: GRPOJobSpec) -> None:
    """Raises InvalidInputError when a local Ray has GPUs, but fewer than the spec needs."""
    here = int(ray.cluster_resources().get("GPU", 0))
    producers, consumers = spec.producers, spec.consumers
    wanted = 0
    if producers.accelerator != CPU:
        wanted += producers.most_replicas * producers.tensor_parallel_size
    if consumers.accelerator != CPU:
        wanted += spec.consumer_processes
    if 0 < here < wanted:
        raise InvalidInputError(
            f"spec: Forbidden: {producers.most_replicas} producers and {spec.consumer_processes} "
            f"consumer processes need {wanted} GPUs, this machine has {here}; use fewer of them or "
            "accelerator: cpu for one side"
        )


def device_for(accelerator: str, options: RunOptions) -> str:
    """`cuda` where the spec names an accelerator, `cpu` where it does not or there is none.

    The same manifest runs on a laptop and in a cluster, so a local Ray without a GPU falls back to
    the CPU; in a cluster a missing GPU is a fault, which the start of the actor reports.
    """
    if accelerator == CPU:
        return "cpu"
    if options.ray_address is not None or ray.cluster_resources().get("GPU", 0) > 0:
        return "cuda"
    logging.getLogger(__name__).warning(
        "accelerator %s is not available: running on the CPU instead", accelerator
    )
    return "cpu"


def _keep_worker_logs(directory: Path, logs: Path) -> None:
    """Copy the output of the actors into the run directory."""
    for session in directory.glob("session_2*"):
        for pattern in ("worker-*.out", "worker-*.err"):
            for file in session.joinpath("logs").glob(pattern):
                if file.stat().st_size:
                    shutil.copy2(file, logs / file.name)
