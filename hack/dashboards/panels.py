"""The parts of a dashboard, independent of Grafana's JSON model."""

from dataclasses import dataclass
from enum import StrEnum


class Unit(StrEnum):
    """Units, by their name in Grafana."""

    NUMBER = "short"
    SHARE = "percentunit"
    SECONDS = "s"
    PER_SECOND = "suffix:/s"
    PROMPTS_PER_SECOND = "suffix: prompts/s"
    TOKENS_PER_SECOND = "suffix: tokens/s"
    SAMPLES_PER_SECOND = "suffix: samples/s"


class Color(StrEnum):
    BLUE = "blue"
    GREEN = "green"
    YELLOW = "yellow"
    RED = "red"


@dataclass(frozen=True, slots=True)
class Levels:
    """Thresholds: a base colour, and another colour from each value on."""

    base: Color
    above: tuple[tuple[float, Color], ...] = ()


NEUTRAL = Levels(Color.BLUE)


def low_is_good(warning: float, bad: float) -> Levels:
    return Levels(Color.GREEN, ((warning, Color.YELLOW), (bad, Color.RED)))


@dataclass(frozen=True, slots=True)
class Query:
    expr: str
    legend: str
    """Legend text; a label is in braces, as `{{phase}}`."""


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    description: str
    """What it shows, which values are good or bad, and what to do about bad ones."""
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
    """The newest values as large numbers."""

    nothing: str = "-"
    """Shown when there is no series."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str
    expr: str
    unit: Unit = Unit.NUMBER
    levels: Levels | None = None
    decimals: int = 1


@dataclass(frozen=True, slots=True)
class Table:
    """One row per job, with a link to the dashboard of the job."""

    title: str
    description: str
    columns: tuple[Column, ...]
    height: int = 9


@dataclass(frozen=True, slots=True)
class Row:
    """A collapsible row of panels."""

    title: str
    panels: tuple[Graph | Stat | Table, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A dashboard variable with the values of a label."""

    name: str
    label: str
    series: str
    """The series with the label of that name."""


@dataclass(frozen=True, slots=True)
class Dashboard:
    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()
    time: str = "now-3h"
    window: str = "5m"
    """Default of the averaging window of rates."""
