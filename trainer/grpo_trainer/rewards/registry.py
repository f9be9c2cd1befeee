"""From a reward's spec to the classes of its parts, and the defaults that depend on them."""

from collections.abc import Iterable
from importlib import import_module

from ..errors import InvalidInputError
from ..messages import Row
from ..spec import CodeProtection, GRPOJobSpec
from ..spec.reward import RewardPart, RewardSpec, RewardType, resolve_reward
from .base import LocalReward, Reward, RewardFunction, RowNeeds
from .code import Code
from .combine import combine
from .pool import run_blocking
from .remote import RemoteReward, reach_all


def reward_class(reward: RewardType) -> type[Reward]:
    """The class of a reward type, from the module of this package with the same name."""
    found: type[Reward] = import_module(f"{__package__}.{reward.value}").REWARD
    return found


def make_part(part: RewardPart) -> LocalReward:
    """A part that scores in this process, loaded.

    Raises InvalidInputError if a custom function cannot be loaded, or programs cannot be confined.
    """
    reward = reward_class(part.type)(part)
    assert isinstance(reward, LocalReward)
    reward.load()
    return reward


def make_reward(spec: RewardSpec) -> RewardFunction:
    """The function that scores one completion, without deadlines and worker processes.

    Raises as `make_part`.
    """
    parts = resolve_reward(spec)
    loaded = [make_part(part) for part in parts]
    named = bool(spec.parts)
    return lambda text, row: combine(parts, [r.score(text, row) for r in loaded], named=named)


def row_needs(spec: RewardSpec) -> RowNeeds:
    """What the parts read of a row."""
    classes = _classes(spec)
    columns = frozenset(column for c in classes for column in c.columns)
    messages = any(c.needs_messages for c in classes)
    return RowNeeds(columns, any(c.reads_row for c in classes), messages)


def check_rows(rows: Iterable[Row], spec: RewardSpec, field: str = "spec.reward") -> None:
    """Refuse rows that no completion can answer, and a reward that cannot be used.

    `field` is the path of the reward in the manifest. Blocks, also where an event loop runs.
    Raises InvalidDataError and InvalidInputError, with the faults of all parts.
    """
    given, errors = list(rows), list[InvalidInputError]()
    for part in resolve_reward(spec, field):
        try:
            reward_class(part.type)(part).check(given)
        except InvalidInputError as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise InvalidInputError(dict.fromkeys(fault for e in errors for fault in e.faults))


def all_parts(spec: GRPOJobSpec) -> list[RewardPart]:
    """The parts of the training's reward and of the evaluations' own."""
    own = spec.evaluation.reward
    extra = () if own is None else resolve_reward(own, "spec.evaluation.reward")
    return [*resolve_reward(spec.reward), *extra]


def services(spec: GRPOJobSpec) -> list[str]:
    """The addresses of the services that remote parts call."""
    endpoints = [endpoint for part in all_parts(spec) for endpoint in (part.http, part.judge)]
    return list(dict.fromkeys(endpoint.url for endpoint in endpoints if endpoint is not None))


def reach_services(spec: GRPOJobSpec) -> None:
    """Check that the services of remote parts can be reached. Blocks.

    Raises InvalidInputError if one refuses, and RunFailedError if one is not there.
    """
    made = [reward_class(part.type)(part) for part in all_parts(spec)]
    remote = [reward for reward in made if isinstance(reward, RemoteReward)]
    if remote:
        run_blocking(reach_all(remote))


def code_protection(spec: GRPOJobSpec) -> CodeProtection | None:
    """What keeps programs of completions from files on this machine; None where none is run.

    Blocks. Raises InvalidInputError if they cannot be confined.
    """
    loaded = [make_part(part) for part in all_parts(spec) if part.type is RewardType.CODE]
    files = [reward.files for reward in loaded if isinstance(reward, Code)]
    return CodeProtection(files[0]) if files else None


def renders_prompt(spec: RewardSpec) -> bool:
    """Whether a part reads the prompt as the model sees it."""
    return any(found.renders_prompt for found in _classes(spec))


def system_prompt(spec: RewardSpec) -> str:
    """The system message of every prompt; empty adds none."""
    given = spec.system_prompt
    return _classes(spec)[0].system_prompt if given is None else given


def markers(spec: RewardSpec) -> tuple[str, ...]:
    """Texts that the parts read in completions, which the tokenizer has to decode."""
    return tuple(dict.fromkeys(text for found in _classes(spec) for text in found.markers))


def stop_strings(spec: GRPOJobSpec) -> tuple[str, ...]:
    """Texts that end a completion."""
    given = spec.sampling.stop_strings
    return _classes(spec.reward)[0].stop_strings if given is None else given


def max_reward(spec: RewardSpec) -> float:
    """Reward of a completion that is right by every part."""
    return sum(max(part.weight, 0.0) for part in resolve_reward(spec))


def _classes(spec: RewardSpec) -> list[type[Reward]]:
    return [reward_class(part.type) for part in resolve_reward(spec)]
