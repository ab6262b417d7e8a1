"""The one thread that waits for all wires of a broker. A lone frame is read some 10 µs sooner so
than by the loop's own waiting. Called by express.py; reading itself stays out.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal, Protocol

_FOR_EVER_MS = -1
_MOST_BUSY_S = 0.002
"""As long as there is always more to read, the loop has a turn so often."""


News = list[int] | Literal[True] | None
"""Descriptors that are readable, but for one that was read: before they are read what was read
ahead is to be accounted for. True: only that, without hurry. None: nor is there that."""


class Ahead(Protocol):
    """Reads wires and writes on them at any time, ahead of what happens in the next turn."""

    def wait(self, epoll: int, timeout_ms: int) -> News:
        """Waits so long; -1: as long as it takes."""
        ...

    def watch(self, descriptor: int, is_at_boundary: bool) -> None:
        """A wire may be read that stands between two frames."""
        ...

    def lower(self, descriptor: int) -> None:
        """Nothing may be written on this wire until somebody aims at it again."""
        ...

    def send(self, descriptor: int, record: bytes | memoryview) -> int:
        """How much of it was written, as by a socket: raises BlockingIOError when it is not its
        turn. When it is not all this lowers, too."""
        ...

    def rest(self, descriptor: int) -> bytes:
        """What is left of a record that has gone ahead in part. Told once, and to be written before
        anything else; until it is told `send` writes nothing."""
        ...


class _Compiled(Protocol):
    """A module that does that in compiled code."""

    def await_wires(self, epoll: int, timeout_ms: int, /) -> News: ...
    def watch(self, wire: int, is_at_boundary: bool, /) -> bool: ...
    def lower(self, wire: int, /) -> None: ...
    def send(self, wire: int, record: bytes | memoryview, /) -> int: ...
    def rest(self, wire: int, /) -> bytes: ...


class CompiledAhead(Ahead):
    """… as the reader of wires and the wires ask for it."""

    def __init__(self, compiled: _Compiled) -> None:
        self._compiled = compiled

    def wait(self, epoll: int, timeout_ms: int) -> News:
        return self._compiled.await_wires(epoll, timeout_ms)

    def watch(self, descriptor: int, is_at_boundary: bool) -> None:
        self._compiled.watch(descriptor, is_at_boundary)

    def lower(self, descriptor: int) -> None:
        self._compiled.lower(descriptor)

    def send(self, descriptor: int, record: bytes | memoryview) -> int:
        return self._compiled.send(descriptor, record)

    def rest(self, descriptor: int) -> bytes:
        return self._compiled.rest(descriptor)


class WireReader:
    """Calls what was added for a descriptor whenever it is readable, with `turn` held: whoever
    holds that does as if on the loop, and the loop lets go of it while it waits."""

    def __init__(self, turn: AbstractContextManager[object], ahead: Ahead | None = None) -> None:
        self.ahead = ahead
        self.settle: Callable[[], object] = _nothing
        """Accounts for what was read ahead: called before more is read."""
        self._turn = turn
        self._readers: dict[int, Callable[[bytes | None], None]] = {}
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        self._gate = threading.Lock()
        self._gate.acquire()

    def start(self) -> None:
        self._epoll = select.epoll()
        self._alarm = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._alarm, select.EPOLLIN)
        loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._thread = threading.Thread(
            target=self._run, args=(loop,), name="express-read", daemon=True
        )
        self._thread.start()

    async def close(self) -> None:
        if self._thread is None:
            return
        self._is_stopping = True
        os.eventfd_write(self._alarm, 1)
        # Not by joining at once: the thread may be waiting for the turn, which is ours now.
        await self._ended
        self._thread.join()
        self._epoll.close()
        os.close(self._alarm)

    def add(self, descriptor: int, on_readable: Callable[[bytes | None], None]) -> None:
        """It gets what was read ahead, or is to read itself."""
        self._readers[descriptor] = on_readable
        self._epoll.register(descriptor, select.EPOLLIN)

    def remove(self, descriptor: int) -> None:
        """Does nothing when it was not added. Before the descriptor is closed."""
        if self._readers.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)
            if self.ahead is not None:
                self.ahead.watch(descriptor, False)

    def on_read(self, descriptor: int, chunk: bytes) -> None:
        """This was read ahead."""
        on_readable = self._readers.get(descriptor)
        if on_readable is not None:
            on_readable(chunk)

    def _wait(self, timeout_ms: int) -> News:
        if self.ahead is not None:
            return self.ahead.wait(self._epoll.fileno(), timeout_ms)
        return [descriptor for descriptor, _ in self._epoll.poll(timeout_ms / 1e3)] or None

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._is_stopping:
            self._heed(self._wait(_FOR_EVER_MS), loop)
            until_s = time.monotonic() + _MOST_BUSY_S
            while (news := self._wait(0)) is not None and not self._is_stopping:
                if time.monotonic() > until_s:
                    self._let_loop_pass(loop)
                    until_s = time.monotonic() + _MOST_BUSY_S
                self._heed(news, loop)
        loop.call_soon_threadsafe(self._ended.set_result, None)

    def _heed(self, news: News, loop: asyncio.AbstractEventLoop) -> None:
        if news is True:
            # Not here: what comes meanwhile can go on being read ahead.
            loop.call_soon_threadsafe(self.settle)
        else:
            self._read(news or [])

    def _read(self, ready: list[int]) -> None:
        readers = self._readers
        with self._turn:  # also for none: something was read ahead
            self.settle()
            for descriptor in ready:
                on_readable = readers.get(descriptor)
                # None: removed since, or the alarm.
                if on_readable is not None:
                    on_readable(None)

    def _let_loop_pass(self, loop: asyncio.AbstractEventLoop) -> None:
        """A lock is not fair: who lets go of it and takes it again at once has it for ever."""
        loop.call_soon_threadsafe(self._gate.release)
        self._gate.acquire()


def _nothing() -> None:
    """Nothing is read ahead."""
