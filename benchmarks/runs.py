"""`grpo run` as a child process, observed until all of its processes have ended."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml

from grpo_trainer.reporting.history import STEP, of_event, read_rows

DRIVER, PRODUCER, CONSUMER = "driver", "producer", "consumer"
_ACTORS = {"ray::Producer": PRODUCER, "ray::Consumer": CONSUMER}
"""Prefix of the process title of a Ray actor, and the role of the actor."""

_SAMPLE_SECONDS = 1.0
_END_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Finished:
    """The output of a run, and what was measured from outside."""

    summary: dict[str, Any]
    steps: list[dict[str, Any]]
    """Rows of metrics.jsonl, one per step."""
    peak_bytes: dict[str, int]
    """Largest resident set of any process, by role, including mappings of the object store."""
    foreign_cpu: float
    """Share of the CPU time of the machine that other processes used."""

    def series(self, metric: str) -> list[float]:
        """A metric's value in every step that has one."""
        return [float(step[metric]) for step in self.steps if metric in step]


@dataclass(slots=True, eq=False)
class _Watch:
    """Memory and CPU time of a process and its descendants, from samples."""

    root: psutil.Process
    peaks: dict[str, int] = field(default_factory=dict)
    seen: dict[int, psutil.Process] = field(default_factory=dict)
    cpu_seconds: dict[int, float] = field(default_factory=dict)
    """By process id, up to the last sample of the process."""

    def sample(self) -> None:
        """Sample every process once."""
        try:
            processes = [self.root, *self.root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for process in processes:
            self.seen.setdefault(process.pid, process)
            try:
                role = self._role(process)
                resident, times = process.memory_info().rss, process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            self.cpu_seconds[process.pid] = times.user + times.system
            if role is not None:
                self.peaks[role] = max(self.peaks.get(role, 0), resident)

    def _role(self, process: psutil.Process) -> str | None:
        if process == self.root:
            return DRIVER
        title = " ".join(process.cmdline())
        return next((role for name, role in _ACTORS.items() if title.startswith(name)), None)

    def end(self) -> None:
        """Wait until every known process has ended, and kill those that do not end."""
        _, alive = psutil.wait_procs(list(self.seen.values()), timeout=_END_SECONDS)
        for process in alive:
            process.kill()
        psutil.wait_procs(alive, timeout=_END_SECONDS)


def run(manifest: Mapping[str, Any], directory: Path, *, seconds: float) -> Finished:
    """Run a manifest in a new directory, until it ends.

    Raises RuntimeError when it fails, or has not ended after `seconds`; nothing of it is left then.
    """
    directory.mkdir(parents=True)
    file, log, results = directory / "job.yaml", directory / "output.log", directory / "run"
    file.write_text(yaml.safe_dump(dict(manifest)))
    command = [sys.executable, "-m", "grpo_trainer.cli", "run", str(file)]
    began, busy = time.monotonic(), _busy_seconds()
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "--run-dir", str(results), "--port", "0"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    watch = _Watch(psutil.Process(process.pid))
    try:
        while not _ended(process):
            watch.sample()
            if time.monotonic() - began > seconds:
                raise RuntimeError(f"{directory}: not ended after {seconds:g} s:\n{_tail(log)}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(_END_SECONDS)
        watch.end()
    if process.returncode != 0:
        raise RuntimeError(f"{directory}: exit code {process.returncode}:\n{_tail(log)}")
    available = (time.monotonic() - began) * psutil.cpu_count()
    foreign = _busy_seconds() - busy - sum(watch.cpu_seconds.values())
    return Finished(
        summary=json.loads((results / "summary.json").read_text()),
        steps=of_event(read_rows(results / "metrics.jsonl"), STEP),
        peak_bytes=watch.peaks,
        foreign_cpu=max(0.0, foreign / available),
    )


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process ends before the next sample is due."""
    try:
        process.wait(_SAMPLE_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-3000:]


def _busy_seconds() -> float:
    """CPU time of all processes of the machine."""
    times = psutil.cpu_times()
    return float(times.user + times.system + getattr(times, "nice", 0.0))
