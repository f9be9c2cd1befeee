"""The types of the metric catalogue."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from ..events import StepReport

Reading = float | None | Mapping[str, float]
"""One value, None where there is none, or one value per label."""
Reader = Callable[[StepReport], Reading]


class Kind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Section(StrEnum):
    """Where trackers show a metric."""

    TRAIN = "train"
    ROLLOUT = "rollout"
    EVAL = "eval"
    PERF = "perf"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, by its Prometheus name."""

    name: str
    kind: Kind
    help: str
    read: Reader | None = None
    """Reads its value from the report of a step; None where other events set it."""
    label: str | None = None
    """The name of its label."""
    per_step: bool = False
    """A counter whose reading is the increment of the step, not the total."""
    section: Section = Section.PERF


def gauge(name: str, text: str, read: Reader | None = None, label: str | None = None) -> Metric:
    return Metric(name, Kind.GAUGE, text, read, label)


def counter(
    name: str,
    text: str,
    read: Reader | None = None,
    label: str | None = None,
    per_step: bool = False,
) -> Metric:
    return Metric(name, Kind.COUNTER, text, read, label, per_step)


def in_section(section: Section, *metrics: Metric) -> Iterator[Metric]:
    return (replace(metric, section=section) for metric in metrics)
