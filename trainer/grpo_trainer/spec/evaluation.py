"""What a run is evaluated on."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from .base import NonEmptyStr, NonNegativeFloat, PositiveInt, Record
from .reward import RewardSpec
from .training import DatasetSpec

if TYPE_CHECKING:
    from .job import GRPOJobSpec

TopP = Annotated[float, Field(gt=0, le=1)]


class EvaluationSetSpec(DatasetSpec):
    path: NonEmptyStr
    """JSONL or parquet file on the volume, or `builtin://addition-held-out`."""
    name: NonEmptyStr
    """Label of the set in metrics and files."""
    samples: PositiveInt | None = None
    """Completions for each row; the evaluation's when absent."""
    temperature: NonNegativeFloat | None = None
    """Sampling temperature, 0 is greedy; the evaluation's when absent."""
    top_p: TopP | None = None
    """Sample from the smallest set of tokens with this mass; the evaluation's when absent."""


class EvaluationSpec(Record):
    datasets: dict[NonEmptyStr, NonEmptyStr] = Field(default_factory=dict)
    """Name of each evaluation set and its path (`builtin://addition-held-out` too), with the
    columns of `dataset`."""
    sets: Annotated[tuple[EvaluationSetSpec, ...], Field(max_length=32)] = ()
    """Evaluation sets with columns and sampling of their own; several may have one path."""
    interval: Annotated[int, Field(ge=0)] = 100
    """Steps between evaluations, in addition to step 0 and the last one; 0 disables all."""
    samples: PositiveInt = 1
    """Completions for each row; more of them give avg@n and pass@k."""
    temperature: NonNegativeFloat = 0.6
    """Sampling temperature of evaluations; 0 is greedy."""
    top_p: TopP = 1.0
    """Sample from the smallest set of tokens with this mass."""
    reward: RewardSpec | None = None
    """How evaluations are scored; as the training when absent."""


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    """An evaluation set with every default filled in."""

    name: str
    data: DatasetSpec
    samples: int
    temperature: float
    top_p: float


def evaluation_sets(spec: "GRPOJobSpec") -> tuple[EvaluationSet, ...]:
    """The sets of a spec: those with a path alone first."""
    given = spec.evaluation
    plain = [
        EvaluationSet(
            name=name,
            data=spec.dataset.model_copy(update={"path": path}),
            samples=given.samples,
            temperature=given.temperature,
            top_p=given.top_p,
        )
        for name, path in given.datasets.items()
    ]
    own = [
        EvaluationSet(
            name=one.name,
            data=one,
            samples=one.samples or given.samples,
            temperature=given.temperature if one.temperature is None else one.temperature,
            top_p=one.top_p or given.top_p,
        )
        for one in given.sets
    ]
    return (*plain, *own)


def evaluation_reward(spec: "GRPOJobSpec") -> RewardSpec:
    """How the evaluations of a spec are scored."""
    return spec.evaluation.reward or spec.reward
