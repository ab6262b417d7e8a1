"""What is added to traced batches on their way, and that nothing else of them changes."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import FrameError
from gateway.tunnel.columns import pack
from gateway.tunnel.frames import (
    BatchTrace,
    StreamKey,
    decode,
    decode_batch,
    encode_batch,
    readdress,
    unbundle,
)
from gateway.tunnel.pump import Pump
from gateway.tunnel.traced import passing, with_trace

KEY = StreamKey("e-a", 7, 3)
TRACE = BatchTrace(0.25, 1_000, 1_500, {"e-b": 2}, -70, 40)
TIMES = st.integers(min_value=1, max_value=(1 << 63) - 1)


def batch_of(count: int = 3, size: int = 5) -> bytes:
    samples = [bytes([n]) * size for n in range(count)]
    return encode_batch(KEY, ("e-b", "e-c"), 11, pack(range(count), samples), sent_ns=9)


@given(TIMES, TIMES, st.integers(1, 5), st.integers(0, 300))
def test_times_are_added_and_nothing_else_changes(
    in_ns: int, out_ns: int, count: int, size: int
) -> None:
    plain = batch_of(count, size)
    frame = passing(with_trace(plain, TRACE), in_ns)
    left = frame.left(out_ns)
    assert len(left) == len(frame)
    before, after = decode_batch(plain), decode_batch(left)
    assert before.trace is None
    assert after.trace == TRACE._replace(router_in_ns=in_ns, router_out_ns=out_ns)
    for name in ("stream", "first", "count", "timestamps", "sizes", "kinds", "payload", "sent_ns"):
        assert getattr(after, name) == getattr(before, name)
    assert list(decode(left).envelope.to) == ["e-b", "e-c"]


def test_a_second_router_overwrites_the_first() -> None:
    once = passing(with_trace(batch_of(), TRACE), 5).left(6)
    trace = decode_batch(passing(once, 7).left(8)).trace
    assert trace is not None
    assert (trace.router_in_ns, trace.router_out_ns) == (7, 8)


def test_what_is_sent_again_tells_when_it_was_sent_first() -> None:
    again = decode_batch(readdress(with_trace(batch_of(), TRACE), ("e-b",)))
    assert again.trace == TRACE._replace(copies={}, router_clock_error_ns=0)
    assert again.sent_ns == 0


def test_what_is_no_frame_cannot_be_traced() -> None:
    with pytest.raises(FrameError):
        with_trace(b"\x01\x00", TRACE)


def test_the_pump_notes_when_a_traced_frame_leaves() -> None:
    async def scenario() -> list[bytes]:
        pump = Pump(limit_bytes=1 << 20)
        written: list[bytes] = []
        done = asyncio.Event()

        async def write(message: bytes) -> None:
            written.extend(unbundle(message))
            if len(written) == 4:
                done.set()

        # Queued before anybody writes: all travel as one bundle.
        for frame in (batch_of(), passing(with_trace(batch_of(), TRACE), 5)):
            assert pump.put(frame) and pump.put(frame)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(pump.run(write))
            async with asyncio.timeout(5):
                await done.wait()
            task.cancel()
        assert pump.queued_bytes == 0
        return written

    plain, _, traced, _ = asyncio.run(scenario())
    assert plain == batch_of()
    trace = decode_batch(traced).trace
    assert trace is not None
    assert trace.router_in_ns == 5 and trace.router_out_ns > 1_000_000_000
