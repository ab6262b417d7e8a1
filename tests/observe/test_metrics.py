"""The names and labels dashboards rely on, and how many series there can be."""

from __future__ import annotations

from prometheus_client import Histogram
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from gateway.observe.metric_labels import (
    LABELS,
    OTHER_TOPICS,
    PAIR_LABELS,
    RETIRED_AFTER_S,
    TOPIC_LABELS,
)
from gateway.observe.metrics import _LATENCY_S, BrokerMetrics

_EDGE = {"fabric": "f", "broker": "e1", "lan": "a"}


def _edge() -> BrokerMetrics:
    return BrokerMetrics("edge", "1.2.3", **_EDGE)


def _samples(metrics: BrokerMetrics) -> list[Sample]:
    page = metrics.render().decode()
    return [s for family in text_string_to_metric_families(page) for s in family.samples]


def _use(metrics: BrokerMetrics, topic: str, lans: list[str]) -> None:
    """What one topic in both directions makes an edge set."""
    label = metrics.topic_label(topic)
    of_topics = {f.name.removesuffix("_total") for f in metrics.families if f.labels == ("topic",)}
    for family in vars(metrics).values():
        if getattr(family, "_name", None) in of_topics:
            family.labels(topic=label)
    for lan in lans:
        peer_lan = metrics.peer_lan_label(topic, lan)
        for family in (metrics.samples_out, metrics.bytes_out, metrics.samples_duplicate):
            family.labels(label, peer_lan).inc()
        metrics.end_to_end_latency.labels(metrics.pair_label(topic, lan), lan).observe(0.001)
        meter = metrics.deadline_meter(topic, lan, "routed", 1)
        assert meter is not None
        meter.count([1], 2)


def test_the_page_parses_and_tells_whose_it_is() -> None:
    metrics = _edge()
    metrics.samples_in.labels(topic="/a b\n\"'").inc(3)
    for _ in range(2):  # a second scrape is like the first
        samples = {(s.name, tuple(sorted(s.labels.items()))): s.value for s in _samples(metrics)}
        same = tuple(_EDGE.items())
        topic = ("topic", "/a b\n\"'")
        assert samples["ddswan_samples_in_total", tuple(sorted((*same, topic)))] == 3
        about = (*same, ("component", "edge"), ("version", "1.2.3"))
        assert samples["ddswan_build_info", tuple(sorted(about))] == 1
        assert {name.split("_")[0] for name, _ in samples} == {"ddswan", "process"}
        assert all(set(same) <= set(labels) for _, labels in samples)


def test_what_is_counted_without_a_lock_is_told_as_prometheus_would() -> None:
    metrics = _edge()
    real = Histogram("real", "", buckets=_LATENCY_S, registry=None)
    own = metrics.hop_latency.labels(hop="egress")
    for value in (0.0, 0.0001, 0.00011, 0.3, 10.0, 11.0):
        own.observe(value)
        real.observe(value)
    metrics.batches_sent.labels(topic="t", path="routed").inc()
    metrics.batches_sent.labels(topic="t", path="routed").inc(2)
    for _ in range(2):
        told = [s for s in _samples(metrics) if s.name.startswith("ddswan_hop_latency")]
        expected = [s for family in real.collect() for s in family.samples]
        assert [(s.name[26:], s.labels.get("le"), s.value) for s in told] == [
            (s.name[4:], s.labels.get("le"), s.value) for s in expected
        ]
        (sent,) = [s.value for s in _samples(metrics) if s.name == "ddswan_batches_sent_total"]
        assert sent == 3


def test_two_brokers_in_one_process_do_not_meet() -> None:
    one, other = BrokerMetrics("edge", "1"), BrokerMetrics("router", "1")
    one.session_losses.inc()
    assert b"ddswan_session_losses_total 0.0" in other.render()


def test_what_nobody_sets_is_not_shown() -> None:
    edge, router = BrokerMetrics("edge", "1").render(), BrokerMetrics("router", "1").render()
    assert b"ddswan_leader 0.0" in router and b"ddswan_leader 0.0" not in edge
    assert b"ddswan_pending_bytes 0.0" in edge and b"ddswan_pending_bytes 0.0" not in router


def test_a_thousand_topics_and_many_lans_have_a_bounded_number_of_series() -> None:
    metrics = _edge()
    lans = [f"lan{number}" for number in range(30)]
    counts = []
    for start in (0, 1000):
        for number in range(start, start + 1000):
            _use(metrics, f"t{number}", lans)
        counts.append(len(_samples(metrics)))
    assert counts[0] == counts[1], "beyond the bound, more topics add nothing"
    topics = {s.labels["topic"] for s in _samples(metrics) if "topic" in s.labels}
    assert len(topics) == TOPIC_LABELS + 1 and OTHER_TOPICS in topics
    into_lan = [s for s in _samples(metrics) if s.name == "ddswan_samples_out_total"]
    assert sum(s.value for s in into_lan) == 2000 * len(lans)
    by_topic = sum(s.value for s in into_lan if s.labels["topic"] == f"t{TOPIC_LABELS - 1}")
    assert by_topic == len(lans), "the LANs of a topic add up, shown by name or not"
    of_pairs = len([s for s in _samples(metrics) if s.name == "ddswan_deadline_misses_total"])
    assert of_pairs == PAIR_LABELS + len(lans)
    # A topic has some 10 series, a pair some 25; this is what a metrics server bears from each.
    assert counts[0] < 40_000


def test_a_topic_long_gone_makes_room_for_another() -> None:
    metrics = _edge()
    for number in range(TOPIC_LABELS):
        _use(metrics, f"t{number}", ["b"])
    assert metrics.topic_label("late") == OTHER_TOPICS
    known = {f"t{number}" for number in range(TOPIC_LABELS)}
    metrics.retire("topic", known, 0.0)
    metrics.retire("topic", known - {"t7"}, RETIRED_AFTER_S - 1)
    assert any(s.labels.get("topic") == "t7" for s in _samples(metrics)), "not yet"
    metrics.retire("topic", known - {"t7"}, RETIRED_AFTER_S)
    assert not any(s.labels.get("topic") == "t7" for s in _samples(metrics))
    assert metrics.topic_label("late") == metrics.pair_label("late", "b") == "late"
    assert metrics.topic_label("t8") == "t8"


def test_a_peer_long_gone_is_forgotten() -> None:
    metrics = _edge()
    metrics.link_losses.labels(peer="r1").inc()
    metrics.retire("peer", {"r1", "r2"}, 0.0)
    metrics.retire("peer", {"r2"}, RETIRED_AFTER_S)
    assert not any(s.labels.get("peer") == "r1" for s in _samples(metrics))


def test_deadlines_are_counted_by_sample() -> None:
    metrics = _edge()
    meter = metrics.deadline_meter("t", "b", "routed", 1000)
    assert meter is not None
    meter.count([5000, 4999, 6000], 6000)
    meter.count([6000], 6000)
    values = {s.name: s.value for s in _samples(metrics) if s.labels.get("topic") == "t"}
    assert values["ddswan_deadline_samples_total"] == 4
    assert values["ddswan_deadline_misses_total"] == 1


def test_every_metric_is_described_and_its_labels_are_bounded() -> None:
    families = BrokerMetrics("edge", "1").families
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert family.text.endswith("."), family.name
        assert set(family.labels) <= LABELS.keys(), family.name
        units = ("_seconds", "_bytes", "_ratio", "_info")
        assert family.kind != "histogram" or family.name.endswith(units), family.name
    assert not {"guid", "stream", "writer", "sample"} & LABELS.keys()
