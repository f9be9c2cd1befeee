"""Causal language models whose parameters are sharded from the first byte."""

from __future__ import annotations

import os
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from grpo_trainer.errors import InvalidInputError, invalid
from grpo_trainer.outages import is_outage

from ..backend import RENDEZVOUS_SECONDS
from ..model_precision import disable_dropout
from ..records import PolicyOptions, Rendezvous

BF16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
FP32 = MixedPrecisionPolicy()


def load_sharded(options: PolicyOptions, path: str, dtype: torch.dtype, *, mixed: bool) -> Any:
    """Load a model of a directory or Hub id; each rank reads its shards only. Collective.

    Args:
        dtype: precision of the shards.
        mixed: compute in bfloat16, and reduce gradients in fp32.

    Raises:
        InvalidInputError: there is no causal language model at the path, or it has no plan.
    """
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.distributed import DistributedConfig

    fsdp, tp = options.dims.data_parallel, options.dims.tensor_parallel
    plan = {"tp_plan": "auto"} if tp > 1 else {}
    split = DistributedConfig(fsdp_size=fsdp, tp_size=tp, fsdp_mixed_precision=mixed, **plan)
    local, trust = Path(path).is_dir(), options.trust_remote_code
    try:
        config = AutoConfig.from_pretrained(path, trust_remote_code=trust, local_files_only=local)
        disable_dropout(config)
        model = AutoModelForCausalLM.from_pretrained(
            path,
            config=config,
            dtype=dtype,
            attn_implementation=attention_for(options, dtype, mixed=mixed),
            distributed_config=split,
            trust_remote_code=trust,
            local_files_only=local,
        )
    except (OSError, ValueError) as error:
        if is_outage(error):
            raise
        must = f"must be a causal language model that can be loaded: {error}"
        raise InvalidInputError(invalid("spec.model.path", path, must)) from error
    if fsdp == 1:
        # transformers shards over two ranks and more, and mixes precisions only where it shards.
        device = options.device
        mesh = model._device_mesh["fsdp"] if tp > 1 else init_device_mesh(device, (1,))
        shard(model.to(device), mesh, BF16 if mixed else FP32)
    model.config.use_cache = False
    return model


def attention_for(options: PolicyOptions, dtype: torch.dtype, *, mixed: bool) -> str | None:
    """flash-attention where it is installed and applies, else the model's own choice.

    A model's own choice is sdpa where its class supports that.
    """
    half = mixed or dtype is torch.bfloat16
    installed = find_spec("flash_attn") is not None
    return "flash_attention_2" if options.device == "cuda" and half and installed else None


def shard(model: Any, mesh: DeviceMesh, policy: MixedPrecisionPolicy) -> None:
    """Apply `fully_shard` to each decoder layer and to what remains.

    Tied embeddings and heads belong to what remains, and so to one group.
    """
    for layer in decoder_layers(model):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def decoder_layers(model: nn.Module) -> list[nn.Module]:
    """The layers of the model's largest list of modules."""
    lists = [m for m in model.modules() if isinstance(m, nn.ModuleList)]
    largest = max(lists, key=lambda m: sum(p.numel() for p in m.parameters()), default=())
    return list(largest)


def fsdp_modules(model: nn.Module) -> list[FSDPModule]:
    return [m for m in model.modules() if isinstance(m, FSDPModule)]


def join(rank: int, world: int, meeting: Rendezvous, device: str) -> None:
    """Join the default process group, in which tensors of the CPU go through gloo."""
    if dist.is_initialized():
        return
    on_cuda = device == "cuda"
    if not on_cuda:
        # Meshes are made for the accelerator that torch sees.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if on_cuda else "gloo",
        f"tcp://{meeting.host}:{meeting.port}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=RENDEZVOUS_SECONDS),
        device_id=torch.device("cuda", 0) if on_cuda else None,
    )
