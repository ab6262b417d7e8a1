"""What tests of the shortcut of lone samples share: a pair of connected sockets, one of them
watched, and what has been read from it.
"""

from __future__ import annotations

import select
import socket
import time
from contextlib import suppress

from edge_broker.dds import bulk, shortcuts
from gateway.tunnel.frames import StreamKey
from gateway.tunnel.wire_reader import CompiledAhead, News

KEY = StreamKey("e-a", 12345678901234567890, 7)
LONG_S = 20.0


class Wires:
    """Two ends of a connection, one of them watched."""

    def __init__(self) -> None:
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.far.settimeout(LONG_S)
        self.epoll = select.epoll()
        self.epoll.register(self.near, select.EPOLLIN)
        self.ahead = CompiledAhead(bulk)
        self.ahead.watch(self.near.fileno(), True)
        shortcuts.expect(self.near.fileno(), time.time_ns() + int(LONG_S * 1e9))

    def close(self) -> None:
        self.ahead.watch(self.near.fileno(), False)
        self.ahead.lower(self.near.fileno())
        self.ahead.rest(self.near.fileno())
        self.epoll.close()
        self.near.close()
        self.far.close()

    def wait(self, timeout_ms: int = 10_000) -> News:
        return self.ahead.wait(self.epoll.fileno(), timeout_ms)

    def is_silent(self) -> bool:
        with suppress(BlockingIOError):
            self.far.setblocking(False)
            return not self.far.recv(1)
        return True

    def record(self) -> bytes:
        """The next one, with its length."""
        size = b""
        while len(size) < 4:
            size += self.far.recv(4 - len(size))
        frame = b""
        while len(frame) < int.from_bytes(size, "little"):
            frame += self.far.recv(int.from_bytes(size, "little") - len(frame))
        return size + frame


Chunks = list[tuple[int, bytes]]


def read() -> Chunks:
    """What has been read since the last call."""
    assert bulk.has_news()
    began_ns = time.time_ns() - LONG_S * 10**9
    chunks = bulk.read()
    assert not bulk.has_news()
    assert all(began_ns < at_ns <= time.time_ns() for _, _, at_ns in chunks)
    return [(wire, chunk) for wire, chunk, _ in chunks]


def without_hurry(wires: Wires, count: int) -> list[bytes]:
    """So many chunks, read while there was nothing but that to account for."""
    chunks: list[bytes] = []
    while len(chunks) < count:
        assert wires.wait() is True
        chunks += [chunk for _, chunk, _ in bulk.read()]
    return chunks
