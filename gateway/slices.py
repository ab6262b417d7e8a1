"""How long a thread of a broker goes on when another one that was woken wants its processor: short
for those that wait for data, so that they go first when it comes; long while one does what nobody
waits for. Linux can be asked for that since 6.12; an older kernel, or one that does not allow it,
goes on as usual. Called by process_tuning.py, by the loop whose turns threads take, and by the door
to ZooKeeper.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SHORT_NS = 100_000
"""On a busy processor a lone sample meets a handful of threads."""
_LONG_NS = 20_000_000
"""Longer than any application's: whoever wakes goes first."""

_CALLS = {"x86_64": (314, 315), "aarch64": (274, 275)}
"""Numbers of sched_setattr and sched_getattr, for which the C library has no names."""
_KEEP_POLICY = 8


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


_calls = _CALLS.get(platform.machine()) if sys.platform == "linux" else None
# Keeps the interpreter lock: to let go of it and ask for it again takes longer than the call.
_library = ctypes.PyDLL(None)


def _wish(slice_ns: int) -> _Attributes:
    return _Attributes(size=ctypes.sizeof(_Attributes), flags=_KEEP_POLICY, runtime=slice_ns)


_short, _long = _wish(_SHORT_NS), _wish(_LONG_NS)
_unhurried: set[int] = set()


def shorten_all() -> None:
    """Of all threads there are, but for those that are unhurried; later ones inherit it."""
    if _calls is not None:
        for thread in _threads() - _unhurried:
            _set(thread, _short)


@contextmanager
def unhurried() -> Iterator[None]:
    """What is started meanwhile, threads and processes, has no part in the way of samples: it
    always gives way."""
    if _calls is None:
        yield
        return
    before, mine = _threads(), _slice()
    _set(0, _long)
    try:
        yield
    finally:
        _set(0, _wish(mine))
        _unhurried.update(_threads() - before)


def give_way() -> None:
    """What this thread does next is not urgent: others that are waiting for its processor, or are
    woken meanwhile, go first. Until `be_prompt`. For one thread at a time, as that is."""
    _set(0, _long)
    # Only what follows the slice that has begun is a long one.
    os.sched_yield()


def be_prompt() -> None:
    """This thread goes first when it is woken."""
    _set(0, _short)


def _threads() -> set[int]:
    return set(map(int, os.listdir("/proc/self/task")))


def _slice() -> int:
    """Of this thread; 0: the usual one."""
    found = _Attributes()
    if _calls is not None:
        _library.syscall(_calls[1], 0, ctypes.byref(found), ctypes.sizeof(found), 0)
    return int(found.runtime)


def _set(thread: int, wish: _Attributes) -> None:
    """Whatever policy and nice value an operator gave it stay."""
    if _calls is not None:
        wish.nice = os.getpriority(os.PRIO_PROCESS, thread)
        _library.syscall(_calls[0], thread, ctypes.byref(wish), 0)
