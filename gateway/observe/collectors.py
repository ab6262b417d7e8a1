"""What prometheus_client lacks: counting on one thread without a lock, and a page with the same
labels on everything. Used by metrics.py, which says what is counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample


class LoopCounter(Counter):
    """Counts on one thread (the event loop's), so without the lock, which is most of the cost. What
    it has is told when somebody asks."""

    def _metric_init(self) -> None:
        super()._metric_init()
        self._count = 0.0

    def inc(self, amount: float = 1, exemplar: dict[str, str] | None = None) -> None:
        self._count += amount

    def _child_samples(self) -> Iterable[Sample]:
        self._value.set(self._count)
        return super()._child_samples()


class LoopHistogram(Histogram):
    """As that: observes on one thread."""

    def _metric_init(self) -> None:
        super()._metric_init()
        self._counts = [0] * len(self._upper_bounds)
        self._total = 0.0

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        self._counts[bisect_left(self._upper_bounds, amount)] += 1
        self._total += amount

    def _child_samples(self) -> Iterable[Sample]:
        for bucket, count in zip(self._buckets, self._counts, strict=True):
            bucket.set(count)
        self._sum.set(self._total)
        return super()._child_samples()


class SameLabels(CollectorRegistry):
    """The registry's page with some labels on every sample; costs nothing but at a scrape."""

    def __init__(self, registry: CollectorRegistry, labels: dict[str, str]) -> None:
        super().__init__()
        self._source: Collector = registry
        self._labels = labels

    def collect(self) -> Iterator[Metric]:
        for metric in self._source.collect():
            for sample in metric.samples:
                sample.labels.update(self._labels)
            yield metric
