"""Measurements of the operator benchmark, and their table."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles

from .table import load

HEAD = ("jobs", "", "GRPOJob", "RayJob", "GRPOJob again")
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Run:
    """Measurements of N jobs of one kind. Seconds are from the creation of a job, unless stated."""

    created: float
    """From the first creation to the last."""
    clusters: float
    """From the first creation until the last RayCluster was ready."""
    ready: tuple[float, ...]
    """Of each job, until its status reports ready pods."""
    writes: Counter[str]
    """Write calls of all clients, counted by the API server, until the last job is ready."""
    cpu: Mapping[str, float]
    """CPU seconds until then: of the machine, benchmark included, and of some servers."""
    load: float
    """Load average of the last minute, at that time."""


@dataclass(frozen=True, slots=True)
class Operated:
    """Measurements of the operator only."""

    run: Run
    running: tuple[float, ...]
    calls: Counter[str]
    phases: int
    """Changes of phase."""
    latencies: tuple[float, ...]
    """Seconds from Ready of the last pod of a job to its status."""
    cpu: float
    rest_seconds: float
    rest_cpu: float
    rest_calls: Counter[str]
    rest_writes: Counter[str]
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Restarted:
    """An operator that starts while all jobs are Running."""

    seconds: float
    """From its start until its metrics count all jobs."""
    cpu: float
    peak_bytes: int
    writes: Counter[str]
    """Of all clients, from before its start until some seconds after."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One control plane: GRPOJobs, an operator that starts among them, RayJobs, GRPOJobs again."""

    jobs: int
    first: Operated
    restarted: Restarted
    ray: Run
    second: Operated


def _percentiles(values: Sequence[float], *percents: int) -> str:
    cuts = quantiles(values, n=100, method="inclusive")
    return "/".join(f"{cuts[percent - 1]:.2f}" for percent in percents)


def _total(count: Counter[str], start: str = "") -> int:
    return sum(n for name, n in count.items() if name.startswith(start))


def _run_rows(run: Run, jobs: int, kind: str) -> dict[str, str]:
    return {
        "all created, s": f"{run.created:.1f}",
        "all RayClusters ready, s": f"{run.clusters:.1f}",
        "apply to pods known ready p50/95, s": _percentiles(run.ready, 50, 95),
        "load average then": f"{run.load:.1f}",
        **{f"CPU s of the {name}": f"{seconds:.1f}" for name, seconds in run.cpu.items()},
        "writes a job, by all": f"{_total(run.writes) / jobs:.2f}",
        "  of the job object": f"{_total(run.writes, kind) / jobs:.2f}",
    }


def _operated_rows(operated: Operated, jobs: int) -> dict[str, str]:
    writes = sum(n for name, n in operated.calls.items() if not name.startswith(("get", "list")))
    status = operated.run.writes["grpojobs/status"]
    minute = 60 / operated.rest_seconds
    return {
        **_run_rows(operated.run, jobs, "grpojobs"),
        "  by the operator": f"{writes / jobs:.2f}",
        "reads a job, by the operator": f"{(_total(operated.calls) - writes) / jobs:.2f}",
        "status writes a change of phase": f"{status / operated.phases:.2f}",
        "apply to Running p50/95, s": _percentiles(operated.running, 50, 95),
        "pod ready to status p50/95/99, s": _percentiles(operated.latencies, 50, 95, 99),
        "operator CPU to Running, s": f"{operated.cpu:.1f}",
        "operator peak RSS, MiB": f"{operated.peak_bytes / MIB:.0f}",
        "at rest, operator CPU s a minute": f"{operated.rest_cpu * minute:.1f}",
        "  its API calls a minute": f"{_total(operated.rest_calls) * minute:.0f}",
        "  writes by all a minute": f"{_total(operated.rest_writes) * minute:.0f}",
    }


def rows(measured: Measured) -> list[tuple[str, ...]]:
    jobs = measured.jobs
    ours = [_operated_rows(each, jobs) for each in (measured.first, measured.second)]
    theirs = _run_rows(measured.ray, jobs, "rayjobs")
    first, second = ours
    found = [(what, first[what], theirs.get(what, "-"), second[what]) for what in first]
    found += [(what, value, "-", "-") for what, value in _restarted_rows(measured.restarted)]
    return [(str(jobs), *row) for row in found]


def _restarted_rows(restarted: Restarted) -> list[tuple[str, str]]:
    return [
        ("restarted, s until it counts all jobs", f"{restarted.seconds:.1f}"),
        ("  its CPU, s", f"{restarted.cpu:.1f}"),
        ("  its peak RSS, MiB", f"{restarted.peak_bytes / MIB:.0f}"),
        ("  writes by all", f"{_total(restarted.writes)}"),
    ]


def report(measured: Measured) -> None:
    """The counts of writes behind the table."""
    print(f"{measured.jobs} jobs: {load()}", file=sys.stderr)
    for name, operated in (("first", measured.first), ("second", measured.second)):
        print(name, "writes", dict(operated.run.writes), file=sys.stderr)
        print(name, "calls", dict(operated.calls), file=sys.stderr)
        print(name, "calls at rest", dict(operated.rest_calls), file=sys.stderr)
    print("RayJob writes", dict(measured.ray.writes), file=sys.stderr, flush=True)
