"""What is optimized: the preset, and the fields that override parts of it."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from .base import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Record


class AlgorithmName(StrEnum):
    """A preset; its values are in `presets.py`."""

    GRPO = "GRPO"
    DAPO = "DAPO"
    DR_GRPO = "DrGRPO"
    GSPO = "GSPO"
    CISPO = "CISPO"
    RLOO = "RLOO"
    REINFORCE_PLUS_PLUS = "REINFORCE++"


class Advantage(StrEnum):
    """How a reward R becomes an advantage, over the completions of its group."""

    GROUP_NORMALIZED = "groupNormalized"
    """(R - mean) / std."""
    GROUP_CENTERED = "groupCentered"
    """R - mean."""
    LEAVE_ONE_OUT = "leaveOneOut"
    """R - mean of the group's other rewards."""
    BATCH_NORMALIZED = "batchNormalized"
    """R - mean, then normalized over all tokens of the step."""


class ImportanceRatio(StrEnum):
    TOKEN = "token"
    """Of each token."""
    SEQUENCE = "sequence"
    """Of the completion: the geometric mean over its tokens."""


class LossForm(StrEnum):
    CLIPPED = "clipped"
    """-min(r A, clip(r) A): a clipped token has no gradient."""
    WEIGHTED = "weighted"
    """-clip(r) A log p with a constant weight: every token has a gradient."""


class LossAggregation(StrEnum):
    SAMPLE = "sample"
    """Mean over completions of the mean over their tokens."""
    TOKEN = "token"
    """Mean over tokens."""
    CONSTANT = "constant"
    """Mean over completions of the sum over their tokens, over maxNewTokens."""


class KlForm(StrEnum):
    """Estimate of the KL term, with x = log(policy / reference)."""

    K1 = "k1"
    """x."""
    K2 = "k2"
    """x^2 / 2."""
    K3 = "k3"
    """exp(-x) + x - 1."""


class DynamicSamplingSpec(Record):
    enabled: bool | None = None
    """Replace groups without a learning signal: those whose trained rewards are all equal. On for
    DAPO, off for the others when absent."""
    min_accuracy: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Also replace groups with a mean accuracy of at most this; 0 sets no bound."""
    max_accuracy: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Also replace groups with a mean accuracy of at least this; 1 sets no bound."""
    max_attempts: PositiveInt = 5
    """A step generates at most this many times its groups, then trains on those that were kept."""


class OverlongSpec(Record):
    enabled: bool | None = None
    """Soft penalty for long completions. On for DAPO, off for the others when absent."""
    buffer_tokens: PositiveInt | None = None
    """Tokens before the limit over which the penalty grows; min(1024, maxNewTokens / 4) when
    absent."""
    penalty: PositiveFloat | None = None
    """Subtracted from the reward of a completion at the limit. Half the maximum reward when absent,
    as in DAPO: 5, or 0.5 with a custom reward."""
    mask_truncated: bool | None = None
    """Mask completions that were truncated at the token limit. On for DAPO, off for the others when
    absent."""


class Schedule(StrEnum):
    """Learning rate after the warm-up."""

    CONSTANT = "constant"
    LINEAR = "linear"
    COSINE = "cosine"


class OptimizerSpec(Record):
    """AdamW; the defaults are the original script's."""

    warmup_steps: NonNegativeInt = 0
    """Steps over which the learning rate rises linearly to its peak."""
    schedule: Schedule = Schedule.COSINE
    """Decay from the peak to minLearningRate at the last planned step, or none."""
    min_learning_rate: NonNegativeFloat | None = None
    """Learning rate at the end of the decay; a tenth of the peak when absent."""
    weight_decay: NonNegativeFloat = 0.0
    """Decoupled weight decay."""
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Decay rate of the first moment."""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    """Decay rate of the second moment."""
    max_gradient_norm: PositiveFloat = 1.0
    """The gradient is scaled down to this norm."""


class CorrectionWeights(StrEnum):
    """Weights of the policy at the start of the step over the behaviour policy."""

    NONE = "none"
    """The importance ratio is that of the policy to the behaviour policy, as in PPO."""
    TRUNCATED = "truncated"
    """Weights of at most maxWeight."""
    MASKED = "masked"
    """Weights outside [minWeight, maxWeight] are 0."""


class WeightLevel(StrEnum):
    TOKEN = "token"
    """Of each token."""
    SEQUENCE = "sequence"
    """Of the completion: the product over its tokens."""


class CorrectionSpec(Record):
    """Correction for completions of another policy: an older version, or the engine's numerics."""

    weights: CorrectionWeights = CorrectionWeights.NONE
    """Weight the loss of each token by truncated or masked importance weights, and take the
    importance ratio to the policy at the start of the step (decoupled PPO)."""
    level: WeightLevel = WeightLevel.TOKEN
    """Weights of tokens or of whole completions."""
    max_weight: Annotated[float, Field(ge=1)] = 2.0
    """Largest weight."""
    min_weight: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Smallest weight that is not masked."""


class AlgorithmSpec(Record):
    name: AlgorithmName = AlgorithmName.GRPO
    """Preset: the defaults of the fields below that have none of their own."""
    learning_rate: PositiveFloat = 1e-6
    """Peak learning rate."""
    advantage: Advantage | None = None
    """How rewards become advantages; the preset's when absent."""
    importance_ratio: ImportanceRatio | None = None
    """Importance ratio of tokens or of sequences; the preset's when absent."""
    loss_form: LossForm | None = None
    """Clipped surrogate, or log-probabilities with clipped weights; the preset's when absent."""
    loss_aggregation: LossAggregation | None = None
    """Mean over samples of their token means, mean over tokens, or division by a constant length;
    the preset's when absent."""
    clip_low: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Lower bound of the importance ratio: 1 - clipLow; the preset's when absent."""
    clip_high: PositiveFloat | None = None
    """Upper bound of the importance ratio: 1 + clipHigh; the preset's when absent."""
    importance_sampling_cap: Annotated[float, Field(ge=1)] = 2.0
    """Upper bound of the importance ratio of a token with a negative advantage, in the clipped
    form."""
    kl_coefficient: NonNegativeFloat | None = None
    """Weight of the KL term; the preset's when absent. 0 keeps no reference policy."""
    kl_form: KlForm | None = None
    """Estimate of the KL term; the preset's when absent."""
    entropy_coefficient: NonNegativeFloat = 0.0
    """Weight of the entropy bonus, which is subtracted from the loss."""
    correction: CorrectionSpec = CorrectionSpec()
    """Importance weights of stale or numerically different completions."""
    dynamic_sampling: DynamicSamplingSpec = DynamicSamplingSpec()
    """Which groups are trained on."""
    overlong: OverlongSpec = OverlongSpec()
    """Treatment of long completions."""
    optimizer: OptimizerSpec = OptimizerSpec()
    """AdamW and the schedule of its learning rate."""
