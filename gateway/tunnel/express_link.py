"""One express link: a greeted connection to another broker, with its heartbeat and what it measures
of the way. Made and ended by express.py; which connection is kept and what frames say to edges
stays out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from gateway.errors import FrameError, LinkError
from gateway.observe.logs import get_logger
from gateway.tunnel import messages
from gateway.tunnel.conversation import SILENT_TICKS, TICK_S
from gateway.tunnel.datagram_port import DatagramPort
from gateway.tunnel.datagrams import DatagramLink
from gateway.tunnel.frames import Frame, Peer, decode
from gateway.tunnel.messages import Datagrams, Hello, Ping, Pong
from gateway.tunnel.wire import Wire
from gateway.tunnel.wire_reader import WireReader

log = get_logger("tunnel")


class ExpressLink:
    """A connection from its greeting to its end; it never comes back. Whoever calls it has the
    loop's turn. `on_end` is called on the loop, once."""

    def __init__(
        self,
        wire: Wire,
        greeting: Hello,
        reader: WireReader,
        *,
        is_dialled: bool,
        on_frame: Callable[[ExpressLink, Frame], None],
        on_drained: Callable[[ExpressLink], None],
        on_end: Callable[[ExpressLink, str, Exception | None], None],
        on_garbage: Callable[[FrameError], None] | None = None,
        datagram_port: DatagramPort | None = None,
        on_datagram_frame: Callable[[DatagramLink, Frame], None] | None = None,
        on_datagrams: Callable[[ExpressLink], None] | None = None,
    ) -> None:
        """`on_garbage`: told of what is no frame, which is skipped; else it ends the link.
        `datagram_port`: there may be datagrams beside it, over this; `on_datagrams` is called when
        they begin or cease to pass."""
        self.edge, self.incarnation = greeting.peer
        self.lan = greeting.lan
        self.version = greeting.version
        self.remote = wire.remote
        self.is_dialled = is_dialled
        """By this edge; else by the other one."""
        self.is_up = True
        self.connects = 1
        """As of a router's link; this one never comes back."""
        self.is_wanted_there = not is_dialled
        """As the other edge last said; who dials wants."""
        self.unwanted_ticks = 0
        self.rtt_s: float | None = None
        self.clock: tuple[int, int, int] | None = None
        """Last ping as wall clocks in ns: sent here, seen there, answer received here."""
        self.garbage = 0
        self.dropped = 0
        """Frames that found the link over or its queue full."""
        self._datagrams: DatagramLink | None = None
        self._datagram_port = datagram_port
        self._on_datagram_frame = on_datagram_frame
        self._on_datagrams = on_datagrams
        self._wire = wire
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._on_frame = on_frame
        self._on_end = on_end
        self._on_garbage = on_garbage
        self._silent_ticks = 0
        self._ping_nonce = 0
        self._ping_sent_s = 0.0
        self._is_watched = False
        wire.on_broken = self.end
        wire.ahead = reader.ahead
        wire.on_drained = lambda: on_drained(self)

    def __repr__(self) -> str:
        return f"<ExpressLink {self.edge} {self.remote} {'up' if self.is_up else 'over'}>"

    @property
    def datagrams(self) -> DatagramLink | None:
        """What goes to the other end beside TCP, while that passes."""
        beside = self._datagrams
        return beside if beside is not None and beside.is_up and self.is_up else None

    @property
    def queued_bytes(self) -> int:
        return self._wire.queued_bytes

    @property
    def is_congested(self) -> bool:
        """Producers stop until `on_drained`."""
        return self._wire.is_congested

    @property
    def descriptor(self) -> int:
        return self._wire.fileno()

    @property
    def is_read_ahead(self) -> bool:
        """Whether frames that come may be read ahead of turns."""
        return self._reader.ahead is not None

    @property
    def open_descriptor(self) -> int | None:
        """What frames may be written on ahead of turns, now; None: they may not."""
        if self._reader.ahead is None or not self.is_up or not self._wire.is_idle:
            return None
        return self._wire.fileno()

    def send(self, frame: bytes) -> bool:
        """Write a frame now, or queue it behind others; False when it was dropped because the
        link is over or its queue full."""
        if self.is_up and self._wire.send(frame):
            return True
        self.dropped += 1
        return False

    def send_together(self, frames: Sequence[bytes]) -> bool:
        """Small frames, at the price of one; False when none of them went."""
        if self.is_up and self._wire.send_together(frames):
            return True
        self.dropped += len(frames)
        return False

    def gather(self, is_gathered: bool) -> None:
        """What is sent from now on leaves together, when that is over."""
        self._wire.gather(is_gathered)

    def send_rest(self) -> bool:
        """A frame has gone ahead, perhaps only in part; False when the link is over."""
        if not self.is_up:
            self.dropped += 1
            return False
        self._wire.take_rest()
        return True

    def start(self) -> None:
        """Reads from now on, unless the first heartbeat found the connection broken."""
        if self.is_up:
            self._reader.add(self._wire.fileno(), self._on_readable)
            self._watch()
            self._offer_datagrams()

    def beat(self, is_wanted: bool) -> None:
        """One tick has passed."""
        if self._silent_ticks >= SILENT_TICKS:
            self.end(f"nothing heard for {SILENT_TICKS * TICK_S:g} s")
            return
        self._silent_ticks += 1
        self.unwanted_ticks = 0 if is_wanted or self.is_wanted_there else self.unwanted_ticks + 1
        self._wire.tick()
        if self._datagrams is not None:
            self._datagrams.beat()
        self._ping_nonce += 1
        self._ping_sent_s = time.monotonic()
        self._wire.send(messages.ping(self._ping_nonce, time.time_ns(), wanted=is_wanted))

    def end(self, reason: str, error: Exception | None = None) -> None:
        if self.is_up:
            self.is_up = False
            if self._datagrams is not None:
                self._datagrams.end()
                self.garbage += self._datagrams.garbage
            self._reader.remove(self._wire.fileno())
            self._wire.close()
            # Not here and now: whoever was just sending must not meet its own consequences.
            self._loop.call_soon_threadsafe(self._on_end, self, reason, error)

    def _offer_datagrams(self) -> None:
        """Whoever was dialled can be reached at the port it was dialled at."""
        port = self._datagram_port
        if port is not None and not self.is_dialled and port.is_listening(self._wire.family):
            self._datagrams = self._beside(port, token=None)
            self._wire.send(messages.datagrams(self._datagrams.token))

    def _accept_datagrams(self, offer: Datagrams) -> None:
        port = self._datagram_port
        if port is not None and self.is_dialled and self.is_up and self._datagrams is None:
            self._datagrams = self._beside(port, token=offer.token)
            self._datagrams.greet()

    def _beside(self, port: DatagramPort, *, token: int | None) -> DatagramLink:
        return DatagramLink(
            Peer(self.edge, self.incarnation),
            port,
            self._wire.family,
            self._loop,
            token=token,
            own_address=self._wire.address,
            address=self._wire.peer,
            on_frame=self._on_datagram_frame or _ignore,
            on_state=self._tell_datagrams,
            on_fault=lambda error: self.end("a fault in this broker", error),
            send_otherwise=self.send,
        )

    def _tell_datagrams(self) -> None:
        if self._on_datagrams is not None and self.is_up:
            self._on_datagrams(self)

    def _watch(self) -> None:
        """Frames may be read ahead of turns while the wire stands between two of them."""
        is_at_boundary = self.is_up and self._wire.is_at_boundary
        if self._reader.ahead is not None and is_at_boundary != self._is_watched:
            self._is_watched = is_at_boundary
            self._reader.ahead.watch(self._wire.fileno(), is_at_boundary)

    def _on_readable(self, chunk: bytes | None) -> None:
        """Reads what has come, once. `chunk` is what was read ahead."""
        try:
            received = self._wire.receive() if chunk is None else self._wire.take_in(chunk)
            self._silent_ticks = 0
            for raw in received:
                frame = self._decode(raw)
                if frame is None:
                    continue
                if frame.envelope.to:
                    self._on_frame(self, frame)
                else:
                    self._on_neighbour(frame)
        except FrameError as error:
            # What follows cannot be trusted to be frames.
            self.garbage += 1
            self.end(f"garbage: {error}")
        except LinkError as error:
            self.end(str(error))
        except Exception as error:
            self.end("a fault in this broker", error)
        if self.is_up:
            self._watch()

    def _decode(self, raw: bytes) -> Frame | None:
        """None: it is skipped. A router passes on what others have sent."""
        try:
            return decode(raw)
        except FrameError as error:
            if self._on_garbage is None:
                raise
            self.garbage += 1
            self._on_garbage(error)
            return None

    def _on_neighbour(self, frame: Frame) -> None:
        try:
            message = messages.interpret(frame)
        except FrameError:
            # Well-formed, but nothing this version knows.
            self.garbage += 1
            return
        if isinstance(message, Pong):
            if message.nonce == self._ping_nonce:
                self.rtt_s = time.monotonic() - self._ping_sent_s
                self.clock = (message.sent_ns, message.seen_ns, time.time_ns())
        elif isinstance(message, Ping):
            self.is_wanted_there = message.wanted
            self._wire.send(messages.pong(message, time.time_ns()))
        elif isinstance(message, Datagrams):
            self._accept_datagrams(message)


def _ignore(_link: DatagramLink, _frame: Frame) -> None:
    """Nobody asked for datagrams."""
