"""What a broker asks of its interpreter and allocator: steady latency rather than least memory.
Called once by the brokers' app.py, when everything lasting has been made.
"""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import sys

_SWITCH_INTERVAL_S = 0.0005
"""The loop and foreign threads share the interpreter: the usual 5 ms would be a latency."""

_GC_THRESHOLD = 50_000
"""Samples are no cycles, but they count as allocations: the usual 700 would run the collector
several times for each batch."""

_SLICE_NS = 100_000
"""How long a thread goes on when another one that was woken wants its processor, where Linux can be
asked for that (6.12): on a busy one a lone sample meets a handful of those."""
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
"""Numbers of the system call, for which the C library has no name."""

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
"""Parameters of glibc's mallopt."""
_KEPT_BYTES = 64 * 1024 * 1024
"""Freed memory kept for the next frames: giving it back costs a page fault for every 4 KiB."""
_GROWTH_BYTES = 4 * 1024 * 1024
_MAPPED_FROM_BYTES = 32 * 1024 * 1024


class _SchedulingAttributes(ctypes.Structure):
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


def tune_process() -> None:
    """Steady latency: few collections, quick switches between threads, memory that stays."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    # What is there now stays: the collector need not look at it with every pass.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    library = ctypes.CDLL(None)
    _shorten_slices(library)
    mallopt = getattr(library, "mallopt", None)
    if mallopt is not None:  # another C library has other habits
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_TOP_PAD, _GROWTH_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)


def _shorten_slices(library: ctypes.CDLL) -> None:
    """Of all threads there are; later ones inherit it. A kernel that does not know of it, or does
    not allow it, goes on as usual, and so does a process an operator gave another policy."""
    call = _SCHED_SETATTR.get(platform.machine())
    if call is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    attributes = _SchedulingAttributes(
        size=ctypes.sizeof(_SchedulingAttributes),
        policy=os.SCHED_OTHER,
        nice=os.getpriority(os.PRIO_PROCESS, 0),
        runtime=_SLICE_NS,
    )
    for thread in os.listdir("/proc/self/task"):
        library.syscall(call, int(thread), ctypes.byref(attributes), 0)
