"""What a producer requires of an inference engine."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from grpo_trainer.messages import GenerationRequest, Rollout
from grpo_trainer.transport.plan import GroupMember
from grpo_trainer.weights import WeightBundle


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What an engine loads, and where it runs."""

    model_path: str
    """Directory or hub id. Only the configuration is read there, never the weights."""
    tokenizer_path: str
    dtype: str
    """Working precision: `float32` or `bfloat16`."""
    device: str
    """`cpu` or `cuda`."""
    microbatch: int
    """Prompts that are generated for together."""
    microbatch_completions: int = 0
    """More prompts than that are, while they ask for at most this many completions in all: a prompt
    of an evaluation is answered once, and would leave most of the device unused."""
    trust_remote_code: bool = False
    max_tokens: int | None = None
    """Longest prompt with its longest completion, for engines that reserve memory; None: the
    model's."""
    tensor_parallel_size: int = 1
    """Accelerators of this engine."""
    in_flight_updates: bool = False
    """New weights interrupt the completions under way instead of waiting for their end."""
    gpu_memory_utilization: float = 0.9
    """Share of an accelerator's memory that the engine may take."""
    cpu_cache_bytes: int = 256 * 2**20
    """For keys and values, where the engine runs on the CPU."""


class RolloutEngine(Protocol):
    """Answers prompts one by one, batched behind the scenes; weights may change in between.

    Requests and weights arrive from one event loop; many requests may be in flight at once.
    """

    @property
    def version(self) -> int | None:
        """Weight version that new tokens are drawn with; None before the first one."""

    @property
    def busy_seconds(self) -> float:
        """Seconds spent generating since the start, up to this moment."""

    async def ready(self) -> None:
        """Wait until all of it works; the engine's processes end with this one from then on."""

    async def generate(self, request: GenerationRequest) -> Rollout:
        """Answer one prompt. Waits while there are no weights.

        Raises:
            EngineClosedError: the engine was closed before the answer was complete.
        """

    async def load_weights(self, bundles: Sequence[WeightBundle]) -> float:
        """Switch to a version, given whole: one bundle, or one of each pipeline stage.

        No forward pass sees a mixture of versions. Returns the seconds that generation stood still.

        Raises:
            ValueError: the bundles differ in version, or are not this model's tensors.
        """

    async def join_group(self, members: Sequence[GroupMember]) -> None:
        """Become a receiver of broadcasts, in the group of each pipeline stage.

        Raises:
            RuntimeError: the groups did not come together.
        """

    async def receive_weights(self, version: int) -> float:
        """Switch to a version that is broadcast to the groups joined last.

        Returns the seconds that generation stood still. A broadcast that breaks off leaves the
        engine without weights; one that does not begin leaves it the weights it had.

        Raises:
            RuntimeError: there was no broadcast, or not all of it.
            ValueError: these are not this model's tensors.
        """

    async def close(self) -> None:
        """Fail what is unanswered and let go of the device."""


class EngineClosedError(RuntimeError):
    """The engine was closed before the answer was complete."""
