"""From a spec to token ids: all invalid input is found before an actor starts."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grpo_trainer.builtin import OnProgress, default_cache, resolve_model_path
from grpo_trainer.data import (
    EncodedPrompts,
    check_markers,
    encode_prompts,
    load_rows,
    unopened_prompts,
)
from grpo_trainer.environment import FSDP_TRANSFORMERS, has_fsdp
from grpo_trainer.environments.chat import check_conversation
from grpo_trainer.environments.running import RunningEnvironment
from grpo_trainer.errors import InvalidInputError, invalid
from grpo_trainer.messages import Row, SamplingParams
from grpo_trainer.pipeline.mixture import Mixture
from grpo_trainer.rewards import (
    check_rows,
    markers,
    reach_services,
    renders_prompt,
    row_needs,
    stop_strings,
    system_prompt,
)
from grpo_trainer.rollout.generation_config import read_generation_config
from grpo_trainer.spec import (
    GRPOJobSpec,
    RewardSpec,
    evaluation_reward,
    evaluation_sets,
    planned_steps,
)
from grpo_trainer.spec.training import DatasetSpec

from .evaluated_sets import EvaluatedSet
from .model_support import check_architecture, check_token_ids, padding_id
from .model_weights import count_parameters, stored_directory
from .stops import find_stops

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """The checked data and model of a run."""

    model_path: str
    tokenizer_path: str
    tokenizer: Any
    generation_config: Any | None
    """That of transformers; None for a model without one."""
    pad_token_id: int
    train: EncodedPrompts
    """Of all data sets, one after the other."""
    mixture: Mixture | None
    """Shares of the data sets; None for a single one."""
    evaluation: Mapping[str, EvaluatedSet]
    sampling: SamplingParams
    total_steps: int
    parameters: int | None
    """Of the model, where its weight files are on this machine."""
    environment: RunningEnvironment | None = None
    """That of `spec.environment`."""


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """What the checks of a model have read."""

    vocabulary: int
    """Rows of its embedding."""
    parameters: int | None
    """Where its weight files are on this machine."""


def load_data(spec: GRPOJobSpec) -> tuple[list[tuple[Row, ...]], dict[str, tuple[Row, ...]]]:
    """The checked rows of each data set that is trained on, and of the evaluation sets by name.

    Raises InvalidInputError with the faults of all of them.
    """
    faults: list[str] = []

    def load(data: DatasetSpec, reward: RewardSpec, field: str) -> tuple[Row, ...]:
        try:
            rows = load_rows(data.path, data, row_needs(reward))
            check_rows(rows, reward, field)
        except InvalidInputError as error:
            faults.extend(error.faults)
            return ()
        return rows

    rows = [load(data, spec.reward, "spec.reward") for data in spec.training_sets]
    reward = evaluation_reward(spec)
    field = "spec.reward" if spec.evaluation.reward is None else "spec.evaluation.reward"
    sets = {one.name: load(one.data, reward, field) for one in evaluation_sets(spec)}
    if faults:
        raise InvalidInputError(dict.fromkeys(faults))
    return rows, sets


def prepare(
    spec: GRPOJobSpec,
    on_progress: OnProgress | None = None,
    environment: RunningEnvironment | None = None,
    *,
    skip_checks: bool = False,
) -> Prepared:
    """Check data, model and tokenizer, train a built-in model if necessary, encode all prompts.

    `on_progress` is called while a built-in model is trained, and may end that by raising.
    `skip_checks` leaves out the calls to services of the reward.

    Raises InvalidInputError for data, models, tokenizers and lengths that cannot work, and
    RunFailedError for a service that is not there.
    """
    if not skip_checks:
        reach_services(spec)
    rows, evaluation_rows = load_data(spec)

    def resolve(path: str) -> str:
        return resolve_model_path(path, spec.reward.main_type, default_cache(), on_progress)

    model_path = resolve(spec.model.path)
    model = check_model(spec, model_path)
    tokenizer_path = resolve(spec.model.tokenizer_path or spec.model.path)
    tokenizer = load_tokenizer(tokenizer_path, trust_remote_code=spec.model.trust_remote_code)
    check_markers(tokenizer, dict.fromkeys(markers(spec.reward) + markers(evaluation_reward(spec))))
    rewards = (spec.reward, evaluation_reward(spec))
    system, rendered = system_prompt(spec.reward), any(map(renders_prompt, rewards))
    if environment is not None:
        check_conversation(
            *(model_path, tokenizer, environment.health.roles),
            trust_remote_code=spec.model.trust_remote_code,
        )

    def encode(name: str, of: tuple[Row, ...]) -> EncodedPrompts:
        if environment is not None:
            return unopened_prompts(of)
        limit = spec.sampling.max_prompt_tokens
        encoded = encode_prompts(
            of, tokenizer, system=system, max_prompt_tokens=limit, render=rendered
        )
        if encoded.dropped:
            _log.warning(
                "%s: %d of %d prompts are over maxPromptTokens %d and were dropped",
                *(name, encoded.dropped, len(of), limit),
            )
        return encoded

    sets = [encode(data.path, of) for data, of in zip(spec.training_sets, rows, strict=True)]
    train = EncodedPrompts(
        tuple(prompt for of in sets for prompt in of.prompts), sum(of.dropped for of in sets)
    )
    given = spec.sampling
    stops = find_stops(stop_strings(spec), given.stop_token_ids, tokenizer, model.vocabulary)
    sampling = SamplingParams(
        *(given.temperature, given.top_k, given.top_p, given.max_new_tokens),
        *(stops.strings, stops.token_ids),
    )
    evaluation = {
        one.name: EvaluatedSet(
            encode(one.name, evaluation_rows[one.name]),
            one.samples,
            replace(sampling, temperature=one.temperature, top_k=None, top_p=one.top_p),
        )
        for one in evaluation_sets(spec)
    }
    for encoded in (train, *(of.encoded for of in evaluation.values())):
        check_token_ids(encoded.prompts, tokenizer, model.vocabulary)
    return Prepared(
        model_path=model_path,
        tokenizer_path=tokenizer_path,
        tokenizer=tokenizer,
        generation_config=load_generation_config(model_path),
        pad_token_id=padding_id(tokenizer, model.vocabulary),
        train=train,
        mixture=_mixture(spec, sets),
        evaluation=evaluation,
        sampling=sampling,
        total_steps=planned_steps(spec, len(train.prompts)),
        parameters=model.parameters,
        environment=environment,
    )


def _mixture(spec: GRPOJobSpec, sets: Sequence[EncodedPrompts]) -> Mixture | None:
    if not spec.datasets:
        return None
    mixture = Mixture.of([len(of.prompts) for of in sets], [d.weight for d in spec.datasets])
    for data, size, count in zip(spec.datasets, mixture.sizes, mixture.counts, strict=True):
        _log.info("%s: %d of %d prompts in each pass", data.path, count, size)
    return mixture


def check_model(spec: GRPOJobSpec, path: str) -> CheckedModel:
    """Check that a model of a directory or Hub id can be trained, without loading its weights.

    Raises InvalidInputError for a configuration, context, architecture or weight file that cannot
    work with the spec.
    """
    config = load_config(path, trust_remote_code=spec.model.trust_remote_code)
    check_context(spec, config)
    check_architecture(spec, config)
    directory = stored_directory(path)
    return CheckedModel(
        vocabulary=config.get_text_config().vocab_size,
        parameters=count_parameters(directory) if directory is not None else None,
    )


def load_config(path: str, *, trust_remote_code: bool) -> Any:
    """The configuration of a directory or Hub id; raises InvalidInputError when there is none."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        raise _invalid_model(path, "configuration", error) from error


def check_context(spec: GRPOJobSpec, config: Any) -> None:
    """Raise InvalidInputError if the longest prompt and completion exceed the model's context."""
    limit = getattr(config, "max_position_embeddings", None)
    prompt, completion = spec.sampling.max_prompt_tokens, spec.completion_tokens
    if limit is not None and prompt >= limit:
        must = f"must be less than {limit}, the context of {spec.model.path} in tokens"
        raise InvalidInputError(invalid("spec.sampling.maxPromptTokens", prompt, must))
    if limit is not None and prompt + completion > limit:
        must = (
            f"must be at most {limit - prompt} with maxPromptTokens {prompt}: the context of "
            f"{spec.model.path} has {limit} tokens"
        )
        of_turns = spec.environment is not None
        field = "environment.maxEpisodeTokens" if of_turns else "sampling.maxNewTokens"
        raise InvalidInputError(invalid(f"spec.{field}", completion, must))


def load_tokenizer(path: str, *, trust_remote_code: bool) -> Any:
    """The tokenizer of a directory or Hub id; raises InvalidInputError when there is none."""
    from transformers import AutoTokenizer

    local = Path(path).is_dir()
    try:
        return AutoTokenizer.from_pretrained(
            path, trust_remote_code=trust_remote_code, local_files_only=local
        )
    except (OSError, ValueError) as error:
        raise _invalid_model(path, "tokenizer", error) from error


def load_generation_config(path: str) -> Any | None:
    """That of a directory or Hub id, if it has one; raises InvalidInputError if it is damaged."""
    try:
        return read_generation_config(path)
    except (OSError, ValueError) as error:
        raise _invalid_model(path, "generation configuration", error) from error


def _invalid_model(path: str, part: str, error: Exception) -> InvalidInputError:
    reason = str(error).splitlines()[0] if str(error) else repr(error)
    if "does not recognize this architecture" in reason and not has_fsdp():
        reason += f" consumers.backend: fsdp has transformers {FSDP_TRANSFORMERS}."
    must = f"must be a model with a {part} that can be loaded: {reason}"
    return InvalidInputError(invalid("spec.model.path", path, must))
