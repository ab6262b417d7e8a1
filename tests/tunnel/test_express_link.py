"""One express link over real sockets: frames of all sizes, slow and silent neighbours, garbage."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from gateway.tunnel import express, express_link, messages
from gateway.tunnel.express_greeting import Candidate
from gateway.tunnel.frames import MAX_FRAME_BYTES
from gateway.tunnel.wire import Wire
from tests.tunnel.express_parts import Caller, Edge, ReadsAhead, Turn, frame_to, run
from tests.tunnel.parts import until

_MIB = 1024 * 1024


@asynccontextmanager
async def pair(turn: Turn) -> AsyncIterator[tuple[Edge, Edge]]:
    async with Edge("a", turn) as a, Edge("b", turn) as b:
        a.want(b)
        await a.linked(b)
        yield a, b


def _is_over(link: express_link.ExpressLink) -> bool:
    return not link.is_up


@pytest.fixture
def quick_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (express, express_link):
        monkeypatch.setattr(module, "TICK_S", 0.05)


def test_frames_of_all_sizes_arrive_whole_and_in_order() -> None:
    async def test(turn: Turn) -> None:
        draw = random.Random(7)
        sizes = [0, 1, 16_300, 16_400, 131_000, 131_100, 8 * _MIB, 3, 8 * _MIB, 200_000]
        sizes += [draw.choice((10, 1_000, 60_000, 140_000)) for _ in range(300)]
        frames = [frame_to("b", size) for size in sizes]
        async with pair(turn) as (a, b):
            for frame in frames:
                assert a.link(b).send(frame)
                if draw.random() < 0.3:
                    await asyncio.sleep(0)
            await until(lambda: len(b.frames) == len(frames))
            assert b.frames == frames
            assert a.link(b).queued_bytes == 0

    run(test)


def test_frames_that_were_read_ahead_are_as_whole() -> None:
    """Whatever part of them that was, and whoever reads the rest."""

    async def test(turn: Turn) -> None:
        draw = random.Random(5)
        frames = [frame_to("b", draw.choice((10, 1_000, 60_000, 140_000))) for _ in range(300)]
        ahead = ReadsAhead(turn)
        async with Edge("a", turn) as a, Edge("b", turn, ahead=ahead) as b:
            ahead.on_read = b.reader.on_read
            a.want(b)
            await a.linked(b)
            for frame in frames:
                assert a.link(b).send(frame)
                if draw.random() < 0.5:
                    await asyncio.sleep(0)
            await until(lambda: len(b.frames) == len(frames))
            assert b.frames == frames
            assert ahead.reads > 20
            a.links.converge({})

    run(test)


def test_small_frames_travel_together_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while others wait, and where there is no room for them all none goes."""
    monkeypatch.setattr(express, "QUEUE_LIMIT_BYTES", 2 * _MIB)

    async def test(turn: Turn) -> None:
        async with pair(turn) as (a, b):
            link = a.link(b)
            expected = []
            for number in range(200):
                small = [frame_to("b", size) for size in range(number % 7)]
                assert link.send_together(small)
                expected += small
                if number % 10 == 0:
                    expected.append(frame_to("b", 100_000))
                    assert link.send(expected[-1])
                    await until(lambda: link.queued_bytes < _MIB)
            await b.got(*expected)
            while link.send(frame_to("b", 100_000)):
                expected.append(frame_to("b", 100_000))
            assert not link.send_together([frame_to("b", 1000)] * 200)
            assert link.dropped == 1 + 200
            await b.got(*expected)
            link.end("enough")
            assert not link.send_together([frame_to("b", 1)])

    run(test)


def _segments(link: express_link.ExpressLink) -> int:
    """With data in them, that its connection has sent."""
    with socket.socket(fileno=os.dup(link.descriptor)) as connection:
        about = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160)
    found: int = struct.unpack_from("<I", about, 156)[0]
    return found


@pytest.mark.parametrize("is_gathered", [True, False])
def test_what_is_gathered_leaves_in_one_packet(is_gathered: bool) -> None:
    rounds, each = 50, 4

    async def test(turn: Turn) -> None:
        async with pair(turn) as (a, b):
            link = a.link(b)
            before = _segments(link)
            frames = [frame_to("b", 10 + number) for number in range(rounds * each)]
            for at in range(0, len(frames), each):
                link.gather(is_gathered)
                for frame in frames[at : at + each]:
                    assert link.send(frame)
                link.gather(False)
                await b.got(*frames[: at + each])
            sent = _segments(link) - before
            # A heartbeat may have come between.
            assert (sent < 2 * rounds) if is_gathered else (sent >= each * rounds)

    run(test)


@pytest.mark.parametrize("size", [0, 100, 16_300])
@pytest.mark.parametrize("next_size", [None, 10, 100_000])
def test_frames_that_have_partly_gone_ahead_go_on(size: int, next_size: int | None) -> None:
    """Before anything else, whoever comes first: who accounts for them, or another frame."""

    async def test(turn: Turn) -> None:
        ahead = ReadsAhead(turn)
        async with Edge("a", turn, ahead=ahead) as a, Edge("b", turn) as b:
            ahead.on_read = a.reader.on_read
            a.want(b)
            await a.linked(b)
            link = a.link(b)
            frame = frame_to("b", size)
            record = struct.pack("<I", len(frame)) + frame
            descriptor = link.open_descriptor
            assert descriptor is not None
            expected = []
            for sent in (1, 4, 10, len(record) - 1, len(record)):
                await until(lambda: link.open_descriptor == descriptor)
                ahead.write(descriptor, record, sent)
                expected.append(frame)
                if next_size is not None:
                    expected.append(frame_to("b", next_size))
                    assert link.send(expected[-1])
                assert link.send_rest()
                if sent < len(record):  # the rest waits for the connection
                    assert link.open_descriptor is None
            await b.got(*expected)
            link.end("enough")
            assert link.open_descriptor is None
            assert ahead.lowered[-1] == descriptor
            assert not link.send_rest()
            assert link.dropped == 1

    run(test)


def test_slow_reader_fills_a_bounded_queue_and_producers_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(express, "QUEUE_LIMIT_BYTES", 16 * _MIB)

    async def test(turn: Turn) -> None:
        async with Edge("a", turn) as a:
            caller = await Caller.greeted(a, "slow")
            link = a.links.link("slow")
            assert link is not None
            frame = frame_to("slow", _MIB)
            sent = 0
            while link.send(frame):
                sent += 1
                await asyncio.sleep(0)
            assert link.dropped == 1
            assert link.is_congested
            assert 15 * _MIB < link.queued_bytes <= 16 * _MIB
            heard = 0
            while heard < sent:
                heard += isinstance(await caller.hear(), messages.Refused)
            assert a.drained == ["slow"]
            assert not link.is_congested
            await caller.hang_up()

    run(test)


def test_largest_frame_is_the_largest_of_any_link() -> None:
    async def test(turn: Turn) -> None:
        async with pair(turn) as (a, b):
            assert not a.link(b).send(bytes(MAX_FRAME_BYTES + 1))
            assert a.link(b).dropped == 1
            room = MAX_FRAME_BYTES - len(frame_to("b", MAX_FRAME_BYTES)) + MAX_FRAME_BYTES
            largest = frame_to("b", room)
            assert len(largest) == MAX_FRAME_BYTES
            assert a.link(b).send(largest)
            await b.got(largest)

    run(test)


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        (struct.pack("<I", MAX_FRAME_BYTES + 1), "more than any may have"),
        (struct.pack("<I", 3) + b"abc", "too few for a header"),
        (b"GET / HTTP/1.1\r\n\r\n", "more than any may have"),
        (struct.pack("<I", 10) + b"\x01\x00\x00\x00\x02\x00\x00\x00\xff\xff", "not protobuf"),
    ],
)
def test_garbage_ends_the_connection_and_is_counted(garbage: bytes, reason: str) -> None:
    async def test(turn: Turn) -> None:
        async with Edge("a", turn) as a:
            a.links.converge({"b": Candidate(1, ())})
            caller = await Caller.greeted(a, "b")
            caller.writer.write(garbage)
            assert await caller.is_cut_off()
            await caller.hang_up()
            await until(lambda: a.links.link("b") is None)
            assert a.links.garbage == 1
            assert reason in a.problem("b")
            assert a.states == ["b", "b"]

    run(test)


def test_message_of_a_newer_version_is_passed_over() -> None:
    async def test(turn: Turn) -> None:
        async with Edge("a", turn) as a:
            caller = await Caller.greeted(a, "b")
            # An envelope with field 99 only.
            caller.say(b"\x01\x00\x00\x00\x03\x00\x00\x00\x9a\x06\x00")
            frame = frame_to("a")
            caller.say(frame)
            await a.got(frame)
            await caller.hang_up()
            await until(lambda: a.links.garbage == 1)

    run(test)


def test_silent_neighbour_is_left(quick_ticks: None) -> None:
    async def test(turn: Turn) -> None:
        async with Edge("a", turn) as a:
            a.links.converge({"b": Candidate(1, ())})
            caller = await Caller.greeted(a, "b")
            await until(lambda: "nothing heard" in a.problem("b"))
            assert await caller.is_cut_off()
            await caller.hang_up()

    run(test)


def test_connection_that_is_cut_is_made_again() -> None:
    async def test(turn: Turn) -> None:
        async with Edge("a", turn) as a:
            a.links.converge({"b": Candidate(1, ())})
            caller = await Caller.greeted(a, "b")
            linger = struct.pack("ii", 1, 0)
            raw = caller.writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            await caller.hang_up()
            await until(lambda: a.problem("b") == "connection reset by peer")
        async with pair(turn) as (a, b):
            for _ in range(3):
                cut = a.link(b)
                b.link(a).end("cut")
                await until(partial(_is_over, cut))
                assert not cut.send(frame_to("b"))
                await a.linked(b)

    run(test)


def test_exception_in_a_callback_is_reported_and_ends_the_link() -> None:
    async def test(turn: Turn) -> None:
        def bug(_: bytes) -> None:
            raise ZeroDivisionError

        async with Edge("a", turn) as a, Edge("b", turn, on_frame=bug) as b:
            a.want(b)
            await a.linked(b)
            a.link(b).send(frame_to("b"))
            await until(lambda: b.failures)
            assert isinstance(b.failures[0], ZeroDivisionError)
            await until(lambda: len(a.states) > 1)

    run(test)


_FLOOD = """
import os, sys
descriptor, record = int(sys.argv[1]), bytes.fromhex(sys.argv[2])
os.set_blocking(descriptor, True)
while True:
    os.write(descriptor, 500 * record)
"""


def _flooding(descriptor: int, record: bytes) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", _FLOOD, str(descriptor), record.hex()],
        pass_fds=[descriptor],
        stderr=subprocess.DEVNULL,
    )


def test_flood_leaves_the_loop_its_turns() -> None:
    async def test(turn: Turn) -> None:
        received: list[None] = []
        async with Edge("a", turn, on_frame=lambda _: received.append(None)) as a:
            caller = await Caller.greeted(a, "b")
            frame = frame_to("a", 100)
            descriptor = caller.writer.get_extra_info("socket").fileno()
            with _flooding(descriptor, struct.pack("<I", len(frame)) + frame) as flood:
                try:
                    await until(lambda: len(received) > 1000)
                    began_s = time.monotonic()
                    for _ in range(100):
                        await asyncio.sleep(0.001)
                    assert time.monotonic() - began_s < 2.5
                finally:
                    flood.kill()
            await caller.hang_up()

    run(test)


def test_clock_is_a_triple_of_wall_clocks() -> None:
    async def test(turn: Turn) -> None:
        async with pair(turn) as (a, b):
            clock = a.link(b).clock
            assert clock is not None
            sent_ns, seen_ns, received_ns = clock
            assert sent_ns < seen_ns < received_ns
            assert a.link(b).rtt_s == pytest.approx((received_ns - sent_ns) / 1e9, abs=1e-3)

    run(test)


def test_what_waits_together_goes_out_in_one_call() -> None:
    async def test(turn: Turn) -> None:
        calls: list[int] = []

        class Watched(Wire):
            def _write_all(self, parts: list[bytes | memoryview]) -> int:
                calls.append(len(parts))
                return super()._write_all(parts)

        with socket.create_server(("127.0.0.1", 0)) as listener:
            here = socket.create_connection(listener.getsockname())
            there, _ = listener.accept()
        here.setblocking(False)
        wire = Watched(here, limit_bytes=64 * _MIB)
        assert wire.send(bytes(4 * _MIB))
        for _ in range(200):
            assert wire.send(b"x" * 100)
        reader, writer = await asyncio.open_connection(sock=there)
        await reader.readexactly(4 + 4 * _MIB)
        for _ in range(200):
            assert await reader.readexactly(104) == struct.pack("<I", 100) + b"x" * 100
        assert max(calls) > 200
        assert wire.queued_bytes == 0
        wire.close()
        writer.close()
        await writer.wait_closed()

    run(test)
