"""The shortcut of lone samples does what the edge would do, or leaves it alone: over real DDS and a
pair of connected sockets.
"""

# mypy: disable-error-code="arg-type"
# (cyclonedds' type constructors are values, not types, to a checker.)

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext, suppress

import pytest
from cyclonedds.core import GuardCondition, WaitSet
from cyclonedds.domain import DomainParticipant
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_broker.dds import bulk, native, samples, shortcuts
from edge_broker.dds.samples import Plain as Taken
from edge_broker.dds.shortcuts import IncomingAim, OutgoingAim
from gateway.shared_loop import SharedLoop
from gateway.tunnel import messages
from gateway.tunnel.columns import pack
from gateway.tunnel.frames import (
    Envelope,
    StreamKey,
    decode_batch,
    encode_batch,
    extended,
    lone_batch_head,
    stream_id,
)
from gateway.tunnel.tunnel_pb2 import Trace
from gateway.tunnel.wire_reader import CompiledAhead, News
from tests.edge.parts import Keyed, Pair, Plain, batch_of, gather, never, take, write

pytestmark = pytest.mark.dds

KEY = StreamKey("e-a", 12345678901234567890, 7)
LONG_S = 20.0
SECOND_NS = 1_000_000_000
BAD_PARAMETER = -3


class Wires:
    """Two ends of a connection, one of them watched."""

    def __init__(self) -> None:
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.far.settimeout(LONG_S)
        self.epoll = select.epoll()
        self.epoll.register(self.near, select.EPOLLIN)
        self.ahead = CompiledAhead(bulk)
        self.ahead.watch(self.near.fileno(), True)

    def close(self) -> None:
        self.ahead.watch(self.near.fileno(), False)
        self.ahead.lower(self.near.fileno())
        self.ahead.rest(self.near.fileno())
        self.epoll.close()
        self.near.close()
        self.far.close()

    def wait(self, timeout_ms: int = 10_000) -> News:
        return self.ahead.wait(self.epoll.fileno(), timeout_ms)

    def is_silent(self) -> bool:
        with suppress(BlockingIOError):
            self.far.setblocking(False)
            return not self.far.recv(1)
        return True

    def record(self) -> bytes:
        """The next one, with its length."""
        size = b""
        while len(size) < 4:
            size += self.far.recv(4 - len(size))
        frame = b""
        while len(frame) < int.from_bytes(size, "little"):
            frame += self.far.recv(int.from_bytes(size, "little") - len(frame))
        return size + frame


@pytest.fixture
def wires() -> Iterator[Wires]:
    wires = Wires()
    yield wires
    wires.close()


Chunks = list[tuple[int, bytes]]


def read() -> Chunks:
    """What has been read since the last call."""
    assert bulk.has_news()
    began_ns = time.time_ns() - LONG_S * 10**9
    chunks = bulk.read()
    assert not bulk.has_news()
    assert all(began_ns < at_ns <= time.time_ns() for _, _, at_ns in chunks)
    return [(wire, chunk) for wire, chunk, _ in chunks]


class Out:
    """A writer in the LAN, the edge's reader, and what waits for it."""

    def __init__(self, near: DomainParticipant, far: DomainParticipant, type_: type) -> None:
        self.pair = Pair(far, near, type_)
        self.reader = self.pair.reader._ref
        self.waitset, self.guard = WaitSet(near), GuardCondition(near)
        assert native.watch_data(self.waitset._ref, self.reader) == native.RETCODE_OK
        assert native.watch_trigger(self.waitset._ref, self.guard._ref) == native.RETCODE_OK
        shortcuts.wake_by(self.guard._ref)
        self.aim = OutgoingAim(self.reader)
        self.pair.writer.write(type_(*_NOTHING[type_]))
        assert self.wait() == [self.reader]
        taken = samples.take(self.reader, 10)
        assert isinstance(taken, Taken)
        (self.writer,) = taken.writer_handles()

    def wait(self) -> list[int]:
        """What has news but for what the shortcut has seen to; something has."""
        began_s = time.monotonic()
        found = samples.wait(self.waitset._ref, 20 * SECOND_NS)
        assert time.monotonic() - began_s < 10.0
        return found

    def set(
        self,
        wires: Wires,
        first: int = 2,
        to: tuple[str, ...] = ("e-b",),
        *,
        more: tuple[Wires, ...] = (),
        count: int = 1,
        writer: int = 0,
        good_s: float = LONG_S,
        is_all: bool = True,
        is_timed: bool = True,
    ) -> None:
        ways = tuple((each.near.fileno(), lone_batch_head(to)) for each in (wires, *more))
        self.aim.set(
            ways,
            writer or self.writer,
            stream_id(KEY),
            first,
            first + count,
            time.monotonic() + good_s,
            is_all=is_all,
            is_timed=is_timed,
        )

    def sent_ns(self) -> int | None:
        """When what the reader gives next was sent; None: it was not."""
        gone = self.aim.gone()
        return gone.sent_ns if gone is not None and gone.ways else None


_NOTHING: dict[type, tuple[object, ...]] = {Plain: (0, []), Keyed: (0, 1, [])}


@pytest.fixture
def outwards(near: DomainParticipant, far: DomainParticipant) -> Iterator[Callable[[type], Out]]:
    made: list[Out] = []

    def make(type_: type) -> Out:
        made.append(Out(near, far, type_))
        return made[-1]

    yield make
    for out in made:
        out.aim.close()


# ---------------------------------------------------------------- from DDS to a wire


@pytest.mark.parametrize("first", [2, 127, 128, 1 << 40])
@pytest.mark.parametrize("size", [0, 1, 120, 8000])
@pytest.mark.parametrize("to", [("e-b",), ("e-b" * 60, "é")])
def test_it_sends_what_the_edge_would(
    outwards: Callable[[type], Out],
    wires: Wires,
    first: int,
    size: int,
    to: tuple[str, ...],
) -> None:
    """In the thread that receives it: nobody need wait, and a turn may be under way."""
    out = outwards(Plain)
    out.set(wires, first, to)
    out.pair.writer.write(Plain(1, [3] * size))
    record = wires.record()
    assert out.aim.lower()
    sent_ns = out.sent_ns()
    taken = samples.take(out.reader, 10)
    assert isinstance(taken, Taken)
    assert samples.take(out.reader, 10) is None
    assert sent_ns is not None
    assert abs(time.time_ns() - sent_ns) < LONG_S * 1e9
    frame = encode_batch(KEY, to, first, taken.packed, sent_ns)
    assert record == len(frame).to_bytes(4, "little") + frame
    assert not out.aim.lower()
    assert out.sent_ns() is None


def test_what_was_taken_is_told_in_that_order(
    outwards: Callable[[type], Out], wires: Wires
) -> None:
    outs = [outwards(Plain) for _ in range(5)]
    for out in reversed(outs):
        out.set(wires)
    for out in outs:
        out.pair.writer.write(Plain(1, []))
        assert wires.record()
    assert bulk.has_news()
    assert shortcuts.taken() == [out.reader for out in outs]
    assert shortcuts.taken() is None
    assert not bulk.has_news()
    for out in outs:
        assert len(take(out.reader)) == 1


def test_what_came_before_the_aim_was_taken_is_sent_by_who_waits(
    outwards: Callable[[type], Out], wires: Wires
) -> None:
    out = outwards(Plain)
    out.pair.writer.write(Plain(1, []))
    out.pair.settle()
    out.set(wires)
    assert out.wait() == []
    assert decode_batch(wires.record()[4:]).count == 1
    assert out.aim.lower()
    assert out.sent_ns() is not None
    assert len(take(out.reader)) == 1


def test_what_nobody_times_does_not_say_when(outwards: Callable[[type], Out], wires: Wires) -> None:
    out = outwards(Plain)
    out.set(wires, is_timed=False)
    out.pair.writer.write(Plain(1, []))
    record = wires.record()
    batch = decode_batch(record[4:])
    assert (batch.count, batch.sent_ns) == (1, 0)
    assert out.aim.lower()
    assert out.sent_ns() is not None
    packed = pack(batch.timestamps, batch.samples())
    assert record[4:] == encode_batch(KEY, ("e-b",), 2, packed)


def test_who_waits_is_told_of_what_cannot_wait(
    outwards: Callable[[type], Out], wires: Wires
) -> None:
    """The sample has to go to others, too."""
    out = outwards(Plain)
    out.set(wires, is_all=False)
    out.pair.writer.write(Plain(1, []))
    assert out.wait() == []
    assert shortcuts.taken() == [out.reader]
    assert decode_batch(wires.record()[4:]).count == 1
    assert len(take(out.reader)) == 1


def test_samples_that_come_together_go_together(
    outwards: Callable[[type], Out], wires: Wires
) -> None:
    out = outwards(Plain)
    for index in range(1, 6):
        out.pair.writer.write(Plain(index, []))
    out.pair.settle()
    out.set(wires)
    assert out.wait() == [out.reader]
    assert out.aim.lower()
    assert out.sent_ns() is None
    assert len(take(out.reader)) == 2
    assert len(take(out.reader)) == 3
    assert wires.is_silent()


def test_two_that_follow_each_other_are_never_the_same_number(
    outwards: Callable[[type], Out], wires: Wires
) -> None:
    """Who accounts for one aims for the next while samples go on coming."""
    out = outwards(Plain)
    count = 1000

    def publish() -> None:
        for index in range(count):
            out.pair.writer.write(Plain(index, []))
            time.sleep(0.0005)

    publisher = threading.Thread(target=publish)
    publisher.start()
    number = 2
    received: list[int] = []
    sent = 0

    def account() -> None:
        nonlocal number, sent
        while out.sent_ns() is not None:
            ((sample, _),) = take(out.reader)
            received.append(int.from_bytes(sample[4:8], "little"))
            assert decode_batch(wires.record()[4:]).first == number
            number += 1
            sent += 1

    while number < 2 + count:
        out.set(wires, number, count=1000)
        time.sleep(0.0003)  # some come meanwhile
        account()
        time.sleep(0.0003)
        out.aim.lower()
        account()
        rest = take(out.reader)
        received += [int.from_bytes(sample[4:8], "little") for sample, _ in rest]
        number += len(rest)
    publisher.join()
    assert received == list(range(count))
    assert 0 < sent < count
    assert wires.is_silent()


def test_those_that_follow_go_ahead_too_up_to_the_end(
    outwards: Callable[[type], Out], wires: Wires
) -> None:
    """Which may be moved while they do; none is taken that may not go."""
    out = outwards(Plain)
    out.set(wires, 2, count=3)
    for index in range(3):
        out.pair.writer.write(Plain(index, []))
        assert decode_batch(wires.record()[4:]).first == 2 + index
    for _ in range(2):
        assert out.sent_ns() is not None
        assert len(take(out.reader)) == 1
    assert out.aim.keep(6, time.monotonic() + LONG_S)
    out.pair.writer.write(Plain(3, []))
    assert decode_batch(wires.record()[4:]).first == 5
    out.pair.writer.write(Plain(4, []))
    assert out.wait() == [out.reader]
    assert not out.aim.keep(10, time.monotonic() + LONG_S), "it was lowered"
    for _ in range(2):
        assert out.sent_ns() is not None
        assert len(take(out.reader)) == 1
    assert out.sent_ns() is None
    assert len(take(out.reader)) == 1
    assert wires.is_silent()


def test_so_many_go_ahead_that_nobody_has_accounted_for(
    outwards: Callable[[type], Out], wires: Wires
) -> None:
    """The others are there for whoever takes them then."""
    out = outwards(Plain)
    count = 40
    out.set(wires, 2, count=1000)
    for index in range(count):
        out.pair.writer.write(Plain(index, []))
        out.pair.settle()
    assert out.wait() == [out.reader]
    assert out.aim.lower()
    taken = 0
    while out.sent_ns() is not None:
        assert len(take(out.reader)) == 1
        taken += 1
        assert decode_batch(wires.record()[4:]).first == 1 + taken
    assert 16 <= taken < count
    assert not out.aim.lower()
    assert len(take(out.reader)) == count - taken
    assert wires.is_silent()


def test_copies_go_over_two_wires(outwards: Callable[[type], Out], wires: Wires) -> None:
    out, other = outwards(Plain), Wires()
    try:
        out.set(wires, 2, more=(other,), count=10)
        for number in (2, 3):
            out.pair.writer.write(Plain(number, []))
            record = wires.record()
            assert other.record() == record
            assert decode_batch(record[4:]).first == number
            gone = out.aim.gone()
            assert gone is not None and gone.ways == 0b11
            assert len(take(out.reader)) == 1
        other.near.shutdown(socket.SHUT_WR)
        out.pair.writer.write(Plain(4, []))
        assert wires.record()
        gone = out.aim.gone()
        assert gone is not None and gone.ways == 0b01, "the other copy is for the edge to send"
        assert len(take(out.reader)) == 1
        out.pair.writer.write(Plain(5, []))
        assert out.wait() == [out.reader]
        assert len(take(out.reader)) == 1
    finally:
        other.close()


@pytest.mark.parametrize("why", ["late", "lowered", "wire lowered", "all", "a rest"])
def test_it_takes_nothing_unless_it_may(
    outwards: Callable[[type], Out], wires: Wires, why: str
) -> None:
    """The sample is there for whoever takes it then."""
    out = outwards(Plain)
    if why == "a rest":
        _leave_a_rest(outwards(Plain), wires)
    out.set(wires, good_s=-1.0 if why == "late" else LONG_S)
    if why == "lowered":
        assert not out.aim.lower()
    elif why == "wire lowered":
        wires.ahead.lower(wires.near.fileno())
    elif why == "all":
        shortcuts.lower_all()
    out.pair.writer.write(Plain(1, []))
    assert out.wait() == [out.reader]
    assert not out.aim.lower()
    assert len(take(out.reader)) == 1
    if why != "a rest":
        assert wires.is_silent()


@pytest.mark.parametrize("what", ["large", "disposed", "a stranger's"])
def test_what_it_is_not_sure_of_is_only_taken(
    outwards: Callable[[type], Out], wires: Wires, what: str
) -> None:
    out = outwards(Keyed)
    out.set(wires, writer=out.writer + 1 if what == "a stranger's" else 0)
    if what == "disposed":
        out.pair.writer.dispose(Keyed(0, 1, []))
    else:
        out.pair.writer.write(Keyed(1, 1, [0] * (9000 if what == "large" else 1)))
    assert out.wait() == []
    assert shortcuts.taken() == [out.reader]
    assert out.aim.lower()
    assert out.sent_ns() is None
    assert len(take(out.reader)) == 1
    assert wires.is_silent()


def _leave_a_rest(out: Out, wires: Wires) -> bytes:
    """A record that did not fit onto the wire; as the edge would have encoded it."""
    wires.near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    for _ in range(100):
        out.set(wires)
        out.pair.writer.write(Plain(1, [3] * 8000))
        out.pair.settle()  # it was received, and so was looked at
        assert out.aim.lower()
        sent_ns = out.sent_ns()
        taken = samples.take(out.reader, 10)
        assert isinstance(taken, Taken)
        assert sent_ns is not None
        frame = encode_batch(KEY, ("e-b",), 2, taken.packed, sent_ns)
        try:
            wires.ahead.send(wires.near.fileno(), b"")
        except BlockingIOError:
            return len(frame).to_bytes(4, "little") + frame
        wires.record()
    raise AssertionError("everything fitted")


def test_what_a_full_wire_did_not_take_comes_before_all_else(
    outwards: Callable[[type], Out], wires: Wires
) -> None:
    """Until the rest is told nobody writes, and it is told once."""
    out = outwards(Plain)
    descriptor = wires.near.fileno()
    record = _leave_a_rest(out, wires)
    with pytest.raises(BlockingIOError):
        wires.ahead.send(descriptor, b"later")
    rest = wires.ahead.rest(descriptor)
    assert 0 < len(rest) < len(record)
    assert wires.ahead.rest(descriptor) == b""
    got = wires.far.recv(len(record) - len(rest), socket.MSG_WAITALL)
    assert got + rest == record
    assert wires.ahead.send(descriptor, b"later") == 5


def test_a_wire_that_is_full_takes_nothing_and_the_edge_does_all(
    outwards: Callable[[type], Out], wires: Wires
) -> None:
    out = outwards(Plain)
    with suppress(BlockingIOError):
        while True:
            wires.near.send(b"x" * 4096)
    with suppress(BlockingIOError):
        while True:
            wires.near.send(b"x")
    out.set(wires)
    out.pair.writer.write(Plain(1, [3] * 8000))
    assert out.wait() == []
    assert out.aim.lower()
    assert out.sent_ns() is None
    assert len(take(out.reader)) == 1
    assert wires.ahead.rest(wires.near.fileno()) == b""


def test_who_writes_a_part_only_goes_on_alone(
    outwards: Callable[[type], Out], wires: Wires
) -> None:
    out = outwards(Plain)
    out.set(wires)
    assert wires.ahead.send(wires.near.fileno(), bytes(1 << 24)) < 1 << 24
    out.pair.writer.write(Plain(1, []))
    assert out.wait() == [out.reader]
    assert not out.aim.lower()
    assert len(take(out.reader)) == 1


def test_a_reader_that_goes_takes_what_was_taken_with_it(
    outwards: Callable[[type], Out], wires: Wires
) -> None:
    out = outwards(Plain)
    out.set(wires)
    out.pair.writer.write(Plain(1, []))
    assert wires.record()
    out.aim.close()
    assert not shortcuts.taken()
    assert take(out.reader) == []


# ---------------------------------------------------------------- from a wire to DDS


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
    assert wires.wait() is True, "said again when it was not done"
    assert read() == [(wires.near.fileno(), each) for each in (records, later)]
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
        records = [_records(inwards.frame(number, time_ns=number)) for number in (8, 9)]
        wires.far.sendall(records[0])
        assert wires.wait() is True
        other.far.sendall(records[0] + records[1])
        assert other.wait() is True
        assert inwards.arrived() == [8, 9]
        wires.far.sendall(records[1])
        chunks = read()
        while len(chunks) < 3:
            assert wires.wait() is True
            chunks += [(wire, chunk) for wire, chunk, _ in bulk.read()]
        assert [len(chunk) // len(records[0]) for _, chunk in chunks] == [1, 2, 1]
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
    assert wires.wait() is True
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
