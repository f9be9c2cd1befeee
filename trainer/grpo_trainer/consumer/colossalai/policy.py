"""The model being trained, its optimizer and its reference, boosted for this process's layout."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from grpo_trainer.errors import InvalidInputError, invalid
from grpo_trainer.outages import is_outage
from grpo_trainer.spec import Dtype

from ..backend import DeviceBatch, ResponseLogprobs
from ..head import LogprobHead, attach_head, response_logprobs
from ..model_precision import computed_buffers, disable_dropout, restore_buffers
from ..parallel_dims import ParallelDims
from ..records import PolicyOptions
from .optimizer import gradient_norm, make_optimizer
from .plugin import PluginKind, flash_attention_available, make_plugin, plugin_kind


class BoostedModel:
    """A model as its plugin runs it, with the head that computes log-probabilities."""

    def __init__(self, model: Any, module: Any, plugin: Any, options: PolicyOptions) -> None:
        """`model` is what the plugin returned, or the bare model; `module` the bare one."""
        self.model, self.module, self.plugin = model, module, plugin
        self._dims = options.dims
        self._vocabulary: int = module.config.vocab_size
        run = self._run if options.dims.pipeline_parallel == 1 else None
        self.head: LogprobHead = attach_head(
            module, run, options, self._vocabulary, self._full_vocabulary
        )

    def _run(self, ids: Tensor) -> Tensor:
        """What the head returns for right-padded sequences [B, L].

        Padding stands on the right and attention is causal, so no mask is needed: no real token
        sees a padding one.
        """
        logits: Tensor = self.model(input_ids=ids).logits
        return logits

    def logprobs(self, batch: DeviceBatch) -> ResponseLogprobs:
        """Log-probabilities of a micro-batch; without pipeline stages."""
        self.head.expect(batch)
        return response_logprobs(self._run(batch.ids))

    def _full_vocabulary(self, logits: Tensor) -> Tensor:
        """Gather logits [..., V'] that tensor parallelism left split along the vocabulary."""
        if self._dims.tensor_parallel > 1 and logits.shape[-1] < self._vocabulary:
            from colossalai.shardformer.layer._operation import gather_forward_split_backward

            logits = gather_forward_split_backward(logits, -1, self.plugin.tp_group)
        return logits[..., : self._vocabulary]


class Policy:
    """Boosted model and optimizer with the few operations that training needs."""

    def __init__(self, options: PolicyOptions) -> None:
        from colossalai.booster import Booster

        self.options = options
        on_cuda = options.device == "cuda"
        self.device = (
            torch.device("cuda", torch.cuda.current_device()) if on_cuda else torch.device("cpu")
        )
        self.kind = plugin_kind(options.dims, options.dtype)
        torch.manual_seed(options.seed)
        model = load_model(options, options.model_path)
        if options.gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        model.train()
        self._max_norm = options.algorithm.optimizer.max_gradient_norm
        plugin = make_plugin(
            options.dims,
            options.dtype,
            microbatch=options.microbatch,
            on_cuda=on_cuda,
            max_norm=self._max_norm,
        )
        self.booster = Booster(plugin=plugin)
        update = make_optimizer(model, options.algorithm, on_cuda=on_cuda)
        buffers = computed_buffers(model)
        boosted, self.optimizer, *_ = self.booster.boost(model, update)
        if self.kind is not PluginKind.DDP:
            update.wrapper = self.optimizer
        restore_buffers(boosted.unwrap(), buffers)
        self.trained = BoostedModel(boosted, boosted.unwrap(), plugin, options)
        self.reference = self._load_reference() if options.reference_path else None

    def _load_reference(self) -> BoostedModel:
        """The reference policy, split like the model where the model is split."""
        from colossalai.booster import Booster

        options, dims = self.options, self.options.dims
        assert options.reference_path is not None
        model = load_model(options, options.reference_path).eval()
        buffers = computed_buffers(model)
        if dims.tensor_parallel == 1 and dims.pipeline_parallel == 1:
            dtype = torch.float32 if options.dtype is Dtype.FLOAT32 else torch.bfloat16
            model = model.requires_grad_(False).to(self.device, dtype)
            restore_buffers(model, buffers)
            return BoostedModel(model, model, None, options)
        plugin = make_plugin(
            ParallelDims(dims.world, dims.tensor_parallel, dims.pipeline_parallel),
            options.dtype,
            microbatch=options.microbatch,
            on_cuda=options.device == "cuda",
            max_norm=self._max_norm,
        )
        boosted, *_ = Booster(plugin=plugin).boost(model)
        restore_buffers(boosted.unwrap(), buffers)
        return BoostedModel(boosted.eval(), boosted.unwrap(), plugin, options)

    def apply_gradients(self, rate: float) -> float:
        """One optimizer step with the gradient's norm clipped; returns the norm before clipping.

        Gradients whose norm is not finite change nothing.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        if self.kind is PluginKind.DDP:
            norm = float(self.optimizer.clip_grad_by_norm(self._max_norm))
            if math.isfinite(norm):
                self.optimizer.step()
        else:
            self.optimizer.step()
            norm = gradient_norm(self.optimizer)
        self.optimizer.zero_grad()
        return norm

    def can_defer_sync(self) -> bool:
        """Whether gradients may pile up locally and be reduced once; ZeRO-2 keeps no full ones."""
        return self.options.dims.zero_stage < 2


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
