"""The shortcut of lone samples from DDS to wires does what the edge would do: over real DDS and a
pair of connected sockets.
"""

# mypy: disable-error-code="arg-type"
# (cyclonedds' type constructors are values, not types, to a checker.)

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from edge_broker.dds import bulk, samples, shortcuts
from edge_broker.dds.samples import Plain as Taken
from gateway.tunnel.columns import pack
from gateway.tunnel.frames import (
    decode_batch,
    encode_batch,
)
from tests.edge.outward_parts import Out, leave_a_rest
from tests.edge.parts import Plain, take
from tests.edge.shortcut_parts import KEY, LONG_S, Wires

pytestmark = pytest.mark.dds


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


def test_what_a_full_wire_did_not_take_comes_before_all_else(
    outwards: Callable[[type], Out], wires: Wires
) -> None:
    """Until the rest is told nobody writes, and it is told once."""
    out = outwards(Plain)
    descriptor = wires.near.fileno()
    record = leave_a_rest(out, wires)
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
