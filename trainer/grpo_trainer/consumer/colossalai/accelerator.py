"""Lets ColossalAI 0.5 train on CPU with gloo.

Its ZeRO, tensor- and pipeline-parallel code asks the accelerator for streams, a current device and
random states, which its CPU accelerator refuses to give. This one answers with the CPU's own, and
is installed by the public `set_accelerator`. On CUDA nothing of this is used.
"""

import contextlib
from typing import Any

import torch
import torch.distributed as dist
from colossalai.accelerator import set_accelerator
from colossalai.accelerator.cpu_accelerator import CpuAccelerator
from torch.distributed import distributed_c10d


class _NoStream:
    """A stream of a device that runs everything in order."""

    def wait_stream(self, _other: Any) -> None: ...

    def synchronize(self) -> None: ...


class CpuTrainingAccelerator(CpuAccelerator):
    """ColossalAI's CPU accelerator with the calls that its training code makes."""

    def __init__(self) -> None:
        super().__init__()
        # The ZeRO optimizer refuses to start on any other name, and looks at nothing else of it.
        self._name = "cuda"

    def synchronize(self, device: Any = None) -> None: ...

    def empty_cache(self) -> None: ...

    def current_device(self) -> torch.device:
        return torch.device("cpu")

    def Stream(self, *_args: Any, **_kwargs: Any) -> _NoStream:  # noqa: N802 - the name is theirs
        return _NoStream()

    def current_stream(self, device: Any = None) -> _NoStream:
        return _NoStream()

    def stream(self, _stream: Any) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.get_rng_state()

    def manual_seed(self, seed: int) -> None:
        torch.default_generator.manual_seed(seed)


def install_cpu_accelerator() -> None:
    """Make ColossalAI train on the CPU in this process; call it before `colossalai.launch`."""
    set_accelerator(CpuTrainingAccelerator())
    # The pipeline's communication names a backend that only some builds of torch know.
    if not hasattr(distributed_c10d.Backend, "HCCL"):
        distributed_c10d.Backend.HCCL = "hccl"  # type: ignore[attr-defined]
    if not hasattr(dist, "is_hccl_available"):
        dist.is_hccl_available = lambda: False  # type: ignore[attr-defined]
