#!/usr/bin/env python3
# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib>=3.9"]
# ///
"""Draws the rows of a dashboard from the data of a Prometheus server, without Grafana.

    uv run hack/dashboards/draw.py DASHBOARD.json URL BEGIN END OUT_PREFIX [NAME=VALUE...]

BEGIN and END are Unix times in seconds; NAME=VALUE sets a dashboard variable. Each row is written
to OUT_PREFIX-<row>.png. The project does not need matplotlib, so the script declares it for uv.
"""

import json
import math
import re
import sys
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

Panel = dict[str, Any]

_COLORS = ("#3274d9", "#e0752d", "#56a64b", "#a352cc", "#e02f44", "#f2cc0c", "#00a3a3", "#8f8f8f")
_NAMED = {"blue": "#3274d9", "green": "#56a64b", "yellow": "#d9a406", "red": "#e02f44"}
_STEPS = 240
_INCHES_PER_COLUMN, _INCHES_PER_LINE = 0.6, 0.38
_SECONDS = ((1e3, "ms"), (1.0, "s"), (1 / 60, "min"))
_SUFFIX = "suffix:"
"""Prefix of a unit of our own in Grafana; it is shown in the title, ticks are plain numbers."""
_CARD, _GRID, _TEXT = "#f5f6f8", "#dfe2e6", "#24292e"


@dataclass(frozen=True)
class Line:
    legend: str
    times: list[float]
    """Minutes since BEGIN."""
    values: list[float]


@dataclass(frozen=True)
class Source:
    """A Prometheus server, a time range and the values of the dashboard variables."""

    url: str
    begin: float
    end: float
    choices: Mapping[str, str]

    def lines(self, target: Mapping[str, Any]) -> list[Line]:
        """The series of a query over the time range."""
        expr = re.sub(r"\$(\w+)", lambda found: self.choices[found[1]], target["expr"])
        step = (self.end - self.begin) / _STEPS
        parameters = {"query": expr, "start": self.begin, "end": self.end, "step": step}
        url = f"{self.url}/api/v1/query_range?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=60) as response:
            found = json.load(response)["data"]["result"]
        return [self._line(target["legendFormat"], series) for series in found]

    def _line(self, legend: str, series: Mapping[str, Any]) -> Line:
        labels = series["metric"]
        text = re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), legend)
        known = {
            round((float(t) - self.begin) * _STEPS / (self.end - self.begin)): float(v)
            for t, v in series["values"]
        }
        # A step without a value is a gap in the line.
        values = [known.get(i, math.nan) for i in range(_STEPS + 1)]
        minutes = (self.end - self.begin) / 60
        return Line(text, [i * minutes / _STEPS for i in range(_STEPS + 1)], values)


def rows(dashboard: Mapping[str, Any]) -> dict[str, list[Panel]]:
    """The panels of each row, by its title."""
    found: dict[str, list[Panel]] = {}
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            found[panel["title"]] = below = []
        else:
            below.append(panel)
    return found


def draw_row(title: str, panels: list[Panel], source: Source) -> Figure:
    top = min(p["gridPos"]["y"] for p in panels)
    lines = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in panels) - top
    size = (24 * _INCHES_PER_COLUMN, lines * _INCHES_PER_LINE + 0.4)
    figure = pyplot.figure(figsize=size, dpi=100, facecolor="white")
    figure.text(0.01, 1 - 0.12 / size[1], title, fontsize=13, weight="bold", color=_TEXT, va="top")
    for panel in panels:
        at = panel["gridPos"]
        inches = (
            at["x"] * _INCHES_PER_COLUMN,
            (lines - (at["y"] - top) - at["h"]) * _INCHES_PER_LINE,
            at["w"] * _INCHES_PER_COLUMN,
            at["h"] * _INCHES_PER_LINE,
        )
        shown = [line for target in panel["targets"] for line in source.lines(target)]
        _draw(figure, inches, panel, shown)
    return figure


def _draw(
    figure: Figure, inches: tuple[float, float, float, float], panel: Panel, lines: list[Line]
) -> None:
    """Draw a panel into a rectangle: left, bottom, width and height in inches."""
    wide, high = figure.get_size_inches()

    def inside(left: float, bottom: float, right: float, top: float) -> tuple[float, ...]:
        """The rectangle without these margins, in shares of the figure."""
        x, y, width, height = inches
        return (
            (x + left) / wide,
            (y + bottom) / high,
            (width - left - right) / wide,
            (height - bottom - top) / high,
        )

    x, y, width, height = inside(0.04, 0.04, 0.04, 0.04)
    figure.add_artist(Rectangle((x, y), width, height, facecolor=_CARD, zorder=-1))
    figures = panel["type"] == "stat"
    margins = (0.15, 0.25, 0.15, 0.45) if figures else (0.62, 0.72, 0.3, 0.48)
    axes = figure.add_axes(inside(*margins), facecolor=_CARD)
    unit = panel["fieldConfig"]["defaults"]["unit"]
    title = panel["title"] + (f" [{unit.removeprefix(_SUFFIX).strip()}]" if _SUFFIX in unit else "")
    axes.set_title(title, loc="left", fontsize=10, color=_TEXT)
    (_figures if figures else _graph)(axes, panel, lines)


def _figures(axes: Axes, panel: Panel, lines: list[Line]) -> None:
    """The newest value of each line, in the colour of its threshold."""
    axes.axis("off")
    size = 19 if panel["gridPos"]["w"] > 2 else 15
    defaults = panel["fieldConfig"]["defaults"]
    for i, line in enumerate(lines):
        value = next(v for v in reversed(line.values) if not math.isnan(v))
        at = (i + 0.5) / len(lines)
        color = _NAMED[_level(defaults["thresholds"]["steps"], value)]
        text = _text(value, defaults["unit"], defaults.get("decimals"))
        axes.text(
            at, 0.45, text, fontsize=size, weight="bold", color=color, ha="center", va="center"
        )
        if len(lines) > 1:
            axes.text(at, -0.05, line.legend, fontsize=8, color=_TEXT, ha="center")
    if not lines:
        axes.text(0.5, 0.45, defaults["noValue"], fontsize=19, color=_TEXT, ha="center")


def _level(steps: list[dict[str, Any]], value: float) -> str:
    reached = [s["color"] for s in steps if s["value"] is None or value >= s["value"]]
    return str(reached[-1])


def _graph(axes: Axes, panel: Panel, lines: list[Line]) -> None:
    if not lines:
        axes.axis("off")
        axes.text(0.5, 0.5, "no data", fontsize=10, color=_TEXT, ha="center")
        return
    defaults = panel["fieldConfig"]["defaults"]
    stacked = "stacking" in defaults["custom"]
    colors = [_COLORS[i % len(_COLORS)] for i in range(len(lines))]
    if stacked:
        heights = [[0.0 if math.isnan(v) else v for v in line.values] for line in lines]
        legends = [line.legend for line in lines]
        axes.stackplot(lines[0].times, heights, labels=legends, colors=colors, alpha=0.75)
    for line, color in zip(lines, colors, strict=True):
        if not stacked:
            axes.plot(line.times, line.values, label=line.legend, color=color, linewidth=1.4)
    _frame(axes, defaults, lines)
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(-0.02, -0.14),
        ncols=6,
        fontsize=7.5,
        frameon=False,
        handlelength=1.2,
        columnspacing=1.2,
    )


def _frame(axes: Axes, defaults: Mapping[str, Any], lines: list[Line]) -> None:
    """Scales, grid and thresholds."""
    low, high = axes.get_ylim()
    if "max" in defaults:
        low, high = defaults["min"], defaults["max"] * 1.02
    elif 0 < low < 0.5 * high or len({v for line in lines for v in line.values if v >= 0}) == 1:
        low = 0.0
    axes.set_ylim(low, high)
    for step in defaults["thresholds"]["steps"][1:]:
        if low <= step["value"] <= high:
            axes.axhline(step["value"], color=_NAMED[step["color"]], linewidth=0.8, dashes=(4, 3))
    unit = defaults["unit"]
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _text(value, unit, None)))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} min"))
    axes.tick_params(labelsize=7.5, colors=_TEXT, length=0)
    axes.grid(color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0)
    for side in axes.spines.values():
        side.set_visible(False)


def _text(value: float, unit: str, decimals: int | None) -> str:
    """A value with its unit, in the style of Grafana."""
    if unit == "percentunit":
        return f"{100 * value:.3g} %" if decimals is None else f"{100 * value:.{decimals}f} %"
    if unit == "s":
        scale, name = _SECONDS[1]
        if 0 < abs(value) < 0.9995:
            scale, name = _SECONDS[0]
        elif abs(value) >= 120:
            scale, name = _SECONDS[2]
        return f"{value * scale:.3g} {name}"
    if abs(value) >= 10_000:
        return f"{value / 1000:.3g} K"
    return f"{value:.4g}" if decimals is None else f"{value:.{decimals}f}"


def main() -> None:
    dashboard, url, begin, end, prefix, *choices = sys.argv[1:]
    chosen = dict(choice.split("=", 1) for choice in choices)
    source = Source(url, float(begin), float(end), chosen)
    matplotlib.use("agg")
    for title, panels in rows(json.loads(Path(dashboard).read_text())).items():
        name = re.sub(r"\W+", "-", title.lower())
        draw_row(title, panels, source).savefig(f"{prefix}-{name}.png")
        pyplot.close()


if __name__ == "__main__":
    main()
