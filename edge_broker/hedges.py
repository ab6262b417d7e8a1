"""Copies that wait: of batches of one deadline topic, to be sent on a second path when the first
has confirmed nothing by then. Filled by deadlines.py; whether that is worth it is decided in
gateway/plan/path_hedge.py.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from edge_broker.known_path import OpenPath, Path

SendCopy = Callable[[str, int, OpenPath, int], bool]
"""Sends to this edge the batch that begins with this number over this path, at this time; False
when it is not needed any more."""
_MOST_WAITING = 4096
"""Beyond that none is added: what is lost is then only sent again."""


class _Waiting(NamedTuple):
    due_s: float
    first: Path
    sent_ns: int
    """When the batch went over the first path."""
    edge: str
    number: int
    second: OpenPath


class Hedges:
    """Those of one topic."""

    def __init__(self, send_copy: SendCopy) -> None:
        self._send_copy = send_copy
        self._waiting: deque[_Waiting] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def arm(
        self, first: Path, sent_ns: int, edge: str, number: int, second: OpenPath, after_s: float
    ) -> None:
        """This batch was sent over `first` at that time, which may be a while ago."""
        if len(self._waiting) >= _MOST_WAITING:
            return
        after_s = max(0.0, after_s - max(0, time.time_ns() - sent_ns) / 1e9)
        due_s = time.monotonic() + after_s
        self._waiting.append(_Waiting(due_s, first, sent_ns, edge, number, second))
        if len(self._waiting) == 1:
            self._await_first(after_s)

    def _await_first(self, seconds: float) -> None:
        """Most often it is confirmed before it is due: nobody wakes up for it then."""
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)
        self._waiting[0].first.tell_confirmed(self._on_confirmed)

    def _on_confirmed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._look()

    def _look(self) -> None:
        """In the order of sending: the times to wait differ little from batch to batch."""
        self._timer = None
        waiting = self._waiting
        now_s = time.monotonic()
        while waiting:
            due_s, first, sent_ns, edge, number, second = waiting[0]
            # What a path confirms has arrived, but of datagrams only the latest is known to have.
            if first.quality.is_repaired or first.confirmed_ns < sent_ns:
                if due_s > now_s:
                    self._await_first(due_s - now_s)
                    return
                now_ns = time.time_ns()
                if self._send_copy(edge, number, second, now_ns):
                    second.path.note_batch(now_ns)
            waiting.popleft()
