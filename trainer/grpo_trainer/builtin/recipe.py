"""How the tiny model is built. The values are measured; equal recipes give equal models."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum

from ..spec.reward import RewardType

OnProgress = Callable[[int, int, float], None]
"""Called with completed steps, total steps, and the accuracy on held-out sums."""


class CompletionFormat(StrEnum):
    """The form of the model's completions."""

    BOXED = "boxed"
    THINK_ANSWER_TAGS = "think_answer_tags"
    TOOL_CALL = "tool_call"
    """A guess of a product in a box, or a call of a calculator before it."""

    @classmethod
    def for_reward(cls, reward: RewardType) -> "CompletionFormat":
        """The format of the reward's own name, tool calls for an environment, else boxed."""
        if reward is RewardType.ENVIRONMENT:
            return cls.TOOL_CALL
        return next((form for form in cls if form.value == reward.value), cls.BOXED)


@dataclass(frozen=True, slots=True)
class Recipe:
    """A small Qwen2 and a short supervised warm-up by a careless teacher.

    The teacher forgets most carries and often miscounts the units, so the model learns the format
    and a wrong rule: greedy decoding fails on every sum with a carry, but the right answer is
    sampled often enough for GRPO to reinforce it.
    """

    completion_format: CompletionFormat = CompletionFormat.BOXED
    seed: int = 0
    """Seed of the initial weights, the teacher and the batches."""
    hidden_size: int = 128
    intermediate_size: int = 320
    layers: int = 2
    heads: int = 2
    """Of 64 dimensions, the minimum of vLLM on CPUs; two, for a tensor parallelism of two."""
    forget_carry: float = 0.75
    """Probability that the teacher forgets a carry."""
    slip: float = 0.3
    """Probability that the teacher's units are off by one."""
    answers_per_sum: int = 40
    steps: int = 500
    extra_steps: int = 100
    """Steps of each further round, while the accuracy is too low."""
    extra_rounds: int = 3
    min_accuracy: float = 0.42
    """Least `exact_accuracy` on held-out sums; a perfect imitation of the teacher reaches .453."""
    batch_size: int = 256
    learning_rate: float = 2e-3
    learning_rate_warmup_steps: int = 30
    weight_decay: float = 0.1
    revision: int = 1
    """Incremented when a change of data, teacher, tokenizer or template changes the result."""

    @property
    def name(self) -> str:
        """A directory name that differs for every recipe."""
        values = json.dumps(asdict(self), sort_keys=True)
        return f"tiny-{self.completion_format}-{hashlib.sha256(values.encode()).hexdigest()[:12]}"


def tiny_recipe(completion_format: CompletionFormat, seed: int) -> Recipe:
    """The recipe of `builtin://tiny`."""
    if completion_format is CompletionFormat.BOXED:
        return Recipe(completion_format, seed)
    if completion_format is CompletionFormat.TOOL_CALL:
        # The accuracy is that of calling the calculator, and of using what it answers.
        return Recipe(completion_format, seed, steps=300, min_accuracy=0.2, batch_size=128)
    return Recipe(completion_format, seed, steps=200, min_accuracy=0.40)
