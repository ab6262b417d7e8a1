"""From pages of /metrics to rates and percentiles: held against the library that writes the pages
and against plain arithmetic."""

from __future__ import annotations

import math
from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gateway.commands.rates import (
    BYTES,
    LATENCY,
    SAMPLES,
    USED_FAMILIES,
    History,
    PageReader,
    Percentile,
    Reading,
    Route,
    Series,
    percentile,
    traffic_of,
)
from gateway.observe.metrics import BrokerMetrics

_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, math.inf)


def _carry(metrics: BrokerMetrics, topic: str, lan: str, latency_s: float, path: str) -> None:
    metrics.samples_out.labels(topic, lan).inc(3)
    metrics.bytes_out.labels(topic, lan).inc(300)
    metrics.samples_duplicate.labels(topic, lan).inc()
    metrics.end_to_end_latency.labels(topic, lan).observe(latency_s)
    metrics.batches_sent.labels(topic, path).inc()
    meter = metrics.deadline_meter(topic, lan, path, 1)
    assert meter is not None
    meter.count([0, 5], 5)


_NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(
    st.lists(
        st.tuples(_NAMES, _NAMES, st.floats(0, 20), st.sampled_from(["routed", "express"])),
        max_size=5,
    )
)
def test_a_page_is_read_as_the_exporter_means_it(
    carried: list[tuple[str, str, float, str]],
) -> None:
    metrics = BrokerMetrics("edge", "1", fabric="f", broker='e"{1} 2', lan="a")
    for topic, lan, latency_s, path in carried:
        _carry(metrics, topic, lan, latency_s, path)
    page = metrics.render().decode()
    meant = {
        Series(
            sample.name,
            sample.labels.get("topic", ""),
            sample.labels.get("peer_lan", ""),
            sample.labels.get("path", ""),
            float(sample.labels.get("le", "inf")),
        ): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name in USED_FAMILIES
    }
    reader = PageReader()
    for _ in range(2):  # the second time out of memory
        reading = reader.read(page, 7.0)
        start = {Series("process_start_time_seconds"): reading.started_s}
        assert {**reading.values, **start} == meant


def test_what_is_looked_at_is_what_an_edge_tells() -> None:
    families = {family.name for family in BrokerMetrics("edge", "1").families}
    used = {name.removesuffix("_bucket") for name in USED_FAMILIES}
    assert used - families == {"process_start_time_seconds"}


@pytest.mark.parametrize(
    "page", ["", "<html>\nnothing here\n</html>", "ddswan_samples_out_total x"]
)
def test_what_is_no_page_of_metrics_is_refused(page: str) -> None:
    with pytest.raises(ValueError):
        PageReader().read(page, 0.0)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 50), st.booleans()), max_size=40))
def test_a_rate_is_what_was_counted_in_the_window(
    steps: list[tuple[int, int, bool]],
) -> None:
    """Tenths of a second until the next page, what it adds, whether the broker began again."""
    history = History(window_s=2.0)
    series = Series(SAMPLES, "t", "a")
    readings: list[tuple[float, float]] = [(0.0, 5.0)]
    tenths, start, value = 0, 0, 5.0
    history.add(Reading(0.0, 0.0, {series: 5.0}))
    for pause, added, is_restarted in steps:
        tenths += pause
        if is_restarted:
            start, value, readings = tenths, 0.0, []
        value += added
        readings.append((tenths / 10, value))
        history.add(Reading(tenths / 10, float(start), {series: value}))
    increase = history.increase()
    if len(readings) < 2:
        assert increase is None
        return
    assert increase is not None
    now_s, value = readings[-1]
    # Back to the last page that is a window old, or the oldest, and never less than one page.
    old = [r for r in readings[:-1] if now_s - r[0] >= 2.0]
    then_s, before = old[-1] if old else readings[0]
    assert increase.seconds == pytest.approx(now_s - then_s)
    assert increase.by_series[series] == value - before


def test_a_series_that_comes_or_begins_again_counts_from_zero() -> None:
    history = History()
    new, retired = Series(SAMPLES, "new", "a"), Series(SAMPLES, "retired", "a")
    history.add(Reading(0.0, 1.0, {retired: 100.0}))
    history.add(Reading(1.0, 1.0, {new: 7.0, retired: 3.0}))
    increase = history.increase()
    assert increase is not None and increase.by_series == {new: 7.0, retired: 3.0}


def _buckets(latencies_s: list[float]) -> dict[float, float]:
    return {b: float(sum(latency <= b for latency in latencies_s)) for b in _BOUNDS_S}


@given(st.lists(st.floats(0.0001, 0.02), min_size=1, max_size=60), st.floats(0.01, 1.0))
def test_a_percentile_lies_in_the_bucket_of_the_true_one(
    latencies_s: list[float], share: float
) -> None:
    true_s = sorted(latencies_s)[math.ceil(round(share * len(latencies_s), 9)) - 1]
    bucket = bisect_left(_BOUNDS_S, true_s)
    found = percentile(_buckets(latencies_s), share)
    assert found is not None
    assert found.is_beyond == (bucket == len(_BOUNDS_S) - 1)
    if found.is_beyond:
        assert found.seconds == _BOUNDS_S[-2]
    else:
        assert (0.0, *_BOUNDS_S)[bucket] - 1e-9 <= found.seconds <= _BOUNDS_S[bucket] + 1e-9


def test_a_percentile_of_nothing_is_none() -> None:
    assert percentile({}, 0.5) is None
    assert percentile(_buckets([]), 0.99) is None


def test_the_traffic_of_a_route() -> None:
    """Two edges serve LAN b; a third one, of LAN a, tells which paths its batches took."""
    pages: dict[str, tuple[str, BrokerMetrics]] = {
        edge: (lan, BrokerMetrics("edge", "1"))
        for edge, lan in (("b1", "b"), ("b2", "b"), ("a", "a"))
    }
    readers = {edge: (PageReader(), History()) for edge in pages}

    def scrape(at_s: float) -> None:
        for edge, (reader, history) in readers.items():
            history.add(reader.read(pages[edge][1].render().decode(), at_s))

    b1, b2, a = (metrics for _, metrics in pages.values())
    for metrics in (b1, b2):
        metrics.samples_out.labels("t", "a").inc(1000)
    scrape(0.0)
    for latency_s in (0.0015, 0.0015, 0.004):
        b1.end_to_end_latency.labels("t", "a").observe(latency_s)
    b2.end_to_end_latency.labels("t", "a").observe(60.0)
    for metrics in (b1, b2):
        metrics.samples_out.labels("t", "a").inc(10)
        metrics.bytes_out.labels("t", "a").inc(500)
    b2.samples_duplicate.labels("t", "a").inc(4)
    a.batches_sent.labels("t", "standby").inc()
    a.batches_sent.labels("t", "routed").inc(0)
    strict = b1.deadline_meter("strict", "c", "express", 10)
    assert strict is not None
    strict.count([0, 100], 100)
    b1.samples_out.labels("strict", "c").inc(2)
    scrape(2.0)

    increases = []
    for edge, (_, history) in readers.items():
        increase = history.increase()
        assert increase is not None
        increases.append((pages[edge][0], increase))
    traffic = traffic_of(increases)
    assert traffic.keys() == {Route("t", "a", "b"), Route("strict", "c", "b")}
    plain, deadline = traffic[Route("t", "a", "b")], traffic[Route("strict", "c", "b")]
    assert (plain.samples_per_s, plain.bytes_per_s, plain.duplicates_per_s) == (10, 500, 2)
    assert plain.misses_per_s is None and plain.paths == ("standby",)
    assert plain.p50 is not None and plain.p50.seconds == pytest.approx(0.002)
    assert plain.p99 == Percentile(10.0, True)
    assert (deadline.samples_per_s, deadline.misses_per_s) == (1, 0.5)
    assert deadline.paths == ("express",) and deadline.p50 is None
    assert {series.name for series in increases[0][1].by_series} >= {SAMPLES, BYTES, LATENCY}
