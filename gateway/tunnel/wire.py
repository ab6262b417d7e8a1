"""The door to sockets: one non-blocking TCP connection that carries frames, each behind its length
in 4 bytes, little endian. Called by express_link.py and express.py; what frames say stays out. TLS
has its place in `_read`, `_read_into` and `_write`.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice

from gateway.errors import FrameError, LinkError
from gateway.tunnel.frames import MAX_FRAME_BYTES
from gateway.tunnel.names import Address, addresses_to_listen_on, reason
from gateway.tunnel.wire_reader import Ahead
from gateway.tunnel.wire_tuning import CongestionControl, tune

_LENGTH = struct.Struct("<I")
_LENGTH_BYTES = _LENGTH.size
_JOINED_BYTES = 16 * 1024
"""A frame up to this size is copied behind its length: cheaper than handing over two buffers."""
_BUFFER_BYTES = 128 * 1024
_CHUNK_BYTES = 1024 * 1024
_MOST_GREETING_BYTES = 4096
_MOST_PARTS = 512
"""Buffers in one system call; Linux takes 1024."""
_BACKLOG = 64
_REST_S = 1.0
"""Nothing is accepted for so long when the machine has no room for a connection."""
_WOULD_BLOCK = (BlockingIOError, InterruptedError)


class Wire:
    """One connection. `on_broken` is called with the reason when writing shows that it is over;
    `on_drained` when the queue falls to `low_bytes` after it was above `high_bytes`. Belongs to
    whoever has the loop's turn, but for what is written `ahead` while nothing waits here."""

    def __init__(
        self,
        connected: socket.socket,
        *,
        limit_bytes: int,
        high_bytes: int = 1 << 20,
        low_bytes: int = 1 << 18,
    ) -> None:
        self.peer: tuple[object, ...] = connected.getpeername()
        """The address of the other end, as the system has it …"""
        self.address: tuple[object, ...] = connected.getsockname()
        """… and of this one."""
        self.remote = _name(connected.getpeername())
        self.queued_bytes = 0
        self.is_congested = False
        self.is_open = True
        self.on_broken: Callable[[str], None] = _ignore
        self.on_drained: Callable[[], None] = _nothing
        self.ahead: Ahead | None = None
        """Who else may write on it."""
        self._socket = connected
        self._loop = asyncio.get_running_loop()
        self._limit_bytes = limit_bytes
        self._high_bytes = high_bytes
        self._low_bytes = low_bytes
        self._queue: deque[bytes | memoryview] = deque()
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._filled = 0
        self._chunks: list[bytes] = []
        """Of a frame larger than the buffer, which lacks `_missing` bytes."""
        self._missing = 0
        tune(connected)
        self._congestion = CongestionControl(connected)

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def family(self) -> int:
        """Of its addresses."""
        return int(self._socket.family)

    def close(self) -> None:
        """What is still queued is gone."""
        if self.is_open:
            self.is_open = False
            if self.ahead is not None:
                self.ahead.lower(self.fileno())
                self.ahead.rest(self.fileno())
            self._loop.remove_writer(self._socket)
            self._socket.close()
            self._queue.clear()
            self.queued_bytes = 0
            self.is_congested = False

    def tick(self) -> None:
        """Asks for the congestion control that suits what was sent since the last one."""
        if self.is_open:
            self._congestion.review()

    # ------------------------------------------------------------ the seam

    def _read(self, most: int) -> bytes:
        return self._socket.recv(most)

    def _read_into(self, room: memoryview) -> int:
        return self._socket.recv_into(room)

    def _write(self, part: bytes) -> int:
        if self.ahead is not None:
            return self.ahead.send(self.fileno(), part)
        return self._socket.send(part)

    def _write_all(self, parts: list[bytes | memoryview]) -> int:
        return self._socket.sendmsg(parts)

    # ------------------------------------------------------------ sending

    @property
    def is_idle(self) -> bool:
        """Whether a frame would be written at once, by whoever holds the descriptor."""
        return self.is_open and not self._queue

    def send(self, frame: bytes) -> bool:
        """Written at once when nothing waits, else queued; False when the connection is over, the
        queue full or the frame larger than any link takes."""
        size = len(frame)
        if size > MAX_FRAME_BYTES or self.queued_bytes + size > self._limit_bytes:
            return False
        if size <= _JOINED_BYTES:
            return self._send_joined(_LENGTH.pack(size) + frame)
        if not self._queue and self.ahead is not None:
            self.ahead.lower(self.fileno())
            self.take_rest()
        prefix = _LENGTH.pack(size)
        if self._queue:
            self._keep(prefix)
            self._keep(frame)
            return True
        try:
            sent = self._write_all([prefix, frame])
        except _WOULD_BLOCK:
            sent = 0
        except OSError as error:
            self.on_broken(reason(error))
            return False
        if sent < _LENGTH_BYTES:
            self._keep(prefix[sent:])
            sent = _LENGTH_BYTES
        if sent < _LENGTH_BYTES + size:
            self._keep(memoryview(frame)[sent - _LENGTH_BYTES :])
        return True

    def send_together(self, frames: Sequence[bytes]) -> bool:
        """Small ones, as with `send`, but with one call of the system; False: none of them."""
        record = b"".join([part for each in frames for part in (_LENGTH.pack(len(each)), each)])
        return self.queued_bytes + len(record) <= self._limit_bytes and self._send_joined(record)

    def _send_joined(self, record: bytes) -> bool:
        sent = 0
        if not self._queue:
            try:
                sent = self._write(record)
            except _WOULD_BLOCK:
                self.take_rest()
            except OSError as error:
                self.on_broken(reason(error))
                return False
        if sent < len(record):
            self._keep(memoryview(record)[sent:])
        return True

    def gather(self, is_gathered: bool) -> None:
        """What is sent from now on leaves together, when that is over; soon, please."""
        if self.is_open and hasattr(socket, "TCP_CORK"):  # Linux
            with suppress(OSError):  # that it is broken shows when it is written on
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, is_gathered)

    def take_rest(self) -> bool:
        """Whether a record has gone ahead in part only: the rest waits here now, before all others,
        and nothing goes ahead any more."""
        rest = b"" if self.ahead is None else self.ahead.rest(self.fileno())
        if rest:
            self._keep(rest)
        return bool(rest)

    def _keep(self, part: bytes | memoryview) -> None:
        if not self._queue:
            self._loop.add_writer(self._socket, self._flush)
        self._queue.append(part)
        self.queued_bytes += len(part)
        if self.queued_bytes > self._high_bytes:
            self.is_congested = True

    def _flush(self) -> None:
        """The connection takes bytes again."""
        queue = self._queue
        try:
            sent = self._write_all(list(islice(queue, _MOST_PARTS)))
        except _WOULD_BLOCK:
            return
        except OSError as error:
            self.on_broken(reason(error))
            return
        self.queued_bytes -= sent
        while sent:
            part = queue.popleft()
            if len(part) > sent:
                queue.appendleft(memoryview(part)[sent:])
                break
            sent -= len(part)
        if not queue:
            self._loop.remove_writer(self._socket)
        if self.is_congested and self.queued_bytes <= self._low_bytes:
            self.is_congested = False
            self.on_drained()

    # ------------------------------------------------------------ receiving

    @property
    def is_at_boundary(self) -> bool:
        """Whether what comes next is the beginning of a frame."""
        return not self._filled and not self._missing

    def take_in(self, chunk: bytes) -> list[bytes]:
        """The frames of what somebody else has read, at a boundary; raises as `receive` does."""
        self._buffer[: len(chunk)] = chunk
        return self._split(len(chunk))

    def receive(self) -> list[bytes]:
        """The frames completed by one read, perhaps none. Raises LinkError when the connection is
        over, FrameError when what comes are no frames."""
        try:
            if self._missing:
                return self._receive_chunk()
            got = self._read_into(self._buffer[self._filled :])
        except _WOULD_BLOCK:
            return []
        except OSError as error:
            raise LinkError(reason(error)) from error
        if not got:
            raise LinkError("the other edge hung up")
        return self._split(self._filled + got)

    def _split(self, filled: int) -> list[bytes]:
        buffer = self._buffer
        frames = []
        start = 0
        while (at := start + _LENGTH_BYTES) <= filled:
            size = _LENGTH.unpack_from(buffer, start)[0]
            if size > MAX_FRAME_BYTES:
                raise FrameError(f"a frame of {size} bytes is announced, more than any may have")
            end = at + size
            if end > filled:
                if size > _BUFFER_BYTES - _LENGTH_BYTES:
                    self._chunks.append(bytes(buffer[at:filled]))
                    self._missing = end - filled
                    start = filled
                break
            frames.append(bytes(buffer[at:end]))
            start = end
        self._filled = filled - start
        if start and self._filled:
            buffer[: self._filled] = bytes(buffer[start:filled])
        return frames

    def _receive_chunk(self) -> list[bytes]:
        chunk = self._read(min(self._missing, _CHUNK_BYTES))
        if not chunk:
            raise LinkError("the other edge hung up")
        self._chunks.append(chunk)
        self._missing -= len(chunk)
        if self._missing:
            return []
        frame = b"".join(self._chunks)
        self._chunks.clear()
        return [frame]

    async def greeting(self) -> bytes:
        """The first frame and not a byte more. Raises FrameError when it is none, LinkError when
        none comes."""
        size = _LENGTH.unpack(await self._exactly(_LENGTH_BYTES))[0]
        if size > _MOST_GREETING_BYTES:
            raise FrameError("expected a hello: what answers there is no edge of ddswan")
        return await self._exactly(size)

    async def _exactly(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            try:
                chunk = self._read(size - len(got))
            except _WOULD_BLOCK:
                await _readable(self._loop, self._socket)
                continue
            except OSError as error:
                raise LinkError(reason(error)) from error
            if not chunk:
                raise LinkError("the other edge hung up before greeting")
            got += chunk
        return got


# ---------------------------------------------------------------- connections


async def connect(family: int, address: Address, limit_bytes: int) -> Wire:
    """Raises LinkError, too when this host has no addresses of that family or no file to spare."""
    try:
        dialled = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise LinkError(reason(error)) from error
    try:
        dialled.setblocking(False)
        await asyncio.get_running_loop().sock_connect(dialled, address)
        return Wire(dialled, limit_bytes=limit_bytes)
    except OSError as error:
        dialled.close()
        raise LinkError(reason(error)) from error
    except BaseException:
        dialled.close()
        raise


class Listener:
    """Accepts connections from construction to close; `on_accepted` is called on the loop. Raises
    LinkError when the address cannot be listened on."""

    def __init__(
        self, host: str, port: int, limit_bytes: int, on_accepted: Callable[[Wire], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit_bytes = limit_bytes
        self._on_accepted = on_accepted
        self.port = port
        self._sockets: list[socket.socket] = []
        try:
            for family, (address, _) in addresses_to_listen_on(host, port):
                bound = socket.create_server((address, self.port), family=family, backlog=_BACKLOG)
                bound.setblocking(False)
                self._sockets.append(bound)
                self.port = bound.getsockname()[1]
        except OSError as error:
            self.close()
            raise LinkError(
                f"cannot listen on {host}:{port}: {reason(error)}; choose another address with "
                "--express-listen"
            ) from error
        for each in self._sockets:
            self._resume(each)

    def close(self) -> None:
        for each in self._sockets:
            self._loop.remove_reader(each)
            each.close()

    def _rest(self, bound: socket.socket) -> None:
        self._loop.remove_reader(bound)
        self._loop.call_later(_REST_S, self._resume, bound)

    def _resume(self, bound: socket.socket) -> None:
        if bound.fileno() >= 0:
            self._loop.add_reader(bound, self._accept, bound)

    def _accept(self, bound: socket.socket) -> None:
        try:
            accepted, _ = bound.accept()
        except _WOULD_BLOCK:
            return
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                # The listener stays readable: without a rest this would spin.
                self._rest(bound)
            return
        try:
            accepted.setblocking(False)
            wire = Wire(accepted, limit_bytes=self._limit_bytes)
        except OSError:  # it was gone before it was looked at
            accepted.close()
            return
        self._on_accepted(wire)


async def _readable(loop: asyncio.AbstractEventLoop, what: socket.socket) -> None:
    ready = asyncio.Event()
    loop.add_reader(what, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(what)


def _name(address: tuple[str, int]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _ignore(_reason: str) -> None:
    """Nobody listens yet."""


def _nothing() -> None:
    """Nobody listens yet."""
