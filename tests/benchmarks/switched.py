"""The `ddswan` command with metrics and traces that a signal switches on and off while it runs, or
takes the time of: for overhead.py, which compares them within one flow; nobody else runs it.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from prometheus_client import Counter, Gauge, Histogram

from edge_broker.tracing import IncomingTrace, OutgoingTrace
from gateway.cli import main
from gateway.observe.collectors import LoopCounter, LoopHistogram
from gateway.observe.metrics import DeadlineMeter
from gateway.observe.trace_schema import is_sampled
from gateway.observe.traces import TraceWriter


class Mode(IntEnum):
    """The signal that switches to it is so much above the first real-time one."""

    NOTHING = 0
    METRICS = 1
    TRACES_1 = 2
    TRACES_100 = 3
    TIMED_1 = 4
    """As those, with a clock around every call that counts or traces."""
    TIMED_100 = 5

    @property
    def signal(self) -> int:
        return signal.SIGRTMIN + self


TIMES_FILE = "OVERHEAD_TIMES"
"""The environment variable with the file that gets a line for each mode that ends: the seconds it
lasted, the process's CPU seconds, and those spent in calls that count, in calls that trace, and by
the thread that writes traces."""
_COUNTING = (
    *((Counter, "inc"), (Gauge, "set"), (Histogram, "observe"), (DeadlineMeter, "count")),
    *((LoopCounter, "inc"), (LoopHistogram, "observe")),
)
_TRACING = (
    (OutgoingTrace, "is_chosen"),
    (OutgoingTrace, "mark"),
    (IncomingTrace, "arrived"),
    (IncomingTrace, "written"),
)
_WRITING = ((TraceWriter, "_turn"),)
_REAL: dict[tuple[type, str], Callable[..., Any]] = {
    (kind, name): getattr(kind, name) for kind, name in (*_COUNTING, *_TRACING, *_WRITING)
}


SPENT = ("counting", "tracing", "writing")


class _Times:
    def __init__(self) -> None:
        self.mode = Mode.METRICS
        self.spent_ns = dict.fromkeys(SPENT, 0)
        self._since = time.monotonic(), time.process_time()

    def end(self, mode: Mode) -> None:
        now = time.monotonic(), time.process_time()
        ended = {
            "mode": self.mode.name,
            "seconds": now[0] - self._since[0],
            "cpu_s": now[1] - self._since[1],
            **{f"{name}_s": spent / 1e9 for name, spent in self.spent_ns.items()},
        }
        with open(os.environ[TIMES_FILE], "a", encoding="utf-8") as sink:
            print(json.dumps(ended), file=sink)
        self.mode, self._since = mode, now
        self.spent_ns = dict.fromkeys(self.spent_ns, 0)


_times = _Times()


def _timed(
    real: Callable[..., Any], what: str, clock: Callable[[], int] = time.perf_counter_ns
) -> Callable[..., Any]:
    @functools.wraps(real)
    def timed(*arguments: Any, **named: Any) -> Any:
        began = clock()
        try:
            return real(*arguments, **named)
        finally:
            _times.spent_ns[what] += clock() - began - _CLOCK_NS

    return timed


def _clock_ns() -> int:
    """What the clock itself takes of each time it takes."""
    found = []
    for _ in range(10_000):
        began = time.perf_counter_ns()
        found.append(time.perf_counter_ns() - began)
    return sorted(found)[len(found) // 2]


_CLOCK_NS = _clock_ns()


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _chooses(share: float) -> Callable[[OutgoingTrace, int], bool]:
    return lambda _, first: is_sampled(1, 1, first, share)


_SHARES = {
    Mode.TRACES_1: 0.01,
    Mode.TRACES_100: 1.0,
    Mode.TIMED_1: 0.01,
    Mode.TIMED_100: 1.0,
}


def switch(number: int, _: object = None) -> None:
    mode = Mode(number - signal.SIGRTMIN)
    calls = dict(_REAL)
    share = _SHARES.get(mode)
    calls[OutgoingTrace, "is_chosen"] = (lambda *_: False) if share is None else _chooses(share)
    if mode is Mode.NOTHING:
        calls |= dict.fromkeys(_COUNTING, _nothing)
    if mode in (Mode.TIMED_1, Mode.TIMED_100):
        for what, timed in (("counting", _COUNTING), ("tracing", _TRACING)):
            calls |= {each: _timed(calls[each], what) for each in timed}
        # It may let go of the interpreter, so only its own thread's time counts.
        write = _WRITING[0]
        calls[write] = _timed(calls[write], "writing", time.thread_time_ns)
    for (kind, name), call in calls.items():
        setattr(kind, name, call)
    _times.end(mode)


if __name__ == "__main__":
    for each in Mode:
        signal.signal(each.signal, switch)
    switch(Mode.METRICS.signal)
    sys.exit(main())
