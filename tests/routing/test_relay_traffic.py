"""The router's accounting: rates by topic, bounded."""

from __future__ import annotations

import pytest

from gateway.tunnel.frames import StreamKey
from routing_broker import traffic as accounting
from routing_broker.traffic import Traffic

ONE = StreamKey("a", 1, 1)
TWO = StreamKey("a", 1, 2)
OTHER = StreamKey("b", 1, 1)


def settle(traffic: Traffic, seconds: int, sizes: dict[StreamKey, int]) -> None:
    for _ in range(seconds):
        for stream, size in sizes.items():
            traffic.count(stream, size)
        traffic.tick(1.0)


def test_rates_by_topic_heaviest_first() -> None:
    traffic = Traffic()
    traffic.learn(ONE, "light")
    traffic.learn(TWO, "heavy")
    traffic.learn(OTHER, "heavy")
    settle(traffic, 20, {ONE: 100, TWO: 1_000, OTHER: 500})
    assert traffic.bytes_per_s == pytest.approx(1_600, rel=0.01)
    assert [topic for topic, _ in traffic.heaviest(10)] == ["heavy", "light"]
    assert dict(traffic.heaviest(1)) == pytest.approx({"heavy": 1_500}, rel=0.01)


def test_change_shows_within_seconds() -> None:
    traffic = Traffic()
    settle(traffic, 20, {ONE: 1_000})
    settle(traffic, 4, {})
    assert traffic.bytes_per_s < 200


def test_stream_never_opened_here_counts_in_the_total() -> None:
    traffic = Traffic()
    settle(traffic, 20, {ONE: 1_000})
    assert traffic.bytes_per_s == pytest.approx(1_000, rel=0.01)
    assert traffic.heaviest(10) == ()


def test_topic_of_a_departed_edge_is_forgotten_when_idle() -> None:
    traffic = Traffic()
    traffic.learn(ONE, "t")
    settle(traffic, 1, {ONE: 1_000})
    traffic.forget("a")
    assert dict(traffic.heaviest(10)), "what was just forwarded still counts"
    settle(traffic, 60, {})
    assert traffic.heaviest(10) == ()
    traffic.learn(ONE, "t")
    settle(traffic, 20, {ONE: 100})
    assert dict(traffic.heaviest(10)) == pytest.approx({"t": 100}, rel=0.01)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounting, "MAX_STREAMS", 3)
    traffic = Traffic()
    for number in range(10):
        traffic.learn(StreamKey("a", 1, number), f"t{number}")
        traffic.count(StreamKey("a", 1, number), 100)
    traffic.tick(1.0)
    assert len(traffic.heaviest(10)) == 3


def test_new_streams_take_the_place_of_those_that_carry_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Edges live on for months, and nobody says here that a stream is closed."""
    monkeypatch.setattr(accounting, "MAX_STREAMS", 3)
    traffic = Traffic()
    traffic.learn(ONE, "lasting")
    for number in range(10, 20):
        short = StreamKey("a", 1, number)
        traffic.learn(short, f"t{number}")
        settle(traffic, 20, {ONE: 1_000, short: 100})
    assert dict(traffic.heaviest(10)) == pytest.approx({"lasting": 1_000, "t19": 100}, rel=0.01)
