"""Messages that say nonsense are refused where they are read: what they say is calculated with."""

from __future__ import annotations

import pytest

from gateway.errors import FrameError
from gateway.tunnel import messages
from gateway.tunnel.frames import Peer, StreamKey, decode, encode
from gateway.tunnel.messages import Open, ProbeAnswer, decode_message
from gateway.tunnel.tunnel_pb2 import Envelope

STREAM = StreamKey("a", 1, 1)
LEAST, MOST = -(1 << 63), (1 << 63) - 1


def open_at(first: int) -> bytes:
    return messages.open_stream(Peer("b", 1), STREAM, "topic", "profile", first, True)


def test_a_stream_begins_with_a_number_that_can_be_acknowledged() -> None:
    assert decode_message(open_at(1)) == Open(STREAM, "topic", "profile", 1, True, 0, 1)
    for first in (0, MOST + 1):
        envelope, _, _ = decode(open_at(1))
        envelope.open.first = first
        with pytest.raises(FrameError, match="does not begin"):
            decode_message(encode(envelope))


@pytest.mark.parametrize("time_ns", [LEAST, LEAST // 2, MOST])
@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("ping", "sent_ns"),
        ("pong", "sent_ns"),
        ("pong", "seen_ns"),
        ("probe", "sent_ns"),
        ("probe_answer", "sent_ns"),
        ("probe_answer", "seen_ns"),
        ("arrivals", "newest_ns"),
    ],
)
def test_times_are_such_that_differences_fit_into_frames(
    kind: str, field: str, time_ns: int
) -> None:
    envelope = Envelope()
    setattr(getattr(envelope, kind), field, time_ns)
    with pytest.raises(FrameError, match="is no time"):
        decode_message(encode(envelope))


@pytest.mark.parametrize("offset_ns", [LEAST, MOST])
def test_clocks_are_not_ages_apart(offset_ns: int) -> None:
    envelope = Envelope()
    envelope.probe.clock_offset_ns = offset_ns
    with pytest.raises(FrameError, match="apart"):
        decode_message(encode(envelope))


def test_a_probe_is_answered_with_its_own_time() -> None:
    asked = decode_message(messages.probe("b", Peer("a", 1), 5, -3, 2))
    assert isinstance(asked, messages.Probe)
    answered = decode_message(messages.probe_answer(asked, Peer("b", 2), 9))
    assert answered == ProbeAnswer(Peer("b", 2), 5, 9)
