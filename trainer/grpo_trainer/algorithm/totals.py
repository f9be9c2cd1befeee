"""Counts that hold for a whole optimizer step, and sums that add up to one; nothing of torch."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Denominators:
    """What a step's loss is divided by: counted over all micro-batches of all data-parallel ranks.

    Only what stands in the numerator is counted, so a masked sample or token leaves both.
    """

    samples: int
    tokens: int


@dataclass(frozen=True, slots=True)
class LossSums:
    """Sums over the tokens that went through the loss; `a + b` joins micro-batches and ranks."""

    tokens: int = 0
    loss: float = 0.0
    """Share of the step's loss, already divided: the parts add up to the loss of the step."""
    kl: float = 0.0
    entropy: float = 0.0
    ratio: float = 0.0
    """Importance ratios, before any bound."""
    clipped_low: int = 0
    """Tokens whose ratio was raised to 1 - clip_low."""
    clipped_high: int = 0
    """Tokens whose ratio was lowered to 1 + clip_high or to the importance sampling cap."""

    def __add__(self, other: "LossSums") -> "LossSums":
        return LossSums(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def per_token(self, total: float) -> float:
        """Mean of one of the sums, 0 where no token went through the loss."""
        return total / self.tokens if self.tokens else 0.0
