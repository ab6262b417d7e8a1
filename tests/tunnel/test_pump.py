"""The queue in front of a link: bounds, marks, bundles."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tunnel.frames import MAX_BUNDLE_BYTES, MAX_MEMBER_BYTES, bundle, unbundle
from gateway.tunnel.pump import Pump
from tests.tunnel.parts import run, until


class Wire:
    """Writes what it is given when the test lets it."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.gate = asyncio.Semaphore(0)

    async def write(self, message: bytes) -> None:
        self.messages.append(message)
        await self.gate.acquire()


def test_frames_that_wait_travel_together() -> None:
    async def test() -> None:
        pump, wire = Pump(limit_bytes=1 << 30), Wire()
        task = asyncio.create_task(pump.run(wire.write))
        pump.put(b"first")
        await until(lambda: wire.messages == [b"first"])
        big = b"x" * (MAX_MEMBER_BYTES + 1)
        for frame in (b"second", b"third", big, b"fourth"):
            pump.put(frame)
        for _ in range(4):
            wire.gate.release()
        await until(lambda: len(wire.messages) == 4)
        assert wire.messages[1:] == [bundle([b"second", b"third"]), big, b"fourth"]
        await until(lambda: pump.queued_bytes == 0)
        task.cancel()
        await asyncio.wait({task})

    run(test())


def test_full_queue_refuses_the_newest() -> None:
    pump = Pump(limit_bytes=10)
    assert pump.put(b"123456")
    assert not pump.put(b"12345")
    assert pump.put(b"1234")
    pump.clear()
    assert pump.queued_bytes == 0
    assert pump.put(b"12345")


def test_congestion_ends_at_the_low_mark() -> None:
    async def test() -> None:
        calls = []
        size = MAX_MEMBER_BYTES + 1
        pump, wire = (
            Pump(
                limit_bytes=1 << 30,
                high_bytes=2 * size,
                low_bytes=size,
                on_drained=lambda: calls.append(pump.queued_bytes),
            ),
            Wire(),
        )
        task = asyncio.create_task(pump.run(wire.write))
        for _ in range(2):
            pump.put(b"x" * size)
        assert not pump.is_congested
        pump.put(b"x" * size)
        assert pump.is_congested
        wire.gate.release()
        await until(lambda: pump.queued_bytes == 2 * size)
        assert pump.is_congested
        wire.gate.release()
        await until(lambda: not pump.is_congested)
        assert calls == [size]
        task.cancel()
        await asyncio.wait({task})

    run(test())


def test_bundle_travels_as_it_is() -> None:
    async def test() -> None:
        pump, wire = Pump(limit_bytes=1 << 30), Wire()
        whole = bundle([b"second", b"third"])
        for frame in (b"first", whole, whole, b"fourth", b"fifth", whole):
            pump.put(frame)
        task = asyncio.create_task(pump.run(wire.write))
        for _ in range(6):
            wire.gate.release()
        await until(lambda: pump.queued_bytes == 0)
        assert wire.messages == [b"first", whole, whole, bundle([b"fourth", b"fifth"]), whole]
        task.cancel()
        await asyncio.wait({task})

    run(test())


def test_broken_wire_ends_the_run() -> None:
    async def broken(_: bytes) -> None:
        raise OSError("no wire")

    async def test() -> None:
        pump = Pump(limit_bytes=100)
        pump.put(b"x")
        with pytest.raises(OSError, match="no wire"):
            await pump.run(broken)

    run(test())


@given(st.lists(st.integers(0, 2 * MAX_MEMBER_BYTES), max_size=30))
def test_everything_arrives_in_order(sizes: list[int]) -> None:
    frames = [b"\x01\x00" + bytes(size) for size in sizes]

    async def test() -> None:
        pump, received, messages = Pump(limit_bytes=1 << 30), list[bytes](), list[bytes]()

        async def write(message: bytes) -> None:
            messages.append(message)
            received.extend(unbundle(message))

        for frame in frames:
            pump.put(frame)
        task = asyncio.create_task(pump.run(write))
        await until(lambda: pump.queued_bytes == 0)
        assert received == frames
        largest = max(map(len, [*frames, b""]))
        assert all(len(each) <= max(largest, MAX_BUNDLE_BYTES + 1024) for each in messages)
        task.cancel()
        await asyncio.wait({task})

    asyncio.run(test())
