"""What a dashboard consists of, in the words of its reader rather than of Grafana."""

from dataclasses import dataclass
from enum import StrEnum


class Unit(StrEnum):
    """Grafana's names of the units that are used."""

    NUMBER = "short"
    SHARE = "percentunit"
    SECONDS = "s"
    PER_SECOND = "cps"


class Color(StrEnum):
    BLUE = "blue"
    GREEN = "green"
    YELLOW = "yellow"
    RED = "red"


@dataclass(frozen=True, slots=True)
class Levels:
    """A colour from the lowest value on, and others from the values given."""

    base: Color
    above: tuple[tuple[float, Color], ...] = ()


NEUTRAL = Levels(Color.BLUE)


def low_is_good(warning: float, bad: float) -> Levels:
    return Levels(Color.GREEN, ((warning, Color.YELLOW), (bad, Color.RED)))


@dataclass(frozen=True, slots=True)
class Query:
    expr: str
    legend: str
    """Text with labels in braces, as `{{phase}}`."""


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    description: str
    """What it shows, what is good, what is bad and what then to do."""
    queries: tuple[Query, ...]
    unit: Unit = Unit.NUMBER
    levels: Levels = NEUTRAL
    width: int = 8
    """Of 24 columns."""
    height: int = 8
    decimals: int | None = None


@dataclass(frozen=True, slots=True)
class Graph(Panel):
    """Values over time."""

    stacked: bool = False
    maximum: float | None = None


@dataclass(frozen=True, slots=True)
class Stat(Panel):
    """The newest values as large figures."""

    nothing: str = "-"
    """Shown where no series is there."""


@dataclass(frozen=True, slots=True)
class Column:
    """A figure of each row of a table."""

    title: str
    expr: str
    unit: Unit = Unit.NUMBER
    levels: Levels | None = None
    decimals: int = 1


@dataclass(frozen=True, slots=True)
class Table:
    """One row a job, with a link to its own dashboard."""

    title: str
    description: str
    columns: tuple[Column, ...]
    height: int = 9


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading that folds them away."""

    title: str
    panels: tuple[Graph | Stat | Table, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at the top whose values are those of a label."""

    name: str
    label: str
    series: str
    """The series that carry the label of that name."""


@dataclass(frozen=True, slots=True)
class WeightRegistry:
    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()
    time: str = "now-3h"
    window: str = "5m"
    """The time over which rates are averaged, until the reader chooses another."""
