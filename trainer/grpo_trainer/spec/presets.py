"""The algorithm presets: one row of defaults for each name, with the paper they are taken from."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from .algorithm import (
    Advantage,
    AlgorithmName,
    AlgorithmSpec,
    ImportanceRatio,
    KlForm,
    LossAggregation,
    LossForm,
)


@dataclass(frozen=True, slots=True)
class Preset:
    """Defaults of an algorithm; those of GRPO are the original script's."""

    source: str = "https://arxiv.org/abs/2402.03300"
    advantage: Advantage = Advantage.GROUP_NORMALIZED
    importance_ratio: ImportanceRatio = ImportanceRatio.TOKEN
    loss_form: LossForm = LossForm.CLIPPED
    loss_aggregation: LossAggregation = LossAggregation.SAMPLE
    clip_low: float = 0.2
    clip_high: float = 0.2
    kl_coefficient: float = 0.01
    kl_form: KlForm = KlForm.K3
    dynamic_sampling: bool = False
    overlong: bool = False
    """Both the penalty for long completions and the mask of truncated ones."""


PRESET_FIELDS = tuple(
    name
    for name, field in AlgorithmSpec.model_fields.items()
    if field.default is None and name in Preset.__dataclass_fields__
)
"""Fields of the algorithm whose value is the preset's when absent."""

_GRPO = Preset()

PRESETS: Mapping[AlgorithmName, Preset] = {
    AlgorithmName.GRPO: _GRPO,
    AlgorithmName.DAPO: Preset(
        source="https://arxiv.org/abs/2503.14476",
        loss_aggregation=LossAggregation.TOKEN,
        clip_high=0.28,
        kl_coefficient=0.0,
        dynamic_sampling=True,
        overlong=True,
    ),
    AlgorithmName.DR_GRPO: replace(
        _GRPO,
        source="https://arxiv.org/abs/2503.20783",
        advantage=Advantage.GROUP_CENTERED,
        loss_aggregation=LossAggregation.CONSTANT,
        kl_coefficient=0.0,
    ),
    AlgorithmName.GSPO: replace(
        _GRPO,
        source="https://arxiv.org/abs/2507.18071",
        importance_ratio=ImportanceRatio.SEQUENCE,
        clip_low=3e-4,
        clip_high=4e-4,
        kl_coefficient=0.0,
    ),
    # MiniMax-M1 sets no lower bound and publishes no upper one; weights up to 5 are among those
    # that https://arxiv.org/abs/2510.13786 compares.
    AlgorithmName.CISPO: replace(
        _GRPO,
        source="https://arxiv.org/abs/2506.13585",
        loss_form=LossForm.WEIGHTED,
        loss_aggregation=LossAggregation.TOKEN,
        clip_low=1.0,
        clip_high=4.0,
        kl_coefficient=0.0,
    ),
    AlgorithmName.RLOO: replace(
        _GRPO,
        source="https://arxiv.org/abs/2402.14740",
        advantage=Advantage.LEAVE_ONE_OUT,
        loss_aggregation=LossAggregation.CONSTANT,
        kl_form=KlForm.K2,
    ),
    AlgorithmName.REINFORCE_PLUS_PLUS: replace(
        _GRPO,
        source="https://arxiv.org/abs/2501.03262",
        advantage=Advantage.BATCH_NORMALIZED,
        loss_aggregation=LossAggregation.TOKEN,
        kl_form=KlForm.K2,
    ),
}
