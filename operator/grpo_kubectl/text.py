"""Plain text: tables, ages, numbers, sizes, durations."""

import re
from argparse import ArgumentTypeError
from collections.abc import Sequence

ABSENT = "-"
_GAP = "   "
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_DURATION = re.compile(r"(?:\d+[dhms])+")


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with columns as wide as their widest cell, without trailing spaces."""
    cells = [list(headers), *([_one_line(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headers))]
    return [
        _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def _one_line(cell: str) -> str:
    return "; ".join(cell.splitlines()) or ABSENT


def age(seconds: float) -> str:
    """A duration in kubectl's format, in one unit."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    if whole < 2 * 3600:
        return f"{whole // 60}m"
    if whole < 2 * 86400:
        return f"{whole // 3600}h"
    return f"{whole // 86400}d"


def number(value: float | None) -> str:
    """A value with four digits."""
    return ABSENT if value is None else f"{value:.4g}" if abs(value) < 10000 else f"{value:.0f}"


def size(count: int) -> str:
    """A number of bytes in one binary unit."""
    amount, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.4g} {unit}"


def duration(text: str) -> float:
    """Seconds of `90`, `90s`, `5m` or `1h30m`, for argparse."""
    if text.isdecimal():
        return float(text)
    if _DURATION.fullmatch(text) is None:
        raise ArgumentTypeError(
            f"Invalid value: {text!r}: must be a duration such as 90s, 5m or 1h30m"
        )
    return float(sum(int(n) * _UNITS[u] for n, u in re.findall(r"(\d+)([dhms])", text)))
