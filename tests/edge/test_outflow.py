"""Who of a stream's subscribers counts as cut off: only those that have owed something for so
long."""

from __future__ import annotations

from typing import cast

from edge_broker.history import Kept
from edge_broker.links import Links
from edge_broker.outflow import Outflow
from edge_broker.source import ReplaySource
from gateway.model import Profile, Qos, Reliability
from gateway.observe.metrics import BrokerMetrics
from gateway.tunnel.columns import WRITE
from gateway.tunnel.frames import StreamKey

LONG_S = 8.0
SIZE = 900


class FakeLink:
    """Takes whatever comes."""

    is_up = True
    is_congested = False
    connects = 1

    def send(self, frame: bytes) -> bool:
        return True


class FakeLinks:
    """One link to everybody."""

    generation = 1

    def __init__(self) -> None:
        self.link = FakeLink()

    def path(self, topic: str, destination: str) -> FakeLink:
        return self.link

    def send(self, topic: str, destination: str, frame: bytes) -> bool:
        return True


def outflow(window_bytes: int) -> Outflow:
    """With plenty of samples, of which each take brings one."""
    made = Outflow(
        StreamKey("a", 1, 1),
        "topic",
        Profile("T", None, False, Qos(reliability=Reliability.RELIABLE)),
        ReplaySource([Kept(number, number, bytes(SIZE), WRITE) for number in range(100)]),
        cast(Links, FakeLinks()),
        BrokerMetrics("edge", "0"),
        window_bytes=window_bytes,
        batch_samples=256,
        batch_bytes=1 << 20,
        may_keep_more=lambda: False,
    )
    made._take = 1
    return made


def test_who_owes_since_a_moment_is_not_cut_off_because_another_is() -> None:
    """However long ago it acknowledged the sample before."""
    stream = outflow(3 * SIZE)
    for edge in ("cut", "healthy"):
        stream.add_subscriber(edge, 1)
    now_s = 100.0
    while stream.stream.has_room:
        now_s += 10.0
        stream.forward(now_s)
        assert stream.cut_off(now_s + 0.01, LONG_S) == ([] if now_s == 110.0 else ["cut"])
        if stream.stream.has_room:
            stream.on_ack("healthy", 1, stream.stream.next_number - 1, (), now_s + 0.05)
    assert stream.cut_off(now_s + LONG_S + 0.1, LONG_S) == ["cut", "healthy"]


def test_who_has_just_come_is_not_cut_off() -> None:
    stream = outflow(SIZE)
    stream.add_subscriber("slow", 1)
    stream.forward(100.0)
    stream.on_ack("slow", 1, 0, ((1, 1),), 100.0)  # has it, and has not written it
    assert stream.is_blocked(100.1)
    stream.add_subscriber("new", 1)
    stream.forward(100.11)
    assert stream.cut_off(100.12, LONG_S) == []
    assert stream.is_blocked(100.12)
