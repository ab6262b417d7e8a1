"""The one thread that waits for all wires of an edge. A lone frame is read some 10 µs sooner so
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

_MOST_BUSY_S = 0.002
"""As long as there is always more to read, the loop has a turn so often."""


class WireReader:
    """Calls what was added for a descriptor whenever it is readable, with `turn` held: whoever
    holds that does as if on the loop, and the loop lets go of it while it waits."""

    def __init__(self, turn: AbstractContextManager[object]) -> None:
        self._turn = turn
        self._readers: dict[int, Callable[[], None]] = {}
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

    def add(self, descriptor: int, on_readable: Callable[[], None]) -> None:
        self._readers[descriptor] = on_readable
        self._epoll.register(descriptor, select.EPOLLIN)

    def remove(self, descriptor: int) -> None:
        """Does nothing when it was not added. Before the descriptor is closed."""
        if self._readers.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        wait = self._epoll.poll
        while not self._is_stopping:
            ready = wait()
            self._read(ready)
            until_s = time.monotonic() + _MOST_BUSY_S
            while (ready := wait(0)) and not self._is_stopping:
                if time.monotonic() > until_s:
                    self._let_loop_pass(loop)
                    until_s = time.monotonic() + _MOST_BUSY_S
                self._read(ready)
        loop.call_soon_threadsafe(self._ended.set_result, None)

    def _read(self, ready: list[tuple[int, int]]) -> None:
        readers = self._readers
        with self._turn:
            for descriptor, _ in ready:
                on_readable = readers.get(descriptor)
                # None: removed since, or the alarm.
                if on_readable is not None:
                    on_readable()

    def _let_loop_pass(self, loop: asyncio.AbstractEventLoop) -> None:
        """A lock is not fair: who lets go of it and takes it again at once has it for ever."""
        loop.call_soon_threadsafe(self._gate.release)
        self._gate.acquire()
