"""The datagrams beside one express link, for paths that lose packets. What is lost of them holds up
nothing behind it, and most of it is made again (repair.py). Made by express_link.py, on the sockets
of datagram_port.py; whether they are used is decided by the sending edge.

The edge that was dialled offers a token over TCP; whoever shows it is the other end. Each end uses
a link only while it is told that the other one hears it: datagrams may be blocked, both ways or
one, where TCP is not.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from gateway.errors import FrameError
from gateway.tunnel.conversation import SILENT_TICKS
from gateway.tunnel.datagram_port import DatagramPort, Source, UdpAddress, source_of
from gateway.tunnel.frames import Frame, Peer, decode
from gateway.tunnel.parcels import (
    EACH_BYTES,
    MOST_FRAME_BYTES,
    MOST_TOGETHER_BYTES,
    Packer,
    Unpacker,
)
from gateway.tunnel.repair import Head, Opener, Sealer

MOST_BYTES_S = 250_000
"""Of frames on one link; the rest goes over TCP, which finds out how much a path can carry."""
_BURST_S = 0.25
_FIRST_WITHIN_S = 0.02
_FIRST_MEMBERS = 4
_SOON_S = 0.1


class DatagramCounts(NamedTuple):
    """Of one link since it began."""

    sent: int = 0
    lost: int = 0
    """Of those sent, that the other end has not got."""
    repaired: int = 0
    """From the other end: did not come and were made again."""


class DatagramLink:
    """Beside one express link, from its offer to the end of that link. Whoever calls it has the
    loop's turn."""

    connects = 1
    """As of a router's link: it never comes back as another one."""
    rtt_s: float | None = None
    clock: tuple[int, int, int] | None = None
    """Nothing is asked over it: probes tell."""
    is_congested = False
    queued_bytes = 0
    open_descriptor: int | None = None
    is_read_ahead = False

    def __init__(
        self,
        there: Peer,
        port: DatagramPort,
        family: int,
        loop: asyncio.AbstractEventLoop,
        *,
        token: int | None,
        own_address: UdpAddress,
        address: UdpAddress,
        on_frame: Callable[[DatagramLink, Frame], None],
        on_state: Callable[[], None],
        on_fault: Callable[[Exception], None],
        send_otherwise: Callable[[bytes], bool],
    ) -> None:
        """`token`: that of the other end's offer, None: this end offers. The addresses are those of
        the TCP connection. `send_otherwise`: for frames that are too large or too many."""
        self.edge = there.edge
        self.family = family
        self.token = secrets.randbits(64) if token is None else token
        self.is_dialled = token is not None
        self.source: Source = () if self.is_dialled else source_of(family, own_address)
        """Said to the system with each datagram: a host of several addresses answers from the one
        that was dialled, or who stands between would drop it."""
        self.is_up = False
        """The other end hears this one, and is heard."""
        self.sent = 0
        """Datagrams the other end can tell of …"""
        self.lost = 0
        """… and of these those it has not got."""
        self.overflows = 0
        """Frames that were too many."""
        self.garbage = 0
        self.within_s = _FIRST_WITHIN_S
        """In so much time a lost one is to be made again …"""
        self.most_members = _FIRST_MEMBERS
        """… by a repair of at most so many."""
        self._port = port
        # Who was dialled learns by the first datagram where to answer.
        self._address = address if self.is_dialled else None
        self._on_frame = on_frame
        self._on_state = on_state
        self._on_fault = on_fault
        self._send_otherwise = send_otherwise
        self._loop = loop
        self._sealer = Sealer(self.token)
        self._opener = Opener()
        self._packer = Packer(port.me, there)
        self._unpacker = Unpacker(there, port.me)
        self._gathered: list[bytes] | None = None
        self._gathered_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0
        """When that is; repairs may be due later by now."""
        self._unheard_ticks = 0
        """Since the other end last told of having heard something new."""
        self._told_s = 0.0
        self._room = MOST_BYTES_S * _BURST_S
        self._room_s = time.monotonic()
        self._is_over = not port.add(self)

    def __repr__(self) -> str:
        return f"<DatagramLink {self.edge} {'up' if self.is_up else 'down'}>"

    @property
    def counts(self) -> DatagramCounts:
        return DatagramCounts(self._sealer.number, self.lost, self._opener.repaired)

    def send(self, frame: bytes) -> bool:
        """False when it was dropped."""
        if self.is_up and len(frame) <= MOST_FRAME_BYTES and self._has_room_for(len(frame)):
            self._put(frame)
            return True
        return self._send_otherwise(frame)

    def send_together(self, frames: Sequence[bytes]) -> bool:
        """What tells how things stand, in as few datagrams as hold it, and while one soon follows
        the other not repaired: what is lost of it the next one tells. False when none went: what is
        told of datagrams must not come over TCP, where it would be taken for news of that."""
        if not self.is_up:
            return False
        together: list[bytes] = []
        size = 0
        for frame in frames:
            if len(frame) > MOST_FRAME_BYTES:
                self._send_otherwise(frame)
                continue
            if len(frame) + EACH_BYTES > MOST_TOGETHER_BYTES:
                for part in self._packer.parts(frame):
                    self._seal(part)
                continue
            if size + len(frame) + EACH_BYTES > MOST_TOGETHER_BYTES:
                self._tell(self._packer.together(together))
                together, size = [], 0
            together.append(frame)
            size += len(frame) + EACH_BYTES
        if together:
            self._tell(self._packer.together(together))
        return True

    def gather(self, is_gathered: bool) -> None:
        """What is sent from now on leaves together, when that is over."""
        if is_gathered:
            self._gathered = []
        elif self._gathered is not None:
            self._let_go()
            self._gathered = None

    def send_rest(self) -> bool:
        """Nothing goes ahead over datagrams."""
        return False

    def greet(self) -> None:
        """Says that this end is there, and what it has heard."""
        if self._address is not None and not self._is_over:
            for datagram in self._sealer.plain(b"", self._opener.heard):
                self._transmit(datagram)

    def beat(self) -> None:
        """One tick has passed."""
        self._unheard_ticks += 1
        if self.is_up and self._unheard_ticks > SILENT_TICKS:
            self._note_up(False)
        self.greet()

    def end(self) -> None:
        self._is_over = True
        self.is_up = False
        self._port.remove(self)
        if self._timer is not None:
            self._timer.cancel()

    def on_datagram(self, head: Head, datagram: bytes, address: UdpAddress) -> None:
        try:
            is_latest = head.number > self._opener.highest
            bodies = self._opener.open(head, datagram)
            if is_latest:
                # Whoever stands between may give the other end another address at any time.
                self._address = address
                self._heed(head)
            for body in bodies:
                self._take_in(body)
        except FrameError:
            self.garbage += 1
        except Exception as error:
            self._on_fault(error)

    def _heed(self, head: Head) -> None:
        """What the other end says of having heard this one."""
        is_heard = head.heard.highest != self.sent
        self.sent = head.heard.highest
        self.lost = (head.heard.highest - head.heard.total) & 0xFFFFFFFF
        if is_heard:
            self._unheard_ticks = 0
        if not self.is_up:
            if is_heard:
                self._note_up(True)
            self.greet()

    def _take_in(self, body: bytes) -> None:
        try:
            for raw in self._unpacker.frames(body):
                frame = decode(raw)
                if frame.envelope.to:
                    self._on_frame(self, frame)
        except FrameError:
            self.garbage += 1

    def _note_up(self, is_up: bool) -> None:
        self.is_up = is_up
        # Not here and now: whoever was just sending must not meet its own consequences.
        self._loop.call_soon_threadsafe(self._on_state)

    def _has_room_for(self, size: int) -> bool:
        now_s = time.monotonic()
        most = MOST_BYTES_S * _BURST_S
        self._room = min(most, self._room + (now_s - self._room_s) * MOST_BYTES_S)
        self._room_s = now_s
        if size > self._room:
            self.overflows += 1
            return False
        self._room -= size
        return True

    def _put(self, frame: bytes) -> None:
        size = len(frame) + EACH_BYTES
        if size > MOST_TOGETHER_BYTES:
            self._let_go()
            for part in self._packer.parts(frame):
                self._seal(part)
        elif self._gathered is None:
            self._seal(self._packer.together([frame]))
        else:
            if self._gathered_bytes + size > MOST_TOGETHER_BYTES:
                self._let_go()
            self._gathered.append(frame)
            self._gathered_bytes += size

    def _let_go(self) -> None:
        if self._gathered:
            body = self._packer.together(self._gathered)
            self._gathered.clear()
            self._gathered_bytes = 0
            self._seal(body)

    def _tell(self, body: bytes) -> None:
        now_s = time.monotonic()
        is_soon, self._told_s = now_s - self._told_s < _SOON_S, now_s
        if is_soon:
            for datagram in self._sealer.plain(body, self._opener.heard):
                self._transmit(datagram)
        else:
            self._seal(body)

    def _seal(self, body: bytes) -> None:
        for datagram in self._sealer.seal(
            body,
            self._opener.heard,
            time.monotonic(),
            within_s=self.within_s,
            most_members=self.most_members,
        ):
            self._transmit(datagram)
        self._await_repair()

    def _await_repair(self) -> None:
        due_s = self._sealer.due_s
        if due_s == inf or self._is_over:
            return
        if self._timer is not None:
            if self._timer_s <= due_s:
                return
            self._timer.cancel()
        self._timer_s = due_s
        self._timer = self._loop.call_later(due_s - time.monotonic(), self._repair)

    def _repair(self) -> None:
        self._timer = None
        for datagram in self._sealer.repairs(self._opener.heard, time.monotonic()):
            self._transmit(datagram)
        self._await_repair()

    def _transmit(self, datagram: bytes) -> None:
        if self._address is not None:
            self._port.send(self, datagram, self._address)
