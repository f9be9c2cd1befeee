"""The model being trained, its optimizer and its reference, boosted for this process's layout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from grpo_trainer.algorithm.schedule import learning_rate
from grpo_trainer.errors import InvalidInputError, invalid
from grpo_trainer.outages import is_outage
from grpo_trainer.spec import Dtype, ResolvedAlgorithm

from .model_precision import computed_buffers, disable_dropout, restore_buffers
from .optimizer import GuardedAdamW
from .parallel_dims import (
    ParallelDims,
    PluginKind,
    flash_attention_available,
    make_plugin,
    plugin_kind,
)


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """What a training process builds."""

    layout: ParallelDims
    rank: int
    model_path: str
    """Directory or hub id of the weights to start from."""
    reference_path: str | None
    """Weights of the reference policy; None keeps none."""
    dtype: Dtype
    gradient_checkpointing: bool
    trust_remote_code: bool
    algorithm: ResolvedAlgorithm
    temperature: float
    top_k: int | None
    top_p: float
    microbatch: int
    total_steps: int
    seed: int
    device: str
    """`cpu` or `cuda`."""
    trace_directory: str | None = None
    """Where traces of the first steps go; None writes none."""


class Policy:
    """Boosted model and optimizer with the few operations that training needs."""

    def __init__(self, options: PolicyOptions) -> None:
        from colossalai.booster import Booster

        self.options = options
        on_cuda = options.device == "cuda"
        self.device = (
            torch.device("cuda", torch.cuda.current_device()) if on_cuda else torch.device("cpu")
        )
        self.kind = plugin_kind(options.layout, options.dtype)
        torch.manual_seed(options.seed)
        model = load_model(options, options.model_path)
        if options.gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        model.train()
        self.vocab_size: int = model.config.vocab_size
        self._max_norm = options.algorithm.optimizer.max_gradient_norm
        plugin = make_plugin(
            options.layout,
            options.dtype,
            microbatch=options.microbatch,
            on_cuda=on_cuda,
            max_norm=self._max_norm,
        )
        self.booster = Booster(plugin=plugin)
        self.plugin = plugin
        self._update = make_optimizer(model, options.algorithm, on_cuda=on_cuda)
        buffers = computed_buffers(model)
        self.model, self.optimizer, *_ = self.booster.boost(model, self._update)
        restore_buffers(self.module, buffers)
        self.reference = self._load_reference() if options.reference_path else None

    def _load_reference(self) -> Any:
        """The reference policy, split like the model where the model is split."""
        from colossalai.booster import Booster

        options, layout = self.options, self.options.layout
        assert options.reference_path is not None
        model = load_model(options, options.reference_path).eval()
        if layout.tensor_parallel == 1 and layout.pipeline_parallel == 1:
            dtype = torch.float32 if options.dtype is Dtype.FLOAT32 else torch.bfloat16
            buffers = computed_buffers(model)
            model = model.requires_grad_(False).to(self.device, dtype)
            restore_buffers(model, buffers)
            return model
        self.reference_plugin = make_plugin(
            ParallelDims(layout.world, layout.tensor_parallel, layout.pipeline_parallel),
            options.dtype,
            microbatch=options.microbatch,
            on_cuda=options.device == "cuda",
            max_norm=self._max_norm,
        )
        buffers = computed_buffers(model)
        boosted, *_ = Booster(plugin=self.reference_plugin).boost(model)
        restore_buffers(boosted.unwrap(), buffers)
        return boosted.eval()

    def logits(self, model: Any, input_ids: Tensor) -> Tensor:
        """Full-vocabulary logits [B, L, V] of right-padded sequences.

        Padding stands on the right and attention is causal, so no mask is needed: no real token
        sees a padding one.
        """
        return self.full_vocabulary(model(input_ids=input_ids).logits)

    def full_vocabulary(self, logits: Tensor) -> Tensor:
        """Gather logits that tensor parallelism left split along the vocabulary."""
        if self.options.layout.tensor_parallel > 1:
            from colossalai.shardformer.layer._operation import gather_forward_split_backward

            if logits.shape[-1] < self.vocab_size:
                logits = gather_forward_split_backward(logits, -1, self.plugin.tp_group)
        return logits[..., : self.vocab_size]

    def set_learning_rate(self, step: int) -> float:
        """Set and return the learning rate of the given step."""
        rate = learning_rate(step, self.options.total_steps, self.options.algorithm)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        return rate

    def apply_gradients(self) -> float:
        """One optimizer step with the gradient's norm clipped; returns the norm before clipping.

        Gradients that are not finite change nothing: see `skipped`.
        """
        if self.kind is PluginKind.DDP:
            norm = float(self.optimizer.clip_grad_by_norm(self._max_norm))
            self.optimizer.step()
        else:
            self.optimizer.step()
            norm = float(self.optimizer.get_grad_norm() or 0.0)
        self.optimizer.zero_grad()
        return norm

    @property
    def skipped(self) -> bool:
        """Whether the last step was left out, on all ranks, for gradients that are not finite."""
        return self._update.skipped

    def can_defer_sync(self) -> bool:
        """Whether gradients may pile up locally and be reduced once; ZeRO-2 keeps no full ones."""
        return self.options.layout.zero_stage < 2

    @property
    def module(self) -> Any:
        """The bare model of this rank's stage and tensor slice."""
        return self.model.unwrap()


def load_model(options: PolicyOptions, path: str) -> Any:
    """Load a causal language model in fp32; the plugin casts it where it keeps master weights.

    Raises InvalidInputError when there is none at the path.
    """
    attention = "sdpa"
    if options.device == "cuda" and options.dtype is Dtype.BFLOAT16 and flash_attention_available():
        attention = "flash_attention_2"
    try:
        # From bf16, masters would start rounded: load at full precision wherever the file has it.
        trust, local = options.trust_remote_code, Path(path).is_dir()
        config = AutoConfig.from_pretrained(path, trust_remote_code=trust, local_files_only=local)
        disable_dropout(config)
        model = AutoModelForCausalLM.from_pretrained(
            path,
            config=config,
            torch_dtype=torch.float32,
            attn_implementation=attention,
            trust_remote_code=trust,
            local_files_only=local,
        )
    except (OSError, ValueError) as error:
        if is_outage(error):
            raise
        must = f"must be a causal language model that can be loaded: {error}"
        raise InvalidInputError(invalid("spec.model.path", path, must)) from error
    model.config.use_cache = False
    return model


def make_optimizer(model: Any, algorithm: ResolvedAlgorithm, *, on_cuda: bool) -> GuardedAdamW:
    """AdamW, fused on CUDA by torch's own kernels: HybridAdam's would need nvcc at run time."""
    options = algorithm.optimizer
    return GuardedAdamW(
        [p for p in model.parameters() if p.requires_grad],
        lr=algorithm.learning_rate,
        betas=(options.beta1, options.beta2),
        weight_decay=options.weight_decay,
        fused=on_cuda,
    )
