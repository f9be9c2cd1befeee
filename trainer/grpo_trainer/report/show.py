"""`grpo show`: a run on the terminal."""

import math
from collections.abc import Iterator, Sequence

from rich.console import Group
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from .run_data import Curve, Evaluation, RunData, Sample
from .sparkline import sparkline

CURVES = (
    ("reward", "grpo_reward_mean"),
    ("accuracy", "grpo_accuracy_mean"),
    ("format accuracy", "grpo_format_accuracy_mean"),
    ("completion tokens", "grpo_response_tokens_mean"),
    ("truncated", "truncated_fraction"),
    ("groups without signal", "zero_std_fraction"),
    ("loss", "grpo_loss"),
    ("KL", "grpo_kl"),
    ("entropy", "grpo_entropy"),
    ("gradient norm", "grpo_gradient_norm"),
    ("staleness", "grpo_staleness_versions"),
    ("consumers idle", "grpo_consumer_idle_ratio"),
    ("seconds per step", "seconds"),
)
"""Label and name of the metrics that are shown."""
_WIDE = 90
"""Columns of a terminal that has room for the range of a curve."""
_TEXT_LIMIT = 400
"""Characters of a prompt or completion that are shown."""

Part = Table | Text | Rule


def show_run(run: RunData, width: int, completions: int = 2) -> Group:
    """Outcome, curves, evaluations, and the completions with the highest and lowest rewards."""
    return Group(*_parts(run, width, completions))


def _parts(run: RunData, width: int, completions: int) -> Iterator[Part]:
    yield Text(headline(run), style="bold")
    yield whole(str(run.directory))
    yield Rule("Curves", align="left")
    yield curve_table(run, width)
    if run.evaluations:
        yield Rule("Evaluations", align="left")
        yield evaluation_table(run.evaluations, max(10, width - 70))
    rollouts = newest_rollouts(run.samples)
    if rollouts and completions > 0:
        yield from _ends(rollouts, completions)


def whole(text: str) -> Text:
    """A line that is not wrapped, so that it can be copied."""
    return Text(printable(text), no_wrap=True, overflow="ignore")


def headline(run: RunData) -> str:
    """Name, outcome and number of steps: `sums: succeeded, 150 of 150 steps`."""
    if run.summary:
        steps = f"{run.summary.get('steps')} of {run.summary.get('total_steps')} steps"
        return f"{run.name}: {run.summary.get('outcome')}, {steps}"
    curve = run.curves.get("grpo_step")
    return f"{run.name}: has not ended, {curve.steps[-1] if curve else 0} steps"


def curve_table(run: RunData, width: int) -> Table:
    """A line per metric: its curve, first and last value, and on a wide terminal the range."""
    with_range = width >= _WIDE
    table = Table.grid(padding=(0, 2))
    heads = ("first", "last", "lowest", "highest") if with_range else ("first", "last")
    table.add_row("", "", *(Text(head, justify="right") for head in heads))
    for label, name in CURVES:
        curve = run.curves.get(name)
        if curve is not None:
            values = curve.values
            shown = [values[0], values[-1], min(values), max(values)][: len(heads)]
            line = sparkline(values, max(10, width - 27 - 12 * len(heads)))
            figures = (Text(figure(value), justify="right") for value in shown)
            table.add_row(Text(label), Text(line, no_wrap=True), *figures)
    return table


def evaluation_table(evaluations: Sequence[Evaluation], width: int) -> Table:
    """A line per set: its curve from 0 to 1, first and last accuracy, and the best step."""
    table = Table.grid(padding=(0, 2))
    table.add_row("", "", *(Text(head, justify="right") for head in ("first", "last", "best")))
    for dataset in dict.fromkeys(e.dataset for e in evaluations):
        of_set = [e for e in evaluations if e.dataset == dataset]
        best = max(of_set, key=lambda e: (e.accuracy, e.step))
        table.add_row(
            Text(printable(dataset)),
            Text(sparkline([e.accuracy for e in of_set], width, 0.0, 1.0), no_wrap=True),
            *(Text(accuracy(e), justify="right") for e in (of_set[0], of_set[-1])),
            Text(f"{best.accuracy:.3f} at step {best.step}", justify="right"),
        )
    return table


def accuracy(evaluation: Evaluation) -> str:
    """With its standard error and pass@k: `0.469 ± 0.010, pass@8 0.750`."""
    error = evaluation.standard_error
    text = f"{evaluation.accuracy:.3f}" + ("" if error is None else f" ± {error:.3f}")
    if not evaluation.pass_at:
        return text
    k = max(evaluation.pass_at)
    return f"{text}, pass@{k} {evaluation.pass_at[k]:.3f}"


def newest_rollouts(samples: Sequence[Sample]) -> list[Sample]:
    """The trained completions of the newest step that was logged."""
    rollouts = [sample for sample in samples if not sample.dataset]
    newest = max((sample.step for sample in rollouts), default=0)
    return [sample for sample in rollouts if sample.step == newest]


def _ends(rollouts: Sequence[Sample], count: int) -> Iterator[Part]:
    """The distinct completions of either end."""
    keys = ("prompt", "completion", "reward")
    distinct = {tuple(s.fields.get(key) for key in keys): s for s in rollouts}
    ranked = sorted(distinct.values(), key=_reward, reverse=True)
    count = min(count, -(-len(ranked) // 2))
    for title, chosen in (("Best", ranked[:count]), ("Worst", ranked[count:][-count:][::-1])):
        if chosen:
            yield Rule(f"{title} completions of step {chosen[0].step}", align="left")
        for sample in chosen:
            yield from _completion(sample)


def _reward(sample: Sample) -> float:
    reward = sample.fields.get("reward")
    return -math.inf if reward is None else float(reward)


def _completion(sample: Sample) -> Iterator[Text]:
    fields = sample.fields
    reward = fields.get("reward")
    title = "not scored" if reward is None else f"reward {figure(float(reward))}"
    yield Text(f"{title}, reference answer {printable(str(fields.get('answer')))}", style="bold")
    yield Text(f"  prompt: {shortened(str(fields.get('prompt')))}")
    yield Text(f"  completion: {shortened(str(fields.get('completion')))}")


def shortened(text: str) -> str:
    """At most so many characters, with the number of those left out."""
    text = printable(text)
    left_out = len(text) - _TEXT_LIMIT
    return text if left_out <= 0 else f"{text[:_TEXT_LIMIT]}... ({left_out} more characters)"


def figure(value: float) -> str:
    """Four significant digits, three of a very small or large number."""
    return f"{value:.4g}" if value == 0 or 1e-4 <= abs(value) < 1e6 else f"{value:.2e}"


def printable(text: str) -> str:
    """Text that every terminal can encode and that contains no control characters but line ends."""
    safe = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in safe)


def last_mean(curve: Curve, steps: int = 10) -> float:
    """The mean of the last values: those of single steps are noisy."""
    values = curve.values[-steps:]
    return sum(values) / len(values)
