"""What tests of express links share: an edge that keeps what it gets, and a run that fails when
a task, a socket or a thread outlives it.
"""

from __future__ import annotations

import asyncio
import os
import random
import select
import struct
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, suppress
from typing import Any, Self

from gateway.shared_loop import SharedLoop, running_loop
from gateway.tunnel import messages
from gateway.tunnel.datagrams import DatagramLink
from gateway.tunnel.express import ExpressLinks
from gateway.tunnel.express_greeting import Candidate
from gateway.tunnel.express_link import ExpressLink
from gateway.tunnel.frames import Frame
from gateway.tunnel.wire_reader import Ahead, WireReader
from tests.tunnel.parts import FABRIC, connections, hello, until

LOOPBACK = "127.0.0.1:0"
Turn = AbstractContextManager[object]
"""Of the loop: whoever has it is the loop."""


def run(test: Callable[[Turn], Coroutine[Any, Any, None]]) -> None:
    """Run a test with the turn of its loop and see that nothing outlives it."""
    before = connections()

    async def supervised() -> None:
        await test(running_loop().turn)
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})
        await until(lambda: not connections() - before)
        assert not [each for each in threading.enumerate() if each.name == "express-read"]

    with asyncio.Runner(loop_factory=SharedLoop) as runner:
        runner.run(supervised())


class Edge:
    """The express links of an edge that keeps what it gets."""

    def __init__(
        self,
        edge: str,
        turn: Turn,
        incarnation: int = 1,
        *,
        listen: str | None = LOOPBACK,
        most_links: int = 64,
        fabric: str = FABRIC,
        on_frame: Callable[[bytes], None] | None = None,
        ahead: Ahead | None = None,
        has_datagrams: bool = False,
    ) -> None:
        self.edge = edge
        self.incarnation = incarnation
        self.frames: list[bytes] = []
        self.datagram_frames: list[bytes] = []
        self.states: list[str] = []
        self.drained: list[str] = []
        self.failures: list[Exception] = []
        self.unknown: set[tuple[str, int]] = set()
        take = on_frame or self.frames.append

        def on_frame_(link: ExpressLink, frame: Frame) -> None:
            assert running_loop().turn is turn
            take(frame.raw)

        def on_datagram_frame(link: DatagramLink, frame: Frame) -> None:
            assert running_loop().turn is turn
            self.datagram_frames.append(frame.raw)

        self.reader = WireReader(turn, ahead)
        self.links = ExpressLinks(
            hello(edge, incarnation, fabric),
            listen=listen,
            advertise=None,
            is_known=lambda edge, incarnation: (edge, incarnation) not in self.unknown,
            on_frame=on_frame_,
            on_state=self.states.append,
            on_drained=self.drained.append,
            on_failure=self.failures.append,
            reader=self.reader,
            most_links=most_links,
            on_datagram_frame=on_datagram_frame if has_datagrams else None,
        )

    async def __aenter__(self) -> Self:
        self.reader.start()
        self.links.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.links.close()
        await self.reader.close()

    @property
    def address(self) -> str:
        return self.links.candidates()[0]

    @property
    def candidate(self) -> Candidate:
        return Candidate(self.incarnation, self.links.candidates())

    def want(self, *others: Edge) -> None:
        self.links.converge({other.edge: other.candidate for other in others})

    def link(self, other: Edge) -> ExpressLink:
        link = self.links.link(other.edge)
        assert link is not None
        return link

    def beside(self, other: Edge) -> DatagramLink:
        """What goes to the other one over UDP."""
        link = self.link(other).datagrams
        assert link is not None
        return link

    async def datagrams_pass(self, other: Edge) -> None:
        """Until they do both ways."""
        await self.linked(other)
        await until(lambda: self.link(other).datagrams and other.link(self).datagrams)

    def problem(self, edge: str) -> str:
        return next((str(x["problem"]) for x in self.links.summary() if x["edge"] == edge), "")

    async def got(self, *frames: bytes) -> None:
        await until(lambda: self.frames == list(frames))

    async def linked(self, other: Edge) -> None:
        """Until both ends have the same connection and it has carried a ping both ways."""

        def is_linked() -> bool:
            here, there = self.links.link(other.edge), other.links.link(self.edge)
            return (
                here is not None
                and there is not None
                and here.is_dialled != there.is_dialled
                and here.rtt_s is not None
                and there.rtt_s is not None
            )

        await until(is_linked)


class ReadsAhead:
    """Reads wires that stand between two frames, as much as it likes, and hands that on at the
    beginning of a turn; writes parts of records and has the rest."""

    def __init__(self, turn: Turn) -> None:
        self.on_read: Callable[[int, bytes], None]
        self.reads = 0
        self.lowered: list[int] = []
        self._turn = turn
        self._watched: set[int] = set()
        self._rests: dict[int, bytes] = {}
        self._draw = random.Random(3)

    def wait(self, epoll: int, timeout_ms: int) -> list[int] | None:
        with select.epoll.fromfd(os.dup(epoll)) as poll:
            found = [each for each, _ in poll.poll(timeout_ms / 1e3)]
        for descriptor in found:
            with self._turn, suppress(OSError):  # it is over: for others to find out
                if descriptor in self._watched and (
                    chunk := os.read(descriptor, self._draw.choice((1, 5, 100, 60_000)))
                ):
                    self.reads += 1
                    self.on_read(descriptor, chunk)
                    found = []
        return found or None

    def watch(self, descriptor: int, is_at_boundary: bool) -> None:
        (self._watched.add if is_at_boundary else self._watched.discard)(descriptor)

    def lower(self, descriptor: int) -> None:
        self.lowered.append(descriptor)

    def write(self, descriptor: int, record: bytes, most: int) -> None:
        assert os.write(descriptor, record[:most]) == min(most, len(record))
        self._rests[descriptor] = record[most:]

    def send(self, descriptor: int, record: bytes | memoryview) -> int:
        if self._rests.get(descriptor):
            raise BlockingIOError
        return os.write(descriptor, record)

    def rest(self, descriptor: int) -> bytes:
        return self._rests.pop(descriptor, b"")


class Caller:
    """A hand-made edge at the other end of a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @staticmethod
    async def dial(address: str) -> Caller:
        host, _, port = address.rpartition(":")
        return Caller(*await asyncio.open_connection(host, int(port)))

    @staticmethod
    async def greeted(callee: Edge, edge: str, incarnation: int = 1) -> Caller:
        caller = await Caller.dial(callee.address)
        caller.say(messages.hello(*hello(edge, incarnation), to=(callee.edge,)))
        assert isinstance(await caller.hear(), messages.Hello)
        return caller

    def say(self, frame: bytes) -> None:
        self.writer.write(struct.pack("<I", len(frame)) + frame)

    async def hear(self) -> messages.Message:
        size = struct.unpack("<I", await self.reader.readexactly(4))[0]
        return messages.decode_message(await self.reader.readexactly(size))

    async def is_cut_off(self) -> bool:
        """Whether the edge ends the connection."""
        try:
            async with asyncio.timeout(10):
                await self.reader.read(-1)
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True

    async def hang_up(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


class LongWay:
    """Lets an edge be reached as from afar: what is said takes that long each way."""

    def __init__(self, address: str, delay_s: float) -> None:
        self._address = address
        self._delay_s = delay_s
        self._pumps: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        pumps = set(self._pumps)
        for pump in pumps:
            pump.cancel()
        if pumps:
            await asyncio.wait(pumps)

    @property
    def address(self) -> str:
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _carry(self, *near: Any) -> None:
        host, _, port = self._address.rpartition(":")
        far = await asyncio.open_connection(host, int(port))
        for reader, writer in ((near[0], far[1]), (far[0], near[1])):
            pump = asyncio.create_task(self._pump(reader, writer), name="long way")
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        try:
            with suppress(ConnectionError):
                while data := await reader.read(1 << 16):
                    loop.call_later(self._delay_s, writer.write, data)
            await asyncio.sleep(self._delay_s)
        finally:
            writer.close()


def frame_to(edge: str, size: int = 1) -> bytes:
    return messages.refused("x" * size, to=[edge])
