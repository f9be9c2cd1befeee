"""How long a job took from `kubectl apply` to its first step, stage by stage."""

import time
from dataclasses import dataclass, field

STAGES = ("head ready", "all pods ready", "driver runs", "first step")


@dataclass
class Stopwatch:
    """Seconds since the job was created, at the end of each stage."""

    name: str
    started: float = field(default_factory=time.monotonic)
    reached: dict[str, float] = field(default_factory=dict)

    def reach(self, stage: str) -> None:
        self.reached[stage] = time.monotonic() - self.started


@dataclass
class Timings:
    """The stopwatches of a session."""

    stopwatches: list[Stopwatch] = field(default_factory=list)

    def begin(self, name: str) -> Stopwatch:
        stopwatch = Stopwatch(name)
        self.stopwatches.append(stopwatch)
        return stopwatch

    def table(self) -> str:
        """One line a job, seconds since `kubectl apply`."""
        rows: list[tuple[str, ...]] = [("job", *STAGES)]
        for stopwatch in self.stopwatches:
            reached = stopwatch.reached
            times = (f"{reached[stage]:.1f}" if stage in reached else "-" for stage in STAGES)
            rows.append((stopwatch.name, *times))
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        )
