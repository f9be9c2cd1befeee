"""The series that driver and operator export, by name."""

import re
from collections.abc import Iterable

from grpo_operator.metrics import Metrics
from grpo_trainer.reporting.metrics import METRICS

_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",)}
_NAME = re.compile(r"\bgrpo_[a-z_]+")


def exported() -> dict[str, str]:
    """The names of all series, with the metric of each."""
    families = {(m.name.removesuffix("_total"), str(m.kind)) for m in METRICS}
    families |= {(family.name, family.type) for family in Metrics().registry.collect()}
    return {
        f"{name}{suffix}": name for name, kind in families for suffix in _SUFFIXES.get(kind, ("",))
    }


def named(expressions: Iterable[str]) -> set[str]:
    """The series that the expressions read."""
    return {name for expression in expressions for name in _NAME.findall(expression)}
