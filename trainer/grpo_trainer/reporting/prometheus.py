"""The metrics in the text format of Prometheus."""

from collections import Counter
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from ..events import StepReport
from .metric import Kind, Metric
from .metrics import METRICS, MetricValues, Series
from .sink import Sink

_STALENESS_BUCKETS = (0, 1, 2, 4, 8, 16)


class Exposition(Collector, Sink):
    """Exposes the current values, in a registry of its own.

    A rollback lowers some totals of the driver, which Prometheus would treat as a counter reset;
    so a counter keeps its highest value.
    """

    def __init__(self, values: MetricValues) -> None:
        self._values = values
        self._highest: dict[Series, float] = {}
        self._staleness: Counter[int] = Counter()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def step(self, report: StepReport, values: Mapping[Series, float]) -> None:
        self._staleness.update(report.staleness)

    def render(self) -> bytes:
        """The body of `/metrics`; its type is `prometheus_client.CONTENT_TYPE_LATEST`."""
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Family]:
        """Empty: names cannot clash in a registry with one collector."""
        return ()

    def collect(self) -> Iterable[Family]:
        for metric in METRICS:
            yield self._histogram(metric) if metric.kind is Kind.HISTOGRAM else self._family(metric)

    def _family(self, metric: Metric) -> Family:
        labels = None if metric.label is None else (metric.label,)
        kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
        family = kind(metric.name, metric.help, labels=labels)
        for series, value in self._values.current.items():
            if series.name == metric.name:
                if metric.kind is Kind.COUNTER:
                    value = self._highest[series] = max(value, self._highest.get(series, 0.0))
                family.add_metric([] if series.label is None else [series.label], value)
        return family

    def _histogram(self, metric: Metric) -> Family:
        counts = self._staleness
        buckets = [
            (str(float(bound)), float(sum(n for age, n in counts.items() if age <= bound)))
            for bound in _STALENESS_BUCKETS
        ]
        buckets.append(("+Inf", float(counts.total())))
        total = float(sum(age * n for age, n in counts.items()))
        return HistogramMetricFamily(metric.name, metric.help, buckets=buckets, sum_value=total)
