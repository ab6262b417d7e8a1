"""Edges that reach a router over express links beside gRPC: what passes through it ahead of turns
(passage.c) and what does not, in order and whole; who may; and what happens when the link ends.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

import pytest

from gateway.observe.metrics import BrokerMetrics
from gateway.shared_loop import running_loop
from gateway.tunnel import express, messages, tunnel_server
from gateway.tunnel.columns import pack
from gateway.tunnel.express import ExpressLinks
from gateway.tunnel.frames import (
    BatchTrace,
    Envelope,
    Peer,
    StreamKey,
    decode_batch,
    encode,
    encode_batch,
)
from gateway.tunnel.grpc_link import dial
from gateway.tunnel.traced import with_trace
from gateway.tunnel.wire_reader import WireReader
from routing_broker import passages
from routing_broker import relay as relaying
from routing_broker.relay import NO_SUCH_EDGE, NOT_A_NEIGHBOUR, Relay
from tests.tunnel import parts
from tests.tunnel.express_parts import Caller
from tests.tunnel.parts import FABRIC, greet, hello, run, until

LOOPBACK = "127.0.0.1:0"
STREAM = StreamKey("a", 1, 1)
_MIB = 1 << 20


@pytest.fixture(params=["compiled", "in Python"])
def _both(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    assert passages.IS_COMPILED
    if request.param == "in Python":
        monkeypatch.setattr(relaying, "passages", lambda: None)


@asynccontextmanager
async def routing(advertise: Sequence[str] | None = None) -> AsyncIterator[Relay]:
    failures: list[Exception] = []
    relay = Relay(
        LOOPBACK,
        router="r1",
        fabric=FABRIC,
        version="0",
        metrics=BrokerMetrics("router", "0"),
        express_listen=LOOPBACK,
        express_host="127.0.0.1",
        express_advertise=advertise,
        on_failure=failures.append,
    )
    await relay.start()
    try:
        yield relay
    finally:
        await relay.close()
    assert not failures


class Edge(parts.Edge):
    """Has an express link to its router beside gRPC, as edges do."""

    def __init__(self, edge: str, port: int, incarnation: int = 1) -> None:
        super().__init__(edge, port, incarnation)
        self.reader = WireReader(running_loop().turn)
        self.failures: list[Exception] = []
        self.garbage: list[Exception] = []
        self.beside = ExpressLinks(
            hello(edge, incarnation),
            listen=None,
            advertise=None,
            is_known=lambda *_: False,
            on_frame=lambda _, frame: self.frames.append(frame.raw),
            on_state=lambda _: self._attach(),
            on_drained=lambda _: self._note_drained(),
            on_failure=self.failures.append,
            reader=self.reader,
            on_garbage=self.garbage.append,
        )
        self.link._on_state = lambda link: self._attach()

    def _attach(self) -> None:
        name, candidate = self.link.express or ("", None)
        self.beside.converge({} if candidate is None else {name: candidate})
        self.link.attach(self.beside.link(name))

    async def __aenter__(self) -> Self:
        self.reader.start()
        self.beside.start()
        return await super().__aenter__()

    async def __aexit__(self, *_: object) -> None:
        await super().__aexit__()
        await self.beside.close()
        await self.reader.close()
        assert not self.failures

    async def swift(self, *peers: str) -> None:
        """Until it has these neighbours and its express link carries what it sends."""
        await self.up(*peers)
        await until(lambda: self.link.has_express)

    async def got(self, *frames: bytes) -> None:
        await until(lambda: len(self.frames) >= len(frames))
        assert self.frames == list(frames)


@asynccontextmanager
async def meeting(*names: str) -> AsyncIterator[tuple[Any, ...]]:
    """A router and edges all linked to it twice."""
    async with routing() as relay:
        edges = [Edge(name, relay.port) for name in names]
        for edge in edges:
            await edge.__aenter__()
        try:
            for edge in edges:
                await edge.swift(*names)
            await until(lambda: all(each.lane.has_express for each in relay._neighbours.values()))
            yield relay, *edges
        finally:
            for edge in edges:
                await edge.__aexit__()


def batch(*to: str, first: int = 1, size: int = 64, stream: StreamKey = STREAM) -> bytes:
    return encode_batch(stream, to, first, pack([first], [bytes([first % 256]) * size]))


@pytest.mark.usefixtures("_both")
def test_all_frames_arrive_once_in_order_and_untouched() -> None:
    """Lone ones and floods, small and large, for one edge and for several."""

    async def test() -> None:
        draw = random.Random(3)
        async with meeting("a", "b", "c") as (relay, a, b, c):
            expected: dict[str, list[bytes]] = {"b": [], "c": []}
            for number in range(1, 600):
                to = draw.choice([("b",), ("c",), ("b", "c")])
                size = draw.choice([0, 1, 100, 5_000, 60_000, 140_000])
                frame = batch(*to, first=number, size=size)
                assert a.link.send(frame)
                for name in to:
                    expected[name].append(frame)
                if draw.random() < 0.2:
                    await asyncio.sleep(0.001)
            large = batch("b", first=600, size=8 * _MIB)
            a.link.send(large)
            expected["b"].append(large)
            await b.got(*expected["b"])
            await c.got(*expected["c"])
            assert not relay.dropped
            assert not relay.garbage

    run(test())


def test_edges_with_and_without_express_links_meet() -> None:
    """What travels as a bundle over gRPC is taken apart for the express link."""

    async def test() -> None:
        async with (
            meeting("b") as (relay, b),
            parts.Edge("a", relay.port) as a,
        ):
            await a.up("a", "b")
            there = [batch("b", first=number) for number in range(1, 300)]
            back = [batch("a", first=number) for number in range(1, 300)]
            traced = with_trace(batch("b", first=300), BatchTrace(1.0, 5, 6, {}))
            for one, other in zip(there, back, strict=True):
                a.link.send(one)
                b.link.send(other)
            a.link.send(traced)
            await until(lambda: len(b.frames) == 300 and len(a.frames) == 299)
            assert b.frames[:-1] == there
            assert a.frames == back
            assert decode_batch(b.frames[-1]).trace is not None

    run(test())


def test_what_passes_ahead_counts_as_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaying, "_TICK_S", 3600.0)

    async def test() -> None:
        async with meeting("a", "b", "c") as (relay, a, b, c):
            opened = messages.open_stream(Peer("b", 1), STREAM, "T", "p", 1, True)
            a.link.send(opened)
            await b.got(opened)
            frames = [batch("b", "c", first=number) for number in range(1, 50)]
            for frame in frames:
                a.link.send(frame)
                await asyncio.sleep(0.001)
            await b.got(opened, *frames)
            await c.got(*frames)
            sender = relay._neighbours["a"]
            before = sender.frames_in
            assert before < 20, "next to nothing of this came through Python"
            relay._collect(relay._passages)
            assert sender.frames_in == 50
            assert sender.bytes_in == len(opened) + sum(map(len, frames))
            relay._traffic.tick(1.0)
            assert dict(relay.load().topics).keys() == {"T"}

    run(test())


@pytest.mark.usefixtures("_both")
def test_a_slow_edge_holds_up_nobody_and_gets_all_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection takes parts of records; what waits is queued behind them."""
    for module in (express, tunnel_server):
        monkeypatch.setattr(module, "TICK_S", 3600.0)  # it does not say that it lives

    async def test() -> None:
        async with (
            meeting("a", "b") as (relay, a, b),
            dial(f"127.0.0.1:{relay.port}") as call,
        ):
            await greet(call, "slow")
            name, candidate = a.link.express
            caller = await Caller.dial(candidate.addresses[0])
            caller.say(messages.hello(*hello("slow"), to=(name,)))
            assert isinstance(await caller.hear(), messages.Hello)
            caller.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await until(lambda: relay._neighbours["slow"].lane.has_express)
            slow, quick = [], []
            number = 0
            while relay._neighbours["slow"].queued_bytes < 2 * _MIB:
                number += 1
                frame = batch("slow", first=number, size=3_000)
                slow.append(frame)
                a.link.send(frame)
                if number % 10 == 0:
                    quick.append(batch("b", first=number))
                    a.link.send(quick[-1])
                    await asyncio.sleep(0)
            await b.got(*quick)
            caller.writer.transport.resume_reading()  # type: ignore[attr-defined]
            got: list[bytes] = []
            while len(got) < len(slow):
                size = struct.unpack("<I", await caller.reader.readexactly(4))[0]
                frame = await caller.reader.readexactly(size)
                if b"slow" in frame:
                    got.append(frame)
            assert got == slow
            await caller.hang_up()

    run(test())


def test_a_traced_frame_is_told_when_it_passed() -> None:
    async def test() -> None:
        async with meeting("a", "b") as (_, a, b):
            a.link.send(with_trace(batch("b"), BatchTrace(1.0, 5, 6, {})))
            await until(lambda: b.frames)
            trace = decode_batch(b.frames[0]).trace
            assert trace is not None
            assert 0 < trace.router_in_ns <= trace.router_out_ns

    run(test())


@pytest.mark.usefixtures("_both")
def test_what_cannot_go_where_it_is_sent_is_counted() -> None:
    async def test() -> None:
        async with meeting("a", "b") as (relay, a, b):
            a.link.send(batch("nobody"))
            a.link.send(batch("a"))
            known = batch("b", first=2)
            a.link.send(known)
            await b.got(known)
            assert relay.dropped == {NO_SUCH_EDGE: 1, relaying.TO_ITS_SENDER: 1}

    run(test())


def test_edges_look_for_a_router_where_it_says() -> None:
    async def test() -> None:
        for advertise in (None, ("192.0.2.1:9", "router.example:443")):
            async with routing(advertise) as relay, Edge("a", relay.port) as a:
                await a.up("a")
                assert a.link.express is not None and relay._express is not None
                _, candidate = a.link.express
                assert candidate.addresses == (advertise or (f"127.0.0.1:{relay._express.port}",))

    run(test())


def test_only_neighbours_are_taken() -> None:
    async def test() -> None:
        async with meeting("a") as (relay, a):
            name, candidate = a.link.express
            for stranger in (hello("x"), hello("a", 7)):
                caller = await Caller.dial(candidate.addresses[0])
                caller.say(messages.hello(*stranger, to=(name,)))
                assert isinstance(await caller.hear(), messages.Refused)
                assert await caller.is_cut_off()
                await caller.hang_up()
            # One whose gRPC link has ended may have something under way.
            relay._on_express_frame(type("Gone", (), {"edge": "z", "incarnation": 1})(), None)
            assert relay.dropped == {NOT_A_NEIGHBOUR: 1}

    run(test())


@pytest.mark.usefixtures("_both")
def test_an_express_link_that_ends_is_a_loss_that_is_told_and_grpc_goes_on() -> None:
    async def test() -> None:
        async with meeting("a", "b") as (_, a, b):
            a.link.send(batch("b"))
            await b.got(batch("b"))
            connects = a.link.connects
            a.beside.link(a.link.express[0]).end("cut")
            await until(lambda: a.link.connects > connects)
            assert a.link.is_up
            assert a.link.send(batch("b", first=2))
            await b.got(batch("b"), batch("b", first=2))
            await a.swift("a", "b")  # dialled again
            assert a.link.send(batch("b", first=3))
            await b.got(*(batch("b", first=number) for number in (1, 2, 3)))

    run(test())


@pytest.mark.usefixtures("_both")
def test_garbage_ends_the_link_and_harms_nobody_else() -> None:
    async def test() -> None:
        draw = random.Random(11)
        async with meeting("a", "b") as (relay, a, b):
            name, candidate = a.link.express
            sound = [batch("b", first=number) for number in range(1, 30)]
            for attempt in range(40):
                async with dial(f"127.0.0.1:{relay.port}") as call:
                    await greet(call, "evil")
                    caller = await Caller.dial(candidate.addresses[0])
                    caller.say(messages.hello(*hello("evil"), to=(name,)))
                    await caller.hear()
                    caller.writer.write(_garbage(draw, attempt))
                    await caller.hang_up()
                if attempt < len(sound):
                    a.link.send(sound[attempt])
            await until(lambda: {each for each in b.frames if each in sound} == set(sound))
            mine = [each for each in b.frames if each in sound]
            assert mine == sound
            assert a.link.has_express and b.link.has_express

    run(test())


def _garbage(draw: random.Random, attempt: int) -> bytes:
    record = bytearray(batch("b", "a", first=1 + attempt, size=200, stream=StreamKey("e", 9, 1)))
    if attempt % 4 == 0:
        return draw.randbytes(300)
    for _ in range(draw.randint(0, 4)):
        record[draw.randrange(len(record))] = draw.randrange(256)
    size = struct.pack("<I", len(record) + (attempt % 4 == 1) * draw.randint(-9, 9))
    many = encode(Envelope(to=["b"] * 200))
    return size + bytes(record) + struct.pack("<I", len(many)) + many
