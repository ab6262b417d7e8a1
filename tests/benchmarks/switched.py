"""The `ddswan` command with metrics and traces that a signal switches on and off while it runs: for
overhead.py, which compares them within one flow; nobody else runs it.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from prometheus_client import Counter, Gauge, Histogram

from edge_broker.tracing import OutgoingTrace
from gateway.cli import main
from gateway.observe.metrics import DeadlineMeter
from gateway.observe.trace_schema import is_sampled


class Mode(IntEnum):
    """The signal that switches to it is so much above the first real-time one."""

    NOTHING = 0
    METRICS = 1
    TRACES_1 = 2
    TRACES_100 = 3

    @property
    def signal(self) -> int:
        return signal.SIGRTMIN + self


_COUNTING: dict[tuple[type, str], Callable[..., Any]] = {
    (kind, name): getattr(kind, name)
    for kind, name in (
        (Counter, "inc"),
        (Gauge, "set"),
        (Histogram, "observe"),
        (DeadlineMeter, "count"),
    )
}


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _never(_: OutgoingTrace, first: int) -> bool:
    return False


def _one_in_a_hundred(_: OutgoingTrace, first: int) -> bool:
    return is_sampled(1, 1, first, 0.01)


def _always(_: OutgoingTrace, first: int) -> bool:
    return is_sampled(1, 1, first, 1.0)


_CHOOSING = {Mode.TRACES_1: _one_in_a_hundred, Mode.TRACES_100: _always}


def switch(number: int, _: object = None) -> None:
    mode = Mode(number - signal.SIGRTMIN)
    for (kind, name), real in _COUNTING.items():
        setattr(kind, name, _nothing if mode is Mode.NOTHING else real)
    setattr(OutgoingTrace, "is_chosen", _CHOOSING.get(mode, _never))  # noqa: B010


if __name__ == "__main__":
    for mode in Mode:
        signal.signal(mode.signal, switch)
    switch(Mode.METRICS.signal)
    sys.exit(main())
