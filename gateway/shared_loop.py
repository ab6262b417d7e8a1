"""An asyncio loop whose turns other threads may take: what such a thread does during its turn runs
as if the loop had called it, without the way through the loop's wake-up. For the few threads on
the path of every sample; all others use call_soon_threadsafe.
"""

from __future__ import annotations

import asyncio
import math
import os
import selectors
import threading
import time

# Written for those who implement event loops: it makes get_running_loop work in a foreign thread.
from asyncio import _set_running_loop
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any

from gateway import slices

_LEISURE_S = 0.03
"""How much later something may be done so that it is not in the way. While single samples flow each
edge has a turn of its threads more often than that."""


class _Baton:
    """A lock that does not starve: who lets go of it comes after those who wait for it."""

    def __init__(self) -> None:
        self._queue = threading.Lock()
        self._turn = threading.Lock()
        self.give = self._turn.release

    def take(self) -> None:
        with self._queue:
            self._turn.acquire()


class _Selector(selectors.DefaultSelector):
    """Gives the baton away for as long as the loop looks for news."""

    def __init__(
        self,
        baton: _Baton,
        begin: Callable[[], object],
        end: Callable[[], object],
        give_way: Callable[[], object],
    ) -> None:
        """`begin` is called when it has the baton again, `end` before it gives it away, `give_way`
        when it is merely time for something: there is no news, so nobody waits."""
        super().__init__()
        self._baton = baton
        self._begin = begin
        self._end = end
        self._give_way = give_way
        self.is_looking = False
        self.until_s = 0.0
        """When it ends looking even if there is no news, by the clock of loops."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.is_looking = True
        self.until_s = math.inf if timeout is None else time.monotonic() + timeout
        self._end()
        self._baton.give()
        try:
            found = super().select(timeout)
        finally:
            self._baton.take()
            self.is_looking = False
            self._begin()
        if not found and timeout != 0:
            self._give_way()
        # Others had the loop's turn meanwhile and may have closed what has news. What is merely
        # watched for something else now is found again next time.
        watched = self.get_map()
        return [each for each in found if watched.get(each[0].fd) is each[0]]


class _Turn:
    """A foreign thread's turn of the loop, as a context manager."""

    def __init__(self, loop: SharedLoop) -> None:
        self._loop = loop

    def __enter__(self) -> None:
        loop = self._loop
        loop.baton.take()
        _set_running_loop(loop)
        loop.has_news = False
        loop.begin_turn()

    def __exit__(self, *_: object) -> None:
        loop = self._loop
        loop.end_turn()
        try:
            loop.begin_leisure()
            if loop.has_news and loop.is_looking and not loop.is_closed():
                # It looks for other news, or with a timeout from before.
                loop.call_soon_threadsafe(_nothing)
        finally:
            _set_running_loop(None)
            loop.baton.give()


class SharedLoop(asyncio.SelectorEventLoop):
    """Use it with `asyncio.Runner(loop_factory=SharedLoop)`. `turn` is for foreign threads: within
    it they are the loop."""

    def __init__(self) -> None:
        self.baton = _Baton()
        self.baton.take()
        self.has_news = False
        """Whether something was scheduled since the turn began that the loop would miss."""
        self.turn = _Turn(self)
        self._gives_way = False
        self._first: Callable[[], object] = _nothing
        self._waiting: list[tuple[float, asyncio.Future[None]]] = []
        self._leisure_s = math.inf
        """When the first of those that wait for leisure may have it."""
        self._looker = _Selector(self.baton, self.begin_turn, self.end_turn, self.give_way)
        super().__init__(self._looker)

    @property
    def is_looking(self) -> bool:
        return self._looker.is_looking

    def take_turn(self, callback: Callable[..., object], *args: object) -> None:
        """From a foreign thread: runs the callback as the loop would, as soon as it is not busy.
        Does nothing once the loop is closed."""
        with self.turn:
            if self.is_closed():
                return
            try:
                callback(*args)
            except Exception as error:
                message = f"{callback!r} failed in a turn of {threading.current_thread().name}"
                self.call_exception_handler({"message": message, "exception": error})

    def begin_turns_with(self, first: Callable[[], object]) -> None:
        """From the end of this turn on: it is called as the first thing in every turn."""
        self._first = first

    def give_way(self) -> None:
        """Nobody waits for what this turn does: for the rest of it other threads of the machine go
        first. Those that wait now do when it is said again."""
        if self._gives_way:
            os.sched_yield()
        else:
            self._gives_way = True
            slices.give_way()

    async def at_leisure(self, seconds: float) -> None:
        """Sleeps for so long and up to 30 ms more, until a foreign thread has had a turn: a sample
        has just gone by then, and the next one is less likely to meet what is done now. Others go
        first for the rest of that turn of the loop."""
        due_s = self.time() + seconds
        waiter = due_s, self.create_future()
        self._waiting.append(waiter)
        self._leisure_s = min(self._leisure_s, due_s)
        timer = self.call_at(due_s + _LEISURE_S, _wake, waiter[1])
        try:
            await waiter[1]
        finally:
            timer.cancel()
            self._waiting.remove(waiter)
            self._leisure_s = min((due_s for due_s, _ in self._waiting), default=math.inf)
        self.give_way()

    def begin_leisure(self) -> None:
        """A sample has just gone by."""
        now_s = time.monotonic()
        if now_s >= self._leisure_s:
            self._leisure_s = math.inf  # until the first of them is awake
            for due_s, waiter in self._waiting:
                if now_s >= due_s:
                    _wake(waiter)

    def begin_turn(self) -> None:
        try:
            self._first()
        except Exception as error:
            message = f"the beginning of a turn failed in {threading.current_thread().name}"
            self.call_exception_handler({"message": message, "exception": error})

    def end_turn(self) -> None:
        if self._gives_way:
            self._gives_way = False
            slices.be_prompt()

    @contextmanager
    def turns_left_to_others(self) -> Iterator[None]:
        """For the loop's own thread, while it waits for a thread that may want a last turn."""
        self.end_turn()
        self.baton.give()
        try:
            yield
        finally:
            self.baton.take()
            self.begin_turn()

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> Any:
        self.has_news = True
        return super().call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Any:
        if when < self._looker.until_s:
            self.has_news = True
        return super().call_at(when, callback, *args, context=context)


def running_loop() -> SharedLoop:
    """The loop of a broker whose threads take turns."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SharedLoop)
    return loop


def _nothing() -> None:
    pass


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
