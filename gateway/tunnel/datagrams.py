"""The door to UDP sockets: the datagrams beside an express link, for paths that lose packets. What
is lost of them holds up nothing behind it, and most of it is made again (repair.py). Called by
express.py and express_link.py; whether they are used is decided by the sending edge.

The edge that was dialled offers a token over TCP; whoever shows it is the other end. Each end uses
a link only while it is told that the other one hears it: datagrams may be blocked, both ways or
one, where TCP is not.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from typing import NamedTuple

from gateway.errors import FrameError
from gateway.observe.logs import get_logger
from gateway.tunnel.conversation import SILENT_TICKS
from gateway.tunnel.frames import Frame, Peer, decode
from gateway.tunnel.names import reason, resolve_now
from gateway.tunnel.parcels import (
    EACH_BYTES,
    MOST_FRAME_BYTES,
    MOST_TOGETHER_BYTES,
    Packer,
    Unpacker,
)
from gateway.tunnel.repair import Head, Opener, Sealer, read_head
from gateway.tunnel.wire_reader import WireReader

log = get_logger("tunnel")

MOST_BYTES_S = 250_000
"""Of frames on one link; the rest goes over TCP, which finds out how much a path can carry."""
_BURST_S = 0.25
_MOST_READ = 64
"""Datagrams in one turn."""
_LARGEST = 2048
_FIRST_WITHIN_S = 0.02
_FIRST_MEMBERS = 4
_SOON_S = 0.1
_LINUX_IP_PKTINFO = 8

UdpAddress = tuple[object, ...]
"""As sockets tell it: a host, a port, and for IPv6 two more."""


class DatagramCounts(NamedTuple):
    """Of one link since it began."""

    sent: int = 0
    lost: int = 0
    """Of those sent, that the other end has not got."""
    repaired: int = 0
    """From the other end: did not come and were made again."""


class DatagramPort:
    """The sockets of one broker, shared by its links: for each family one at the port it listens
    on, and one for what it dials, which may be anywhere."""

    def __init__(self, me: Peer, reader: WireReader) -> None:
        self.me = me
        self._reader = reader
        self._listening: dict[int, socket.socket] = {}
        self._dialling: dict[int, socket.socket] = {}
        self._links: dict[int, DatagramLink] = {}

    def listen(self, host: str, port: int) -> None:
        """Where others may send to. When that cannot be there are links to those who listen."""
        try:
            family, address = resolve_now(host, port)[0]
            self._listening[family] = self._bind(family, address)
        except OSError as error:
            log.warning(
                "no datagrams to this edge: paths that lose packets are slower than they could be",
                address=f"{host}:{port}/udp",
                reason=reason(error),
            )

    def close(self) -> None:
        for each in (*self._listening.values(), *self._dialling.values()):
            self._reader.remove(each.fileno())
            each.close()
        self._listening.clear()
        self._dialling.clear()

    def is_listening(self, family: int) -> bool:
        return family in self._listening

    def add(self, link: DatagramLink) -> bool:
        """False: its token belongs to another one, or it can have no socket."""
        if link.token in self._links:
            return False
        if link.is_dialled and link.family not in self._dialling:
            try:
                self._dialling[link.family] = self._bind(link.family, ("", 0))
            except OSError as error:
                log.info("no datagrams beside a link", edge=link.edge, reason=reason(error))
                return False
        self._links[link.token] = link
        return True

    def remove(self, link: DatagramLink) -> None:
        if self._links.get(link.token) is link:
            del self._links[link.token]

    def send(self, link: DatagramLink, datagram: bytes, address: UdpAddress) -> None:
        """What the system does not take is lost, as any may be."""
        sockets = self._dialling if link.is_dialled else self._listening
        bound = sockets.get(link.family)
        if bound is not None:
            with suppress(OSError):
                bound.sendmsg([datagram], link.source, 0, address)

    def _bind(self, family: int, address: tuple[str, int]) -> socket.socket:
        made = socket.socket(family, socket.SOCK_DGRAM)
        try:
            made.setblocking(False)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind(address)
        except BaseException:
            made.close()
            raise
        self._reader.add(made.fileno(), lambda _: self._on_readable(made))
        return made

    def _on_readable(self, bound: socket.socket) -> None:
        for _ in range(_MOST_READ):
            try:
                datagram, address = bound.recvfrom(_LARGEST)
            except OSError:  # nothing more, or word that one of ours did not arrive
                return
            self._take_in(datagram, address)

    def _take_in(self, datagram: bytes, address: UdpAddress) -> None:
        try:
            head = read_head(datagram)
        except FrameError:  # anybody may send anything here
            return
        link = self._links.get(head.token)
        if link is not None:
            link.on_datagram(head, datagram, address)


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
        self.source = [] if self.is_dialled else _from(family, own_address)
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


def _from(family: int, address: UdpAddress) -> list[tuple[int, int, bytes]]:
    host = str(address[0]).partition("%")[0]
    if family == socket.AF_INET6:
        if not hasattr(socket, "IPV6_PKTINFO"):
            return []
        info = struct.pack("=16sI", socket.inet_pton(family, host), 0)
        return [(socket.IPPROTO_IPV6, socket.IPV6_PKTINFO, info)]
    if sys.platform != "linux":
        return []
    info = struct.pack("=I4s4s", 0, socket.inet_pton(family, host), bytes(4))
    return [(socket.IPPROTO_IP, _LINUX_IP_PKTINFO, info)]
