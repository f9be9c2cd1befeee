"""From a spec to token ids: everything a user can get wrong is found before any model loads."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_trainer.builtin import OnProgress, default_cache, resolve_model_path
from grpo_trainer.data import EncodedPrompts, check_markers, encode_prompts, load_rows
from grpo_trainer.errors import InvalidInputError, invalid
from grpo_trainer.messages import Row, SamplingParams
from grpo_trainer.rewards import check_rows, reward_class, stop_strings, system_prompt
from grpo_trainer.spec import GRPOJobSpec, planned_steps

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A run's data and model, ready to be used."""

    model_path: str
    tokenizer_path: str
    tokenizer: Any
    pad_token_id: int
    train: EncodedPrompts
    evaluation: Mapping[str, EncodedPrompts]
    sampling: SamplingParams
    evaluation_sampling: SamplingParams
    total_steps: int


def load_data(spec: GRPOJobSpec) -> tuple[tuple[Row, ...], dict[str, tuple[Row, ...]]]:
    """Read and check the rows of all data sets; raises InvalidDataError with all their faults."""
    faults: list[str] = []
    sets: dict[str, tuple[Row, ...]] = {}
    paths = {"": spec.dataset.path, **spec.evaluation.datasets}
    for name, path in paths.items():
        try:
            sets[name] = load_rows(path, spec.dataset, spec.reward.type)
            check_rows(sets[name], spec.reward)
        except InvalidInputError as error:
            faults += error.faults
    if faults:
        raise InvalidInputError(faults)
    return sets.pop(""), sets


def prepare(spec: GRPOJobSpec, on_progress: OnProgress | None = None) -> Prepared:
    """Check the data, make a built-in model if one is asked for, and encode all prompts.

    `on_progress` hears of the making of a built-in model, and may end it by raising.

    Raises InvalidInputError for data, tokenizers and lengths that cannot serve.
    """
    rows, evaluation_rows = load_data(spec)

    def resolve(path: str) -> str:
        return resolve_model_path(path, spec.reward.type, default_cache(), on_progress)

    model_path = resolve(spec.model.path)
    check_context(spec, model_path)
    tokenizer_path = resolve(spec.model.tokenizer_path or spec.model.path)
    tokenizer = load_tokenizer(tokenizer_path, trust_remote_code=spec.model.trust_remote_code)
    check_markers(tokenizer, reward_class(spec.reward.type).markers)
    system = system_prompt(spec.reward)

    def encode(name: str, of: tuple[Row, ...]) -> EncodedPrompts:
        limit = spec.sampling.max_prompt_tokens
        encoded = encode_prompts(of, tokenizer, system=system, max_prompt_tokens=limit)
        if encoded.dropped:
            _log.warning(
                "%s: %d of %d prompts are over maxPromptTokens %d and were dropped",
                *(name, encoded.dropped, len(of), limit),
            )
        return encoded

    train = encode(spec.dataset.path, rows)
    sampling, stops = spec.sampling, stop_strings(spec)
    pad = tokenizer.pad_token_id
    return Prepared(
        model_path=model_path,
        tokenizer_path=tokenizer_path,
        tokenizer=tokenizer,
        pad_token_id=tokenizer.eos_token_id if pad is None else pad,
        train=train,
        evaluation={name: encode(name, of) for name, of in evaluation_rows.items()},
        sampling=SamplingParams(
            sampling.temperature, sampling.top_k, sampling.top_p, sampling.max_new_tokens, stops
        ),
        evaluation_sampling=SamplingParams(
            spec.evaluation.temperature, None, 1.0, sampling.max_new_tokens, stops
        ),
        total_steps=planned_steps(spec, len(train.prompts)),
    )


def check_context(spec: GRPOJobSpec, path: str) -> None:
    """Raise InvalidInputError if the longest prompt and completion exceed the model's context."""
    from transformers import AutoConfig

    trust = spec.model.trust_remote_code
    try:
        config = AutoConfig.from_pretrained(path, trust_remote_code=trust)
    except (OSError, ValueError) as error:
        raise _unfit_model(path, "configuration", error) from error
    limit = getattr(config, "max_position_embeddings", None)
    prompt, completion = spec.sampling.max_prompt_tokens, spec.sampling.max_new_tokens
    if limit is not None and prompt + completion > limit:
        must = (
            f"must be at most {limit - prompt} with maxPromptTokens {prompt}: the context of "
            f"{path} has {limit} tokens"
        )
        raise InvalidInputError(invalid("spec.sampling.maxNewTokens", completion, must))


def load_tokenizer(path: str, *, trust_remote_code: bool) -> Any:
    """The tokenizer of a directory or hub id; raises InvalidInputError when there is none."""
    from transformers import AutoTokenizer

    local = Path(path).is_dir()
    try:
        return AutoTokenizer.from_pretrained(
            path, trust_remote_code=trust_remote_code, local_files_only=local
        )
    except (OSError, ValueError) as error:
        raise _unfit_model(path, "tokenizer", error) from error


def _unfit_model(path: str, part: str, error: Exception) -> InvalidInputError:
    reason = str(error).splitlines()[0] if str(error) else repr(error)
    must = f"must be a model with a {part} that can be loaded: {reason}"
    return InvalidInputError(invalid("spec.model.path", path, must))
