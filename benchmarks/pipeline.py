"""Throughput of whole training runs, synchronous and overlapped, on the quickstart's task.

    .venv/bin/python -m benchmarks.pipeline [--steps N] [--repeats N] [--only NAME ...]

Every run is a `grpo run` of its own, with real Ray, ColossalAI and transformers. Each repeat runs
all configurations in turn, so that a change of the load of the machine affects all of them;
a ratio is taken within its repeat.
"""

import argparse
import copy
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import yaml

from grpo_trainer.environment import vllm_python

from . import long_tail, trl
from .runs import CONSUMER, DRIVER, PRODUCER, Finished, run
from .table import Spread, load, machine, table
from .trl import OtherTrainer

QUICKSTART = Path(__file__).parents[1] / "examples" / "quickstart.yaml"
MIB = 1 << 20
LAST_STEPS = 10
"""Steps at the end over which the reward is averaged: single steps are noisy."""

Overrides = Mapping[str, Mapping[str, Any]]
"""Section of the spec -> fields."""


def _stale(versions: int) -> Overrides:
    return {"buffer": {"maxStaleness": versions}}


def _vllm(**producers: Any) -> Overrides:
    return {"producers": {"backend": "vllm", **producers}}


SYNCHRONOUS, TAIL_SYNCHRONOUS = "synchronous", "tail"
IN_FLIGHT = {"weightUpdate": "inFlight"}
TRL = "trl"
CONFIGURATIONS: Mapping[str, Overrides] = {
    SYNCHRONOUS: _stale(0),
    "staleness-1": _stale(1),
    "staleness-2": _stale(2),
    "staleness-4": _stale(4),
    "producers-2": {**_stale(2), "producers": {"replicas": 2}},
    "kl": {**_stale(2), "algorithm": {"klCoefficient": 0.01}},
    "consumers-2": {
        **_stale(2),
        "consumers": {"processesPerReplica": 2},
        # Per data-parallel group: the prompts of a step are those of all configurations.
        "batch": {"trainBatchSize": 16, "trainMinibatchSize": 16},
    },
    "collective": {
        **_stale(2),
        "producers": {"replicas": 2, "weightTransport": "collective"},
    },
    "vllm-synchronous": {**_stale(0), **_vllm()},
    "vllm": {**_stale(2), **_vllm()},
    "vllm-in-flight": {**_stale(2), **_vllm(**IN_FLIGHT)},
    TRL: {},
    TAIL_SYNCHRONOUS: _stale(0),
    "tail-staleness-4": _stale(4),
    "tail-vllm": {**_stale(4), **_vllm()},
    "tail-vllm-in-flight": {**_stale(4), **_vllm(**IN_FLIGHT)},
}
"""Changes to the quickstart, or to the long-tailed task; the synchronous references first."""


def producer_idle(run: Finished) -> float:
    """Share of the time: steps differ in duration."""
    return fmean(run.series("grpo_producer_idle_ratio"), run.series("seconds"))


def train_seconds(run: Finished) -> float:
    """Seconds of the median step, without the first one, which warms up."""
    totals = run.series("grpo_phase_seconds_total_train")
    return median(after - before for before, after in pairwise(totals))


def milliseconds(run: Finished, metric: str) -> float:
    """The median step."""
    return 1000 * median(run.series(metric))


AnyRun = Finished | OtherTrainer
REWARD = "reward\nat end"
Column = tuple[str, str, Callable[[Finished], float]]
"""Heading, format, value."""
RATE: Column = ("samples\n/s", ".0f", lambda r: r.summary["samples_per_second"])
COLUMNS: Sequence[Column] = (
    ("effi-\nciency", ".0%", lambda r: r.summary["efficiency"]),
    ("consumer\nidle", ".0%", lambda r: r.summary["consumer_idle_ratio"]),
    ("producer\nidle", ".0%", producer_idle),
    ("stale-\nness", ".1f", lambda r: fmean(r.series("grpo_staleness_versions"))),
    ("train\nms/step", ".0f", lambda r: 1000 * train_seconds(r)),
    ("publish\nms", ".0f", lambda r: milliseconds(r, "grpo_weight_publish_seconds")),
    ("apply\nms", ".1f", lambda r: milliseconds(r, "grpo_weight_apply_seconds")),
    ("driver\nMiB", ".0f", lambda r: r.peak_bytes[DRIVER] / MIB),
    ("producer\nMiB", ".0f", lambda r: r.peak_bytes[PRODUCER] / MIB),
    ("consumer\nMiB", ".0f", lambda r: r.peak_bytes[CONSUMER] / MIB),
    (REWARD, ".1f", lambda r: fmean(r.series("grpo_reward_mean")[-LAST_STEPS:])),
    ("start\ns", ".0f", lambda r: r.summary["wall_seconds"] - r.summary["train_seconds"]),
    ("foreign\nCPU", ".0%", lambda r: r.foreign_cpu),
)


def manifest(overrides: Iterable[Overrides], steps: int) -> dict[str, Any]:
    """The quickstart without evaluations and with one checkpoint, changed by the overrides."""
    document: dict[str, Any] = yaml.safe_load(QUICKSTART.read_text())
    spec = document["spec"]
    spec |= {"maxSteps": steps, "evaluation": {"interval": 0}, "checkpoint": {"interval": 0}}
    for changes in overrides:
        for section, fields in changes.items():
            spec[section] = copy.deepcopy(spec.get(section, {})) | dict(fields)
    return document


def render(runs: Mapping[str, Sequence[AnyRun]]) -> str:
    """A row per configuration: medians, and below them the lowest and the highest value."""
    rows = []
    for name, of_name in runs.items():
        others = (_values(of_name, heading, form, value) for heading, form, value in COLUMNS)
        rows.append([name, _cell(_rates(of_name), RATE[1]), _ratio(runs, name), *others])
    return table(["", RATE[0], "ratio", *(heading for heading, _, _ in COLUMNS)], rows)


def _values(
    runs: Sequence[AnyRun], heading: str, form: str, value: Callable[[Finished], float]
) -> str:
    ours = [value(r) for r in runs if isinstance(r, Finished)]
    if heading == REWARD:
        ours += [r.reward for r in runs if isinstance(r, OtherTrainer)]
    return _cell(ours, form) if ours else "-"


def _rates(runs: Sequence[AnyRun]) -> list[float]:
    return [RATE[2](r) if isinstance(r, Finished) else r.samples_per_second for r in runs]


def _ratio(runs: Mapping[str, Sequence[AnyRun]], name: str) -> str:
    """Throughput relative to the synchronous run of the task in the same repeat."""
    reference = TAIL_SYNCHRONOUS if _long_tailed(name) else SYNCHRONOUS
    if reference not in runs:
        return "-"
    pairs = zip(_rates(runs[name]), _rates(runs[reference]), strict=True)
    return _cell([ours / reference for ours, reference in pairs], ".2f")


def _cell(values: Sequence[float], form: str) -> str:
    return format(Spread.of(values), form).replace(" (", "\n").removesuffix(")")


def measure(arguments: argparse.Namespace, directory: Path) -> dict[str, list[AnyRun]]:
    """All repeats of all configurations, interleaved."""
    names = arguments.only or [name for name in CONFIGURATIONS if _can_run(name)]
    tail = long_tail.overrides(long_tail.save_model(directory / "long-tailed-model"))
    runs: dict[str, list[AnyRun]] = {name: [] for name in names}
    for repeat in range(1, arguments.repeats + 1):
        for name in names:
            task = [tail] if _long_tailed(name) else []
            job = manifest([*task, CONFIGURATIONS[name]], arguments.steps)
            runs[name].append(_run(name, job, directory / f"{name}-{repeat}", arguments.deadline))
            rate = f"{_rates(runs[name])[-1]:.0f} samples/s"
            print(f"repeat {repeat} {name}: {rate}, {load()}", file=sys.stderr, flush=True)
    return runs


def _run(name: str, job: dict[str, Any], directory: Path, seconds: float) -> AnyRun:
    if name == TRL:
        return trl.run(job, LAST_STEPS, seconds=seconds)
    return run(job, directory, seconds=seconds)


def _long_tailed(name: str) -> bool:
    return name.startswith(TAIL_SYNCHRONOUS)


def _can_run(name: str) -> bool:
    """Whether its environment exists; reports it if not."""
    needed = trl.PYTHON if name == TRL else vllm_python() if "vllm" in name else None
    if needed is None or needed.exists():
        return True
    print(f"skipped {name}: {needed} does not exist", file=sys.stderr)
    return False


def parser() -> argparse.ArgumentParser:
    described = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    described.add_argument("--steps", type=int, default=60, help="optimizer steps of a run (60)")
    described.add_argument("--repeats", type=int, default=3, help="runs per configuration (3)")
    described.add_argument(
        "--only", action="append", choices=CONFIGURATIONS, metavar="NAME",
        help=f"run only this; repeatable: {', '.join(CONFIGURATIONS)}",
    )  # fmt: skip
    described.add_argument("--deadline", type=float, default=300, help="seconds of one run (300)")
    described.add_argument("--keep", type=Path, metavar="DIR", help="keep the run directories")
    return described


def main() -> None:
    arguments = parser().parse_args()
    # The default handler of SIGTERM would leave the current run behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    header = machine("torch", "colossalai", "transformers", "ray")
    with tempfile.TemporaryDirectory(prefix="grpo-benchmark-") as temporary:
        runs = measure(arguments, arguments.keep or Path(temporary))
    print(header)
    print(
        f"{arguments.steps} steps of 256 samples, {arguments.repeats} repeats; at the end {load()}"
    )
    print(f"\n{render(runs)}")


if __name__ == "__main__":
    main()
