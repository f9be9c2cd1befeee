"""`grpo check`: everything that can be wrong before a run, found without one.

The stages are those of a run's start. One that fails does not stop the next, unless that needs its
result; at the end all faults are reported together.
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..builtin import CompletionFormat, check_model_name, default_cache, is_builtin
from ..builtin.recipe import tiny_recipe
from ..data import EncodedPrompts, check_markers, encode_prompts, unopened_prompts
from ..driver.checkpoints import complete_checkpoints
from ..driver.disk import check_space
from ..driver.finished import finished_message
from ..driver.model_support import check_token_ids
from ..driver.prepare import CheckedModel, check_model, load_data, load_tokenizer
from ..driver.stops import find_stops
from ..environments.chat import check_conversation
from ..environments.running import RunningEnvironment, running_environment
from ..errors import InvalidInputError, RunFailedError
from ..messages import Row
from ..reporting import RunPaths
from ..reporting.tracking import check_tracking, enabled, reach_trackers
from ..rewards import markers, reach_services, services, system_prompt
from ..spec import ExitCode, GRPOJobSpec, planned_steps, resolve_reward
from ..spec.environment import EnvironmentSpec
from .light import without_torch
from .start import Start, check_engine, check_files, check_port, check_trainer

_NAME_WIDTH = 10
Rows = dict[str, tuple[Row, ...]]
"""By the name of the data set; the training set is ""."""


def check_start(start: Start) -> int:
    """Run all stages, with a line of output for each.

    Raises InvalidInputError with the faults of all stages.
    """
    spec = start.job.spec
    state = _State(spec, [])
    state.stage("manifest", lambda: start.job.metadata.name)
    state.stage("directory", lambda: _directory(start))
    state.stage("machine", lambda: _machine(start))
    state.stage("trackers", lambda: _tracking(spec))
    rows = state.stage("data", lambda: _data(spec))
    if services(spec):
        state.stage("services", lambda: _services(start))
    roles, environment = None, spec.environment
    if environment is not None:
        roles = state.stage("environment", lambda: _environment(environment))
    model = state.stage("model", lambda: _model(spec, roles))
    if rows is not None and model is not None:
        size = state.stage("prompts", lambda: _prompts(spec, rows, model))
        if size is not None:
            state.stage("disk", lambda: _disk(start, size))
    if state.faults:
        raise InvalidInputError(state.faults)
    return ExitCode.SUCCESS


@dataclass(frozen=True, slots=True)
class Found:
    """What a stage found: a line to show, and what later stages need."""

    text: str
    value: Any


@dataclass(frozen=True, slots=True)
class Model:
    """What the prompts need of a model."""

    tokenizer: Any
    sizes: CheckedModel


@dataclass(frozen=True, slots=True)
class Size:
    """Decides what a run writes; see `driver.disk.RunSize`."""

    parameters: int | None
    total_steps: int


@dataclass(frozen=True, slots=True)
class _State:
    spec: GRPOJobSpec
    faults: list[str]

    def stage(self, name: str, check: Callable[[], str | Found]) -> Any:
        """Run a stage; returns its value, None if it failed or has none."""
        try:
            found = check()
        except (InvalidInputError, RunFailedError) as error:
            faults = error.faults if isinstance(error, InvalidInputError) else (str(error),)
            self.faults.extend(faults)
            print(f"{name:{_NAME_WIDTH}} failed")
            return None
        text, value = (found.text, found.value) if isinstance(found, Found) else (found, None)
        print(f"{name:{_NAME_WIDTH}} ok: {text}", flush=True)
        return value


def _directory(start: Start) -> str:
    finished = finished_message(start.job.spec, RunPaths.of(start.options))
    return finished or f"{start.options.run_dir} ({'resumed' if start.resumes else 'new'})"


def _machine(start: Start) -> str:
    check_trainer(start.job.spec)
    check_port(start)
    check_engine(start.job.spec, start.options)
    return f"port {start.options.port}, engine {start.job.spec.producers.backend}"


def _tracking(spec: GRPOJobSpec) -> str:
    check_tracking(spec)
    reach_trackers(spec)
    return ", ".join(enabled(spec)) or "none"


def _data(spec: GRPOJobSpec) -> Found:
    """Rows and, by its own check, the reward, which is called on some of them."""
    check_files(spec)
    train, evaluation = load_data(spec)
    counts = [
        f"{data.path} {len(rows):,} rows"
        for data, rows in zip(spec.training_sets, train, strict=True)
    ]
    counts += [f"{name} {len(rows):,} rows" for name, rows in evaluation.items()]
    return Found(
        f"{', '.join(counts)}; reward {_reward(spec)}",
        {"": tuple(row for rows in train for row in rows), **evaluation},
    )


def _services(start: Start) -> str:
    """The services of the reward, unless their check is to be skipped."""
    addresses = ", ".join(services(start.job.spec))
    if start.options.skip_checks:
        return f"{addresses} (not called)"
    reach_services(start.job.spec)
    return addresses


def _reward(spec: GRPOJobSpec) -> str:
    return ", ".join(part.name for part in resolve_reward(spec.reward))


def _environment(spec: EnvironmentSpec) -> Found:
    """Reaches the environment, or starts the module and ends it."""

    async def reach() -> RunningEnvironment:
        async with running_environment(spec, Path(os.devnull)) as found:
            return found

    found = asyncio.run(reach())
    capacity = "any number of" if found.capacity is None else f"{found.capacity:,}"
    text = f"{spec.module or spec.url}, {capacity} episodes at a time"
    return Found(text, found.health.roles)


def _model(spec: GRPOJobSpec, roles: tuple[str, ...] | None) -> Found:
    """Configuration and tokenizer; the first run builds a built-in model. The chat template must
    continue a turn with these roles of an environment."""
    path = _model_directory(spec)
    if path is None:
        return Found(f"{spec.model.path} is built by the first run", None)
    with without_torch():
        sizes = check_model(spec, path)
        trust = spec.model.trust_remote_code
        tokenizer = load_tokenizer(spec.model.tokenizer_path or path, trust_remote_code=trust)
        check_markers(tokenizer, markers(spec.reward))
        find_stops((), spec.sampling.stop_token_ids, tokenizer, sizes.vocabulary)
        if roles is not None:
            check_conversation(path, tokenizer, roles, trust_remote_code=trust)
    weights = "weights not on this machine"
    if sizes.parameters is not None:
        weights = f"{sizes.parameters:,} parameters"
    text = f"{spec.model.path}, {weights}, tokenizer of {len(tokenizer):,} tokens"
    return Found(text, Model(tokenizer, sizes))


def _model_directory(spec: GRPOJobSpec) -> str | None:
    check_model_name(spec.model.path)
    if not is_builtin(spec.model.path):
        return spec.model.path
    recipe = tiny_recipe(CompletionFormat.for_reward(spec.reward.main_type), seed=0)
    directory = default_cache() / recipe.name
    return str(directory) if directory.is_dir() else None


def _prompts(spec: GRPOJobSpec, rows: Rows, model: Model) -> Found:
    """Prompts by the chat template, and the steps that they make."""

    def encode(of: tuple[Row, ...]) -> EncodedPrompts:
        if spec.environment is not None:
            return unopened_prompts(of)
        limit, system = spec.sampling.max_prompt_tokens, system_prompt(spec.reward)
        found = encode_prompts(of, model.tokenizer, system=system, max_prompt_tokens=limit)
        check_token_ids(found.prompts, model.tokenizer, model.sizes.vocabulary)
        return found

    train, *_ = [encode(of) for of in rows.values()]
    longest = max(len(prompt.token_ids) for prompt in train.prompts)
    opened = f"longest {longest} tokens of {spec.sampling.max_prompt_tokens}"
    if spec.environment is not None:
        opened = "opened by the environment"
    dropped = f", {train.dropped:,} too long and dropped" if train.dropped else ""
    steps = planned_steps(spec, len(train.prompts))
    text = f"{len(train.prompts):,}{dropped}, {opened}; {steps:,} steps planned"
    return Found(text, Size(model.sizes.parameters, steps))


def _disk(start: Start, size: Size) -> str:
    directory = RunPaths.of(start.options).checkpoints
    existing = len(complete_checkpoints(directory))
    place = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    return check_space(start.job.spec, size, place, existing)
