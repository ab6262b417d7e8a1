"""The shortcut of lone samples from DDS to wires does what the edge would do, or leaves it
alone: over real DDS and a pair of connected sockets.
"""

# mypy: disable-error-code="arg-type"
# (cyclonedds' type constructors are values, not types, to a checker.)

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from cyclonedds.core import GuardCondition, WaitSet
from cyclonedds.domain import DomainParticipant

from edge_broker.dds import bulk, native, samples, shortcuts
from edge_broker.dds.samples import Plain as Taken
from edge_broker.dds.shortcuts import OutgoingAim
from gateway.tunnel.columns import pack
from gateway.tunnel.frames import (
    decode_batch,
    encode_batch,
    lone_batch_head,
    stream_id,
)
from tests.edge.parts import Keyed, Pair, Plain, take
from tests.edge.shortcut_parts import KEY, LONG_S, Wires

pytestmark = pytest.mark.dds

SECOND_NS = 1_000_000_000


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
        overdue_s: float = LONG_S,
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
            overdue_s=overdue_s,
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
    assert len(take(out.reader)) == 5
    assert wires.is_silent()


def test_none_goes_while_one_that_went_waits_for_too_long_to_be_accounted_for(
    outwards: Callable[[type], Out], wires: Wires
) -> None:
    """No answer has come to it, perhaps none will: it is time to look for another way."""
    out = outwards(Plain)
    out.set(wires, count=10, overdue_s=0.0)
    out.pair.writer.write(Plain(1, []))
    out.pair.settle()
    wires.record()
    out.pair.writer.write(Plain(2, []))
    out.pair.settle()
    assert out.wait() is not None
    assert wires.is_silent()
    assert out.aim.lower()
    assert out.sent_ns() is not None
    assert len(take(out.reader)) == 1
    assert out.sent_ns() is None
    assert len(take(out.reader)) == 1


def test_none_goes_over_a_wire_over_which_an_answer_is_overdue(
    outwards: Callable[[type], Out], wires: Wires
) -> None:
    """Whoever sent what is not answered."""
    out = outwards(Plain)
    shortcuts.expect(wires.near.fileno(), time.time_ns() - 1)
    out.set(wires)
    out.pair.writer.write(Plain(1, []))
    out.pair.settle()
    assert out.wait() == [out.reader]
    assert wires.is_silent()
    assert len(take(out.reader)) == 1
    shortcuts.expect(wires.near.fileno(), time.time_ns() + int(LONG_S * 1e9))
    out.set(wires)
    out.pair.writer.write(Plain(2, []))
    out.pair.settle()
    wires.record()
    assert out.aim.lower()


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
        while not rest and number % 2 and publisher.is_alive():
            time.sleep(0.0003)  # some come while nobody aims
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
        assert out.wait() == [], "who waits is told"
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
