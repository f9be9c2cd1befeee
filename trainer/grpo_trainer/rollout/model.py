"""A transformers model without weights of its own, and how versions are written into it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer
from transformers.utils import is_flash_attn_2_available

from grpo_trainer.weights import TensorEntry, WeightBundle

from .end_of_turn import end_of_turn_ids
from .engine import EngineOptions
from .generation_config import read_generation_config

try:
    from transformers.initialization import no_init_weights
except ModuleNotFoundError:  # transformers 4
    from transformers.modeling_utils import no_init_weights


def build_model(options: EngineOptions) -> PreTrainedModel:
    """The architecture on its device, with parameters that nothing has been written to yet.

    Memory is allocated once and in the working precision. Buffers that no checkpoint carries, such
    as rotary frequencies, are computed as usual; a model moved off the meta device would lack them.
    """
    config = AutoConfig.from_pretrained(
        options.model_path, trust_remote_code=options.trust_remote_code
    )
    flash = options.device == "cuda" and options.dtype != "float32" and is_flash_attn_2_available()
    with no_init_weights(), torch.device(options.device):
        model = AutoModelForCausalLM.from_config(
            config,
            torch_dtype=getattr(torch, options.dtype),
            attn_implementation="flash_attention_2" if flash else "sdpa",
            trust_remote_code=options.trust_remote_code,
        )
    model.tie_weights()
    return model.requires_grad_(False).eval()


def end_of_sequence_ids(
    options: EngineOptions, model: PreTrainedModel, tokenizer: Tokenizer
) -> frozenset[int]:
    """Every token that ends a completion: of the configurations, the tokenizer, the template."""
    sources = [model.config.eos_token_id, tokenizer.eos_token_id]
    generation = read_generation_config(options.model_path)
    if generation is not None:
        sources.append(generation.eos_token_id)
    ids: set[int] = set()
    for source in sources:
        ids.update(source if isinstance(source, list) else [] if source is None else [source])
    return frozenset(ids) | end_of_turn_ids(tokenizer)


def write_weights(model: PreTrainedModel, bundles: Sequence[WeightBundle]) -> int:
    """Copy one version into the model and return it. The bundles are checked before any write.

    Raises:
        ValueError: the bundles differ in version, or are not exactly the model's tensors.
    """
    versions = {bundle.version for bundle in bundles}
    if len(versions) != 1:
        raise ValueError(f"weights: one version at a time, got bundles of {sorted(versions)}")
    check_tensors(model, [entry for bundle in bundles for entry in bundle.entries])
    # Bundles may be mapped read-only from the object store, and tensors over read-only memory are
    # undefined behaviour in torch: each passes through this buffer (pinned, for a fast transfer).
    largest = max(entry.size for bundle in bundles for entry in bundle.entries)
    pinned = model.device.type == "cuda"
    staging = torch.empty(largest, dtype=torch.uint8, pin_memory=pinned)

    def staged() -> Iterator[tuple[TensorEntry, Tensor]]:
        for bundle in bundles:
            for entry, data in bundle.tensors():
                slot = staging[: entry.size]
                slot.numpy()[:] = data
                yield entry, slot.view(getattr(torch, entry.dtype)).view(entry.shape)

    write_tensors(model, staged())
    return versions.pop()


def write_tensors(model: PreTrainedModel, tensors: Iterable[tuple[TensorEntry, Tensor]]) -> None:
    """Copy tensors that were checked into the model, one after the other."""
    targets: dict[str, Tensor] = model.state_dict()
    for entry, tensor in tensors:
        targets[entry.name].copy_(tensor)


def check_tensors(model: PreTrainedModel, entries: Sequence[TensorEntry]) -> None:
    """Raises ValueError unless these are exactly the model's tensors."""
    targets: dict[str, Tensor] = model.state_dict()
    given = {entry.name: entry.shape for entry in entries}
    unknown = given.keys() - targets.keys()
    wrong = {
        f"{name} {list(shape)} instead of {list(targets[name].shape)}"
        for name, shape in given.items()
        if name in targets and shape != targets[name].shape
    }
    # Tied parameters share memory: one name of them is enough.
    written = {targets[name].data_ptr() for name in given.keys() & targets.keys()}
    missing = {name for name, tensor in targets.items() if tensor.data_ptr() not in written}
    faults = {"unknown": unknown, "missing": missing, "wrong shape": wrong}
    if any(faults.values()):
        text = "; ".join(f"{fault}: {', '.join(sorted(n))}" for fault, n in faults.items() if n)
        raise ValueError(f"weights do not fit the model: {text}")
