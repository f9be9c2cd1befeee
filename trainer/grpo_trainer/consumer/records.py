"""What crosses between the driver and the training processes; nothing of torch."""

from dataclasses import dataclass
from typing import Any

from grpo_trainer.algorithm.totals import LossSums
from grpo_trainer.messages import Floats
from grpo_trainer.spec import ConsumerBackend, Dtype, ResolvedAlgorithm

from .parallel_dims import ParallelDims


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where the processes of a run meet."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """What a training process builds."""

    dims: ParallelDims
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
    backend: ConsumerBackend = ConsumerBackend.COLOSSALAI
    trace_directory: str | None = None
    """Where traces of the first steps go; None writes none."""


@dataclass(frozen=True, slots=True)
class DeltaReference:
    """A delta in the object store, of one pipeline stage."""

    base: int
    """The version that it is to be applied to."""
    size: int
    """Bytes of the delta."""
    full_size: int
    """Bytes of the stage."""
    reference: Any


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one rank reports of a step."""

    sums: LossSums
    """Of this rank's shard; zero on ranks that see no log-probabilities."""
    gradient_norm: float
    learning_rate: float
    skipped: bool = False
    """Whether the weights are as before, for gradients that are not finite."""
    seconds: float = 0.0
    log_ratios: tuple[Floats, ...] = ()
    """[B, L] of each micro-batch of this rank's shard: log of the importance ratio, 0 off the mask.
    Empty unless requested, and on ranks that see no log-probabilities."""
