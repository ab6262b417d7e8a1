"""The door to UDP sockets: those of one broker, for the datagrams beside its express links. Called
by express.py and datagrams.py; what datagrams hold stays out.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from gateway.errors import FrameError
from gateway.observe.logs import get_logger
from gateway.tunnel.frames import Peer
from gateway.tunnel.names import addresses_to_listen_on, reason
from gateway.tunnel.repair import Head, read_head
from gateway.tunnel.wire_reader import WireReader

log = get_logger("tunnel")

_MOST_READ = 64
"""Datagrams in one turn."""
_LARGEST = 2048
_LINUX_IP_PKTINFO = 8

UdpAddress = tuple[object, ...]
"""As sockets tell it: a host, a port, and for IPv6 two more."""
Source = Sequence[tuple[int, int, bytes]]
"""Which of a host's addresses a datagram is to come from, as the system is told; empty: any."""


class Addressee(Protocol):
    """One end of a link."""

    edge: str
    family: int
    token: int
    is_dialled: bool
    source: Source

    def on_datagram(self, head: Head, datagram: bytes, address: UdpAddress) -> None: ...


class DatagramPort:
    """The sockets of one broker, shared by its links: for each family one at the port it listens
    on, and one for what it dials, which may be anywhere."""

    def __init__(self, me: Peer, reader: WireReader) -> None:
        self.me = me
        self._reader = reader
        self._listening: dict[int, socket.socket] = {}
        self._dialling: dict[int, socket.socket] = {}
        self._links: dict[int, Addressee] = {}

    def listen(self, host: str, port: int) -> None:
        """Where others may send to. When that cannot be there are links to those who listen."""
        try:
            for family, address in addresses_to_listen_on(host, port):
                self._listening[family] = self._bind(family, address)
        except OSError as error:
            log.warning(
                "no datagrams to this edge; free its UDP port, or paths that lose packets use TCP",
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

    def add(self, link: Addressee) -> bool:
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

    def remove(self, link: Addressee) -> None:
        if self._links.get(link.token) is link:
            del self._links[link.token]

    def send(self, link: Addressee, datagram: bytes, address: UdpAddress) -> None:
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


def source_of(family: int, address: UdpAddress) -> Source:
    """This address of the host."""
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
