"""Output of all benchmarks: the machine, and one aligned table."""

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path
from statistics import median
from typing import Self

import psutil

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Spread:
    """Repeated measurements of one quantity."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Raises ValueError without values."""
        if not values:
            raise ValueError("values: a spread needs at least one")
        return cls(median(values), min(values), max(values), len(values))

    def __format__(self, spec: str) -> str:
        """`median (lowest-highest)`; without the range if all values are equal."""
        middle, low, high = (format(v, spec) for v in (self.median, self.low, self.high))
        return middle if low == high else f"{middle} ({low}-{high})"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lines of aligned columns: the first column to the left, all others to the right.

    A heading or a cell may have several lines. Headings stand at the bottom of their space, cells
    at the top of theirs.
    """
    assert all(len(row) == len(head) for row in rows)
    widths = [
        max(len(line) for cell in column for line in cell.split("\n"))
        for column in zip(head, *rows, strict=True)
    ]
    depth = max(cell.count("\n") for cell in head)
    bottom = ["\n" * (depth - cell.count("\n")) + cell for cell in head]
    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    return "\n".join([*_lines(bottom, widths), rule, *(x for r in rows for x in _lines(r, widths))])


def _lines(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    lines = zip_longest(*(cell.split("\n") for cell in row), fillvalue="")
    return ["  ".join(_aligned(line, widths)).rstrip() for line in lines]


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    sides: list[Callable[[str, int], str]] = [str.ljust, *[str.rjust] * (len(cells) - 1)]
    return [side(cell, width) for side, cell, width in zip(sides, cells, widths, strict=True)]


def machine(*packages: str) -> str:
    """Processor, memory, versions, threads and load average."""
    memory = psutil.virtual_memory().total / GIB
    versions = [f"{name} {version(name)}" for name in packages]
    threads = os.environ.get("OMP_NUM_THREADS", "unset")
    return "\n".join(
        [
            f"{_processor()}, {psutil.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}",
            ", ".join([f"Python {platform.python_version()}", *versions]),
            f"OMP_NUM_THREADS {threads}; {load()}",
        ]
    )


def load() -> str:
    """The load average as text."""
    return "load average " + ", ".join(f"{value:.2f}" for value in psutil.getloadavg())


def _processor() -> str:
    """The name of the processor, from /proc/cpuinfo on Linux."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
