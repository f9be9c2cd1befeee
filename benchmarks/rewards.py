"""Scoring: CPU time of the driver per group, and groups per second.

    .venv/bin/python -m benchmarks.rewards [--groups N] [--repeats N] [--workers N]

The driver's event loop also serves producers and consumers, so its CPU time matters most; the
workers do the scoring itself. The ratio compares with direct calls of the reward, in one process
and without deadlines.
"""

import argparse
import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from grpo_trainer.messages import Message, Row, TestCases
from grpo_trainer.rewards import Scorer, make_reward
from grpo_trainer.spec.reward import RewardSpec, RewardType

from .table import Spread, load, machine, table

COMPLETIONS = 8
DEADLINE_SECONDS = 300.0

Group = tuple[Row, list[str]]
"""A row and the completions to it."""


@dataclass(frozen=True, slots=True)
class Case:
    """A reward and the groups that it scores; the answers of all groups of a run differ."""

    name: str
    reward: RewardType
    group: Callable[[int], Group]
    share: float = 1.0
    """Share of the requested groups; slow rewards score fewer."""


def integers(number: int) -> Group:
    """Sums; half of the completions are right, the others forget the carry or slip."""
    a, b = 100 + number, 999
    completions = [rf"{a}+{b}=\boxed{{{a + b + slip}}}" for slip in (0, 0, 0, 0, -100, -100, 1, -1)]
    return _row(f"{a}+{b}=", answer=str(a + b)), completions


def latex(number: int) -> Group:
    """Closed forms; half of the completions are right, some of them in another form."""
    a, b = 2 * number + 3, 2 * number + 5
    right = [rf"\frac{{{a}\sqrt{{2}}}}{{{b}}}", rf"\frac{{{a}}}{{{b}}}\sqrt{{2}}"]
    wrong = [rf"\frac{{{b}\sqrt{{2}}}}{{{a}}}", rf"\frac{{{a}\sqrt{{3}}}}{{{b}}}"]
    completions = [
        rf"We get $x = \boxed{{{answer}}}$." for answer in (*right, *wrong) for _ in "12"
    ]
    return _row("Solve for x.", answer=right[0]), completions


def code(number: int) -> Group:
    """Programs with three tests each; half of the completions are right."""
    programs = [f"print(int(input()) + {number + slip})" for slip in (0, 0, 0, 0, 1, 1, 2, 2)]
    inputs = ("1", "20", "300")
    tests = TestCases(inputs, tuple(str(int(x) + number) for x in inputs))
    row = _row(f"Add {number} to the input.", tests=tests)
    return row, [f"```python\n{program}\n```" for program in programs]


def _row(question: str, answer: str | None = None, tests: TestCases | None = None) -> Row:
    return Row("benchmark", (Message("user", question),), answer, tests)


CASES = (
    Case("boxed integers", RewardType.BOXED, integers),
    Case("LaTeX answers", RewardType.BOXED, latex),
    Case("programs, 3 tests", RewardType.CODE, code, share=0.04),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One repeat, per group."""

    driver_cpu_seconds: float
    seconds: float
    direct_seconds: float


async def through_workers(scorer: Scorer, groups: Sequence[Group]) -> None:
    """Score all groups as the driver does: concurrent calls that share the workers."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        scored = await asyncio.gather(
            *(scorer.score(row, completions) for row, completions in groups)
        )
    for scores in scored:
        right = [score.accuracy for score in scores]
        assert sum(right) == COMPLETIONS / 2, f"half of the completions are right, got {scores}"


def directly(spec: RewardSpec, groups: Sequence[Group]) -> float:
    """Seconds to score all groups without workers."""
    logging.getLogger("math_verify").setLevel(
        logging.ERROR
    )  # it warns about its disabled time limits
    score = make_reward(spec)
    began = time.perf_counter()
    for row, completions in groups:
        for completion in completions:
            score(completion, row)
    return time.perf_counter() - began


async def measure(case: Case, groups: int, repeats: int, workers: int) -> list[Measured]:
    """Repeats, each on groups that were not scored before."""
    spec = RewardSpec(type=case.reward)
    scorer, measured = Scorer(spec, workers), []
    # In another process: the imports of rewards would change the CPU time of this one.
    with ProcessPoolExecutor(1, get_context("spawn")) as alone:
        await scorer.start()
        try:
            for repeat in range(repeats):
                made = [case.group(repeat * groups + number) for number in range(groups)]
                began, began_cpu = time.perf_counter(), time.process_time()
                await through_workers(scorer, made)
                cpu, seconds = time.process_time() - began_cpu, time.perf_counter() - began
                direct = alone.submit(directly, spec, made).result(DEADLINE_SECONDS)
                measured.append(Measured(cpu / groups, seconds / groups, direct / groups))
        finally:
            await scorer.close()
    return measured


def row(case: Case, measured: Sequence[Measured]) -> list[str]:
    return [
        case.name,
        f"{Spread.of([1e3 * m.driver_cpu_seconds for m in measured]):.2f}",
        f"{Spread.of([1 / m.seconds for m in measured]):.1f}",
        f"{Spread.of([1 / m.direct_seconds for m in measured]):.1f}",
        f"{Spread.of([m.direct_seconds / m.seconds for m in measured]):.2f}",
    ]


def main() -> None:
    default = max(1, (os.cpu_count() or 1) // 2)
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--groups", type=int, default=500, help="groups of one repeat (500)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--workers",
        type=int,
        default=default,
        help=f"scoring processes ({default}, as in a run here)",
    )
    arguments = parser.parse_args()
    print(machine("math-verify"))
    rows = []
    for case in CASES:
        groups = max(1, int(arguments.groups * case.share))
        measured = asyncio.run(measure(case, groups, arguments.repeats, arguments.workers))
        rows.append(row(case, measured))
    print(
        f"{arguments.repeats} x {arguments.groups} groups of {COMPLETIONS} completions "
        f"(programs fewer), {arguments.workers} workers; at the end {load()}\n"
    )
    head = ["", "driver CPU\nms/group", "groups/s", "directly\ngroups/s", "ratio"]
    print(table(head, rows))


if __name__ == "__main__":
    main()
