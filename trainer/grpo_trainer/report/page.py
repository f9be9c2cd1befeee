"""The page: data, scripts and styles in one file that needs no network."""

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from ..flatten import flat
from .run_data import Evaluation, RunData

_SAMPLE_FIELDS = (
    "source",
    "prompt",
    "completion",
    "answer",
    "reward",
    "accuracy",
    "format_accuracy",
    "advantage",
    "version",
    "response_tokens",
    "finish_reason",
    "reward_parts",
    "tokens",
    "log_ratios",
)
"""Columns of the completions, in the order the script shows them."""


def render_page(runs: Sequence[RunData], title: str) -> str:
    """The HTML page about the runs.

    All data travel as compressed base64, so that no text of a model or a user can become markup.
    """
    from plotly.offline import get_plotlyjs  # 5 MB of JavaScript: read only when a page is made

    parts = {
        "title": _escape(title),
        "style": _asset("report.css"),
        "plotly": get_plotlyjs(),
        "charts": _asset("charts.js"),
        "browser": _asset("browser.js"),
        "main": _asset("main.js"),
        "data": _packed({"title": title, "runs": [_payload(run) for run in runs]}),
    }
    # One pass over the template: what is put in is never searched for further places.
    pieces = _asset("report.html").split("@@")
    return "".join(parts[piece] if index % 2 else piece for index, piece in enumerate(pieces))


def _payload(run: RunData) -> dict[str, Any]:
    return {
        "name": run.name,
        "directory": str(run.directory),
        "summary": dict(run.summary),
        "settings": dict(flat(run.manifest.get("spec", {}), "spec")),
        "environment": dict(run.environment),
        "curves": {name: [curve.steps, curve.values] for name, curve in run.curves.items()},
        "evaluations": [
            [e.dataset, e.step, e.samples, e.accuracy, e.standard_error, _passes(e)]
            for e in run.evaluations
        ],
        "fields": _SAMPLE_FIELDS,
        "samples": [
            [s.step, s.dataset, *(s.fields.get(field) for field in _SAMPLE_FIELDS)]
            for s in run.samples
        ],
        "omitted": run.omitted_samples,
    }


def _passes(evaluation: Evaluation) -> str:
    """`pass@2 0.500, pass@4 0.625`; empty for one sample of each row."""
    return ", ".join(f"pass@{k} {share:.3f}" for k, share in evaluation.pass_at.items())


def _packed(payload: Mapping[str, Any]) -> str:
    text = json.dumps(payload, separators=(",", ":"), allow_nan=False, default=str)
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode("ascii")


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")
