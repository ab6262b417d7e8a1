"""The shortcut of lone samples from a wire to DDS does what the edge would do, or leaves it
alone: over real DDS and a pair of connected sockets.
"""

# mypy: disable-error-code="arg-type"
# (cyclonedds' type constructors are values, not types, to a checker.)

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, nullcontext

import pytest
from cyclonedds.domain import DomainParticipant
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_broker.dds import bulk, samples, shortcuts
from edge_broker.dds.shortcuts import IncomingAim
from gateway.shared_loop import SharedLoop
from gateway.tunnel import messages
from gateway.tunnel.columns import pack
from gateway.tunnel.frames import (
    Envelope,
    StreamKey,
    decode_batch,
    encode_batch,
    extended,
    stream_id,
)
from gateway.tunnel.tunnel_pb2 import Trace
from tests.edge.parts import Pair, Plain, batch_of, gather, never, take, write
from tests.edge.shortcut_parts import KEY, LONG_S, Wires, read, without_hurry

pytestmark = pytest.mark.dds

BAD_PARAMETER = -3


class In:
    """The writer of a mirror, and a reader in its LAN."""

    def __init__(self, near: DomainParticipant, far: DomainParticipant) -> None:
        self.pair = Pair(near, far, Plain)
        self.writer = self.pair.writer._ref
        self.aim = IncomingAim(stream_id(KEY))
        write(self.writer, _sample(), 5)
        ((self.sample, _),) = gather(self.pair.reader._ref, 1)

    def frame(self, first: int = 8, *, key: StreamKey = KEY, time_ns: int = 77) -> bytes:
        return encode_batch(key, ("e-b",), first, pack([time_ns], [self.sample]), 99)

    def arrived(self) -> list[int]:
        self.pair.settle()
        return [info.source_timestamp for _, info in take(self.pair.reader._ref)]


def _sample() -> bytes:
    return b"\x00\x01\x00\x00" + (3).to_bytes(4, "little") + (2).to_bytes(4, "little") + b"\1\2\0\0"


def _records(*frames: bytes) -> bytes:
    return b"".join(len(frame).to_bytes(4, "little") + frame for frame in frames)


@pytest.fixture
def inwards(near: DomainParticipant, far: DomainParticipant) -> Iterator[In]:
    inwards = In(near, far)
    yield inwards
    inwards.aim.close()


def test_it_writes_a_lone_batch_that_is_next_and_says_so_once(inwards: In, wires: Wires) -> None:
    """Which there is no hurry to account for: what comes meanwhile is written as well."""
    inwards.aim.set(inwards.writer, 8)
    records = _records(inwards.frame())
    wires.far.sendall(records)
    assert wires.wait() is True
    later = _records(inwards.frame(9, time_ns=78))
    wires.far.sendall(later)
    assert without_hurry(wires, 2) == [records, later]
    assert inwards.arrived() == [77, 78]
    assert wires.wait(0) is None
    assert shortcuts.written_at_ns() == 0
    batch = batch_of([inwards.sample], [77])
    asked_ns = time.time_ns()
    assert samples.write(inwards.writer, batch, 0, never) == 1
    assert inwards.arrived() == []
    assert 0 < asked_ns - shortcuts.written_at_ns() < LONG_S * 1e9
    assert samples.write(inwards.writer, batch, 0, never) == 1
    assert inwards.arrived() == [77]
    assert shortcuts.written_at_ns() == 0


def test_lone_batches_of_several_streams_come_together(
    inwards: In, wires: Wires, near: DomainParticipant, far: DomainParticipant
) -> None:
    other = In(near, far)
    key = KEY._replace(number=8)
    aim = IncomingAim(stream_id(key))
    aim.set(other.writer, 1)
    inwards.aim.set(inwards.writer, 8)
    records = _records(inwards.frame(), other.frame(1, key=key))
    wires.far.sendall(records)
    assert wires.wait() is True
    assert read() == [(wires.near.fileno(), records)]
    assert (inwards.arrived(), other.arrived()) == ([77], [77])
    for each in (inwards, other):
        assert samples.write(each.writer, batch_of([each.sample], [77]), 0, never) == 1
        assert each.arrived() == []


@pytest.mark.parametrize(
    "what",
    [
        "another number",
        "another stream",
        "two samples",
        "traced",
        "disposed",
        "no encoding",
        "half",
        "ack first",
    ],
)
def test_it_only_reads_what_it_is_not_sure_of(inwards: In, wires: Wires, what: str) -> None:
    inwards.aim.set(inwards.writer, 8)
    sample = inwards.sample
    frames = {
        "another number": inwards.frame(9),
        "another stream": inwards.frame(key=KEY._replace(number=8)),
        "two samples": encode_batch(KEY, ("e-b",), 8, pack([1, 2], [sample, sample]), 99),
        "traced": extended(inwards.frame(), Envelope(trace=Trace(share=1.0)).SerializeToString()),
        "no encoding": encode_batch(KEY, ("e-b",), 8, pack([1], [b"\0\4" + sample[2:]]), 99),
        "disposed": encode_batch(KEY, ("e-b",), 8, pack([1], [sample], b"\1"), 99),
    }
    records = _records(frames.get(what, inwards.frame()))
    if what == "half":
        records = records[:-1]
    elif what == "ack first":
        ack = messages.pong(messages.Ping(1, 2, False), 3)
        records = _records(ack) + records
    wires.far.sendall(records)
    assert wires.wait() == []
    assert read() == [(wires.near.fileno(), records)]
    assert inwards.arrived() == []


def test_it_goes_on_with_those_that_follow(inwards: In, wires: Wires) -> None:
    """Unless one is missing. To aim at what has come already takes nothing back."""
    inwards.aim.set(inwards.writer, 8)
    for number in (8, 9):
        wires.far.sendall(_records(inwards.frame(number, time_ns=number)))
    assert wires.wait() is True
    assert b"".join(chunk for _, chunk in read()).count(b"e-b") == 2
    inwards.aim.set(inwards.writer, 8)
    for number in (10, 12):
        wires.far.sendall(_records(inwards.frame(number, time_ns=number)))
    assert wires.wait() == []
    assert inwards.arrived() == [8, 9, 10]
    assert inwards.aim.lower()
    for number in (8, 9, 10):
        batch = batch_of([inwards.sample], [number])
        assert samples.write(inwards.writer, batch, 0, never) == 1
    assert inwards.arrived() == []
    assert not inwards.aim.lower()
    read()
    inwards.aim.set(inwards.writer, 12)
    wires.far.sendall(_records(inwards.frame(12)))
    assert wires.wait() is True
    assert len(read()) == 1 and inwards.arrived() == [77]


def test_what_ended_with_its_link_does_not_keep_others_from_going_ahead(
    inwards: In, wires: Wires
) -> None:
    """Written, but what was read is gone before anybody asked; the stream goes on behind it."""
    for number in (8, 9, 10):
        inwards.aim.set(inwards.writer, number)
        wires.far.sendall(_records(inwards.frame(number, time_ns=number)))
        assert wires.wait() is True
        assert len(read()) == 1
        assert inwards.arrived() == [number]
    assert inwards.aim.lower()
    inwards.aim.set(inwards.writer, 11)
    assert not inwards.aim.lower()


def test_there_is_no_hurry_with_a_copy(inwards: In, wires: Wires) -> None:
    """What comes behind it goes on ahead."""
    inwards.aim.set(inwards.writer, 8)
    other = Wires()
    try:
        first, second = (_records(inwards.frame(number, time_ns=number)) for number in (8, 9))
        wires.far.sendall(first)
        assert without_hurry(wires, 1) == [first]
        other.far.sendall(first + second)
        assert without_hurry(other, 1) == [first + second]
        assert inwards.arrived() == [8, 9]
        wires.far.sendall(second)
        assert without_hurry(wires, 1) == [second]
        assert inwards.arrived() == []
    finally:
        other.close()


@pytest.mark.parametrize("count", [1, 2])
def test_what_the_edge_has_written_is_not_written_again(
    inwards: In, wires: Wires, count: int
) -> None:
    """A copy may come while the edge writes what it got another way; nothing need have lowered the
    aim before."""
    inwards.aim.set(inwards.writer, 8)
    batch = batch_of([inwards.sample] * count, [77, 78][:count])
    assert samples.write(inwards.writer, batch, 0, never) == count
    wires.far.sendall(_records(inwards.frame()))
    assert wires.wait() == []
    assert len(read()) == 1
    assert inwards.arrived() == [77, 78][:count]


def test_what_was_read_is_accounted_for_in_that_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when accounting for one thing asks for all others."""
    chunks = [[(1, b"a", 10), (1, b"b", 20)], [(1, b"c", 30)]]
    monkeypatch.setattr(bulk, "read", lambda: chunks.pop(0) if chunks else [])
    order: list[tuple[bytes, int]] = []

    def on_read(wire: int, chunk: bytes) -> None:
        order.append((chunk, accounts.read_at_ns))
        if chunk == b"a":
            assert accounts.settle()
            assert not accounts.settle()
            assert accounts.read_at_ns == 10

    with closing(SharedLoop()) as loop:
        accounts = shortcuts.Accounts(on_read, nullcontext, loop)
        assert accounts.settle()
    assert order == [(b"a", 10), (b"b", 20), (b"c", 30)]
    assert accounts.read_at_ns == 0


@pytest.mark.parametrize("why", ["lowered", "unwatched"])
def test_it_reads_nothing_unless_it_may(inwards: In, wires: Wires, why: str) -> None:
    inwards.aim.set(inwards.writer, 8)
    if why == "lowered":
        assert not inwards.aim.lower()
    else:
        wires.ahead.watch(wires.near.fileno(), False)
    wires.far.sendall(_records(inwards.frame()))
    assert wires.wait() == ([] if why == "lowered" else [wires.near.fileno()])
    assert len(bulk.read()) == (why == "lowered")
    assert inwards.arrived() == []


def test_the_end_of_a_connection_is_for_others_to_read(inwards: In, wires: Wires) -> None:
    inwards.aim.set(inwards.writer, 8)
    wires.far.close()
    assert wires.wait() == [wires.near.fileno()]
    assert bulk.read() == []


def test_what_dds_says_is_told_when_the_edge_writes(inwards: In, wires: Wires) -> None:
    """As if it had written itself just then: here, that there is no such writer."""
    gone = 1
    inwards.aim.set(gone, 8)
    wires.far.sendall(_records(inwards.frame()))
    assert wires.wait() == [], "there is a hurry: it is to be tried again"
    assert len(read()) == 1
    codes: list[int] = []
    assert samples.write(gone, batch_of([inwards.sample], [77]), 0, codes.append) == 1
    assert codes == [BAD_PARAMETER]


@given(data=st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_garbage_is_handed_on_as_it_came(inwards: In, wires: Wires, data: st.DataObject) -> None:
    """Frames with some bytes changed, and bytes that never were frames. What is still a batch of
    the next number may be written; then it is what the edge reads in it, too."""
    valid = bytearray(_records(inwards.frame(time_ns=1000)))
    if data.draw(st.booleans()):
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, len(valid) - 1))
            valid[at] = data.draw(st.integers(0, 255))
        raw = bytes(valid)
    else:
        raw = data.draw(st.binary(min_size=1, max_size=300))
    inwards.aim.set(inwards.writer, 8)
    wires.far.sendall(raw)
    assert wires.wait() is not None
    assert b"".join(chunk for _, chunk in read()) == raw
    arrived = inwards.arrived()
    if arrived:
        batch = decode_batch(raw[4 : 4 + int.from_bytes(raw[:4], "little")])
        assert (batch.stream, batch.first, list(batch.timestamps)) == (KEY, 8, arrived)
        assert samples.write(inwards.writer, batch, 0, never) == 1
        assert inwards.arrived() == []
    inwards.aim.close()  # DDS may have rejected what was written


def test_there_is_room_for_so_many_streams(inwards: In) -> None:
    """More aims than there is room for are refused; those that were lowered make room."""
    aims = [IncomingAim(stream_id(StreamKey("x", 1, number))) for number in range(300)]
    for aim in aims:
        aim.set(inwards.writer, 1)
    held = sum(aim.is_set for aim in aims)
    assert 200 < held < 300
    for aim in aims:
        aim.lower()
    late = IncomingAim(stream_id(KEY))
    late.set(inwards.writer, 1)
    assert late.is_set
    late.lower()
