"""Counts of a whole optimizer step, and sums that add up to one; nothing of torch."""

import math
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Denominators:
    """What a step's loss is divided by: counted over all micro-batches of all data-parallel ranks.

    Only what is in the numerator is counted, so a masked sample or token leaves both.
    """

    samples: int
    tokens: int


@dataclass(frozen=True, slots=True)
class LossSums:
    """Sums over the tokens that went through the loss; `a + b` joins micro-batches and ranks.

    The importance ratio r of a token is that of the policy to the behaviour policy, before any
    bound.
    """

    tokens: int = 0
    loss: float = 0.0
    """Share of the step's loss, already divided: the parts add up to the loss of the step."""
    kl: float = 0.0
    """KL estimates against the reference policy."""
    entropy: float = 0.0
    ratio: float = 0.0
    """r."""
    ratio_squared: float = 0.0
    """r^2."""
    log_ratio: float = 0.0
    """log r."""
    log_ratio_squared: float = 0.0
    """(log r)^2."""
    max_log_ratio: float = 0.0
    """Largest |log r|; joined by the maximum."""
    behaviour_kl: float = 0.0
    """Estimates r - 1 - log r of KL(behaviour policy, policy)."""
    clipped_low: int = 0
    """Tokens whose ratio was raised to 1 - clip_low."""
    clipped_high: int = 0
    """Tokens whose ratio was lowered to 1 + clip_high or to the importance sampling cap."""
    bounded_weights: int = 0
    """Tokens whose importance weight was truncated or masked by the correction."""

    def __add__(self, other: "LossSums") -> "LossSums":
        mine, theirs = asdict(self), asdict(other)
        joined = {name: mine[name] + theirs[name] for name in mine}
        joined["max_log_ratio"] = max(self.max_log_ratio, other.max_log_ratio)
        return LossSums(**joined)

    def per_token(self, total: float) -> float:
        """Mean of one of the sums, 0 where no token went through the loss."""
        return total / self.tokens if self.tokens else 0.0

    @property
    def log_ratio_std(self) -> float:
        """Standard deviation of log r over tokens."""
        mean = self.per_token(self.log_ratio)
        return math.sqrt(max(0.0, self.per_token(self.log_ratio_squared) - mean**2))

    @property
    def effective_sample_share(self) -> float:
        """Effective sample size over the number of tokens: (sum r)^2 / (n sum r^2), in (0, 1]."""
        squares = self.tokens * self.ratio_squared  # 0 also where every ratio underflows
        return self.ratio**2 / squares if squares else 0.0
