"""What a broker asks of its interpreter and allocator: steady latency rather than least memory.
Called once by the brokers' app.py, when everything lasting has been made.
"""

from __future__ import annotations

import ctypes
import gc
import sys

from gateway import slices

_SWITCH_INTERVAL_S = 0.0005
"""The loop and foreign threads share the interpreter: the usual 5 ms would be a latency."""

_GC_THRESHOLD = 50_000
"""Samples are no cycles, but they count as allocations: the usual 700 would run the collector
several times for each batch."""

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
"""Parameters of glibc's mallopt."""
_KEPT_BYTES = 64 * 1024 * 1024
"""Freed memory kept for the next frames: giving it back costs a page fault for every 4 KiB."""
_GROWTH_BYTES = 4 * 1024 * 1024
_MAPPED_FROM_BYTES = 32 * 1024 * 1024


def tune_process() -> None:
    """Steady latency: few collections, quick switches between threads, memory that stays."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    # What is there now stays: the collector need not look at it with every pass.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    slices.shorten_all()
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # another C library has other habits
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_TOP_PAD, _GROWTH_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
