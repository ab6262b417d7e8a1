"""What a subscribing edge says of its streams when the way to their publisher is interrupted."""

from __future__ import annotations

from typing import cast

from edge_broker.answers import Answers
from edge_broker.links import ROUTED, Link, Links, Way
from edge_broker.mirror import Inbound, Mirror
from gateway.model import Profile, Qos
from gateway.observe.metrics import BrokerMetrics
from gateway.plan.demand import MirrorKey, WantedMirror
from gateway.tunnel.frames import Peer, StreamKey
from gateway.tunnel.messages import Ack, decode_message


class _Way:
    """Stands for the only link and for the choice among links."""

    is_up = True

    def __init__(self) -> None:
        self.connects = 1
        self.is_there = True
        self.said: list[Ack] = []
        self.reaching: list[Way] = []

    def all_ways(self, destination: str) -> list[Way]:
        return self.reaching

    def path(self, topic: str, destination: str) -> _Way | None:
        return self if self.is_there else None

    def send(self, topic: str, destination: str, frame: bytes) -> bool:
        message = decode_message(frame)
        assert isinstance(message, Ack)
        self.said.append(message)
        return True


def test_every_stream_is_acknowledged_once_over_a_way_that_was_interrupted() -> None:
    """Best-effort and idle ones too: only so does it learn at once that it was given up."""
    way = _Way()
    profile = Profile("T", None, False, Qos())
    want = WantedMirror(profile, 1, None)
    key = MirrorKey("a", 1, "topic", profile.id)
    mirror = Mirror(key, want, BrokerMetrics("edge", "0"))
    inbound = {
        stream: (Inbound(stream, 1, reliable=number == 1, hold_bytes=1), mirror)
        for number in (1, 2)
        for stream in [StreamKey("a", 1, number)]
    }
    answers = Answers(Peer("b", 1), cast(Links, way), inbound, lambda: 100.0, ask=bool)
    for each, _ in inbound.values():
        each.acknowledged_s = 100.0
        each.answered_over = (cast(Link, way), 1)
    answers.on_links_changed()
    assert way.said == []
    way.is_there = False
    answers.on_links_changed()
    assert way.said == []
    way.is_there, way.connects = True, 2
    answers.on_links_changed()
    assert [each.stream for each in way.said] == list(inbound)
    answers.on_links_changed()
    assert len(way.said) == 2


def test_a_stream_is_not_acknowledged_over_a_link_that_no_longer_reaches_its_publisher() -> None:
    """Its router is there, but the publisher's edge has left it: what it says is lost."""
    way, former = _Way(), _Former()
    profile = Profile("T", None, False, Qos())
    mirror = Mirror(
        MirrorKey("a", 1, "topic", profile.id),
        WantedMirror(profile, 1, None),
        BrokerMetrics("edge", "0"),
    )
    stream = StreamKey("a", 1, 1)
    inbound = Inbound(stream, 1, reliable=True, hold_bytes=1)
    inbound.answer_link = cast(Link, former)
    way.reaching = [Way(ROUTED, "r1", cast(Link, former))]
    inbounds = {stream: (inbound, mirror)}
    answers = Answers(Peer("b", 1), cast(Links, way), inbounds, lambda: 100.0, ask=bool)
    answers.on_links_changed()
    assert former.frames
    former.frames.clear()
    way.reaching = []
    answers.on_links_changed()
    answers.acknowledge(inbound, mirror)
    assert former.frames == []
    assert [each.stream for each in way.said] == [stream]


class _Former:
    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def send(self, frame: bytes) -> bool:
        self.frames.append(frame)
        return True
