"""`grpo compare`: two runs side by side on the terminal."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.console import Group
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ..flatten import flat
from .run_data import RunData
from .show import CURVES, Part, accuracy, figure, headline, last_mean, printable, whole
from .sparkline import resampled, sparkline

_SUMMARY: tuple[tuple[str, Callable[[Mapping[str, Any]], Any]], ...] = (
    ("outcome", lambda s: s.get("outcome")),
    ("steps", lambda s: s.get("steps")),
    ("samples", lambda s: s.get("samples")),
    ("samples per second", lambda s: s.get("samples_per_second")),
    ("wall seconds", lambda s: s.get("wall_seconds")),
    ("efficiency", lambda s: s.get("efficiency")),
    ("consumers idle", lambda s: s.get("consumer_idle_ratio")),
)


def compare_runs(one: RunData, other: RunData, width: int) -> Group:
    """Configuration differences, results, evaluations and curves on a common scale."""
    return Group(*_parts(one, other, width))


def _parts(one: RunData, other: RunData, width: int) -> Iterator[Part]:
    for letter, run in (("A", one), ("B", other)):
        yield Text(f"{letter}  {headline(run)}", style="bold")
        yield whole(f"   {run.directory}")
    yield Rule("Configuration", align="left")
    yield _differences(one, other)
    if environment := _environments(one, other):
        yield Rule("Environment", align="left")
        yield environment
    yield Rule("Results", align="left")
    yield _results(one, other)
    yield Rule("Curves", align="left")
    yield _curves(one, other, max(10, (width - 50) // 2))


def _differences(one: RunData, other: RunData) -> Table | Text:
    """The fields that the manifests set differently."""
    a, b = (dict(flat(run.manifest.get("spec", {}), "spec")) for run in (one, other))
    return _unequal(a, b, "(default)") or Text("the manifests are equal")


def _environments(one: RunData, other: RunData) -> Table | None:
    """Versions and machines that differ."""
    a, b = (
        {name: value for name, value in run.environment.items() if name != "command"}
        for run in (one, other)
    )
    return _unequal(a, b, "-")


def _unequal(a: Mapping[str, Any], b: Mapping[str, Any], absent: str) -> Table | None:
    names = [name for name in sorted(a.keys() | b.keys()) if a.get(name) != b.get(name)]
    if not names:
        return None
    table = _table()
    for name in names:
        cells = (printable(str(side[name])) if name in side else absent for side in (a, b))
        table.add_row(Text(name), *map(Text, cells))
    return table


def _results(one: RunData, other: RunData) -> Table:
    table = _table()
    for label, read in _SUMMARY:
        table.add_row(label, *(Text(_value(read(run.summary))) for run in (one, other)))
    for label, name in CURVES[:2]:
        curves = [run.curves.get(name) for run in (one, other)]
        cells = ["-" if curve is None else figure(last_mean(curve)) for curve in curves]
        table.add_row(f"{label}, last 10 steps", *cells)
    sets = dict.fromkeys(e.dataset for run in (one, other) for e in run.evaluations)
    for dataset in sets:
        table.add_row(
            Text(f"accuracy on {printable(dataset)}"),
            *(Text(_last_accuracy(run, dataset)) for run in (one, other)),
        )
    return table


def _last_accuracy(run: RunData, dataset: str) -> str:
    of_set = [e for e in run.evaluations if e.dataset == dataset]
    return f"{accuracy(of_set[-1])} at step {of_set[-1].step}" if of_set else "-"


def _curves(one: RunData, other: RunData, width: int) -> Table:
    """Both curves of a metric on one scale; each over all steps of its run."""
    table = _table("last A", "last B")
    for label, name in CURVES:
        curves = [run.curves.get(name) for run in (one, other)]
        points = [p for curve in curves if curve for p in resampled(curve.values, width)]
        if points:
            low, high = min(points), max(points)
            lines = [sparkline(c.values, width, low, high) if c else "" for c in curves]
            last = [figure(c.values[-1]) if c else "-" for c in curves]
            table.add_row(
                label,
                *(Text(line, no_wrap=True) for line in lines),
                *(Text(value, justify="right") for value in last),
            )
    return table


def _table(*columns: str) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row("", *(Text(head, style="bold") for head in ("A", "B", *columns)))
    return table


def _value(value: Any) -> str:
    if value is None:
        return "-"
    return figure(value) if isinstance(value, float) else printable(str(value))
