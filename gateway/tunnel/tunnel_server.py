"""The router's end of all links: listens, greets, keeps one neighbour per edge, notices the dead.
Called by the relay; where frames go stays out.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from gateway.errors import FrameError, FrameVersionError, LinkError
from gateway.observe.logs import get_logger
from gateway.shared_loop import running_loop
from gateway.tunnel import messages
from gateway.tunnel.conversation import (
    GREETING_TIMEOUT_S,
    QUEUE_LIMIT_BYTES,
    SILENT_TICKS,
    TICK_S,
    Conversation,
    first_end,
)
from gateway.tunnel.grpc_link import GrpcServer
from gateway.tunnel.lane import Lane
from gateway.tunnel.messages import Hello
from gateway.tunnel.pump import Pump

log = get_logger("tunnel")

_EDGE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Neighbour:
    """An edge connected to a router. It belongs to its TunnelServer; others only send."""

    def __init__(self, hello: Hello, replaced: frozenset[int]) -> None:
        self.edge = hello.peer.edge
        self.incarnation = hello.peer.incarnation
        self.lan = hello.lan
        self.version = hello.version
        self.garbage = 0
        self.dropped = 0
        """Frames that found the queue full."""
        self.frames_in = 0
        self.bytes_in = 0
        """What came from it since its owner last took these to zero."""
        self.replaced = replaced
        """Incarnations that had this edge id before and may not have it back."""
        self.pump = Pump(limit_bytes=QUEUE_LIMIT_BYTES)
        self.lane = Lane(self.pump)
        self.silent_ticks = 0
        self.farewell: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        return f"<Neighbour {self.edge} {self.incarnation:016x} queued {self.queued_bytes}>"

    @property
    def queued_bytes(self) -> int:
        return self.lane.queued_bytes

    def send(self, frame: bytes) -> bool:
        """A frame of another edge; False when it was dropped because the queue is full."""
        if self.lane.send(frame):
            return True
        self.dropped += 1
        return False

    def tell(self, frame: bytes) -> None:
        """A frame for the neighbour itself, which belongs to the gRPC link."""
        if not self.pump.put(frame):
            self.dropped += 1

    def close(self, reason: str) -> None:
        if not self.farewell.done():
            self.farewell.set_result(reason)


class TunnelServer:
    """Accepts links of edges. `on_message` gets each message as it came (a frame or a bundle);
    FrameVersionError raised from it ends the link. `on_change` is called when `neighbours`
    changed."""

    def __init__(
        self,
        listen: str,
        *,
        router: str,
        fabric: str,
        version: str,
        on_message: Callable[[Neighbour, bytes], None],
        on_change: Callable[[], None],
    ) -> None:
        self.neighbours: dict[str, Neighbour] = {}
        self.welcome = messages.welcome(router, version)
        """What edges are told when they come."""
        self.port = 0
        """The port bound, once started."""
        self._listen = listen
        self._router = router
        self._fabric = fabric
        self._on_message = on_message
        self._on_change = on_change
        self._server = GrpcServer(self._converse)
        self._ticker: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises LinkError when the address cannot be listened on."""
        self.port = await self._server.start(self._listen)
        self._ticker = asyncio.get_running_loop().create_task(self._tick(), name="tunnel silence")

    async def close(self) -> None:
        if self._ticker is None:
            return
        self._ticker.cancel()
        await asyncio.wait({self._ticker})
        for neighbour in self.neighbours.values():
            neighbour.close("the router stops")
        await self._server.stop(1.0)

    async def _converse(self, conversation: Conversation) -> None:
        """One link from greeting to end."""
        try:
            hello = await self._greet(conversation)
            if hello is not None:
                await self._hold(self._admit(hello), conversation)
        except LinkError as error:
            log.info("a link broke", remote=conversation.remote, reason=str(error))

    async def _greet(self, conversation: Conversation) -> Hello | None:
        """The edge's Hello, or None when it was refused or gave up."""
        try:
            async with asyncio.timeout(GREETING_TIMEOUT_S):
                first = await conversation.read()
            if first is None:
                return None
            message = messages.decode_message(first)
            if isinstance(message, Hello):
                refusal = self._objection(message)
                if not refusal:
                    return message
            else:
                refusal = f"expected a hello, got {type(message).__name__}"
        except TimeoutError:
            return None
        except FrameError as error:
            refusal = str(error)
        log.warning(
            "a link was refused; see the reason", remote=conversation.remote, reason=refusal
        )
        await conversation.write(messages.refused(refusal))
        return None

    async def _hold(self, neighbour: Neighbour, conversation: Conversation) -> None:
        try:
            await conversation.write(self.welcome)
            self._on_change()
            reason = await first_end(
                f"neighbour {neighbour.edge}",
                {
                    "read": self._read(neighbour, conversation),
                    "write": neighbour.pump.run(conversation.write),
                    "farewell": _result(neighbour.farewell),
                },
            )
            log.info("link of an edge ended", edge=neighbour.edge, reason=reason)
        finally:
            neighbour.pump.clear()
            if self.neighbours.get(neighbour.edge) is neighbour:
                del self.neighbours[neighbour.edge]
                self._on_change()

    def _objection(self, hello: Hello) -> str:
        if hello.fabric != self._fabric:
            return (
                f"router {self._router} serves fabric {self._fabric!r}, not {hello.fabric!r}: "
                "start edge and router with the same --fabric"
            )
        edge, incarnation = hello.peer
        if not _EDGE_ID.fullmatch(edge):
            return f"edge id {edge[:80]!r} is not 1-64 letters, digits, '.', '_', '-'"
        present = self.neighbours.get(edge)
        if present is not None and incarnation in present.replaced:
            return f"another process took edge id {edge!r} over: give each edge its own --id"
        return ""

    def _admit(self, hello: Hello) -> Neighbour:
        edge, incarnation = hello.peer
        present = self.neighbours.get(edge)
        replaced: frozenset[int] = frozenset()
        if present is not None:
            replaced = present.replaced
            if present.incarnation != incarnation:
                # The newest wins for as long as its link lives, or two would replace each other
                # for ever.
                replaced |= {present.incarnation}
                log.warning(
                    "an edge id has a new process, the older one is cut off; "
                    "if this repeats, two edges share an id",
                    edge=edge,
                )
            present.close("replaced by a newer link of the same edge")
        neighbour = self.neighbours[edge] = Neighbour(hello, replaced)
        return neighbour

    async def _read(self, neighbour: Neighbour, conversation: Conversation) -> str:
        on_message = self._on_message
        while True:
            message = await conversation.read()
            if message is None:
                return "the edge hung up"
            neighbour.silent_ticks = 0
            try:
                on_message(neighbour, message)
            except FrameVersionError as error:
                return str(error)

    async def _tick(self) -> None:
        loop = running_loop()
        while True:
            await loop.at_leisure(TICK_S)
            for neighbour in self.neighbours.values():
                neighbour.silent_ticks += 1
                if neighbour.silent_ticks > SILENT_TICKS:
                    neighbour.close(f"nothing heard for {SILENT_TICKS * TICK_S:g} s")


async def _result(future: asyncio.Future[str]) -> str:
    return await future
