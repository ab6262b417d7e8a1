"""How many samples a reader may hold, while it is read: DDS bounds it by samples once and for all,
memory is made of bytes, and how large samples are shows when they come. So the bound is changed
where Cyclone keeps it. Called by ingress sources. Contract-tested.
"""

from __future__ import annotations

import ctypes as ct
import struct

from edge_broker.dds import native

_FEWEST_SAMPLES = 16
_UNLIMITED = -1
_ENTITY_WORDS = 160
"""A reader's entity is searched so far for the pointer to its history,"""
_HISTORY_BYTES = 256
"""and that one so far for the pointer back and the limits."""
_DEPTH_AFTER_BACK = 32
"""There the depth of a history that keeps the last follows, behind four pointers."""


class ReaderRoom:
    """Of a reader made with `most_samples`, to be used as long as it lives. A reliable one pushes
    back when it is full, another one forgets the oldest."""

    def __init__(self, reader: int, most_samples: int, most_bytes: int) -> None:
        self._most_samples = most_samples
        self._most_bytes = most_bytes
        self._usual_bytes = most_bytes // most_samples
        """Samples up to this size may be as many as there may ever be."""
        self._limit, self._is_depth = _find(reader, most_samples)
        self.samples = most_samples
        """As it is now."""

    def fit(self, sample_bytes: int, *, is_empty: bool) -> None:
        """Samples have this size lately; the reader was just emptied, or not. What it holds beyond
        the new bound stays."""
        if sample_bytes <= self._usual_bytes and self.samples == self._most_samples:
            return
        room = self._most_bytes // max(sample_bytes, 1)
        room = max(_FEWEST_SAMPLES, min(self._most_samples, room))
        if self._limit is None or room == self.samples or (self._is_depth and not is_empty):
            return  # a depth that is exceeded already would bound nothing
        self._limit.value = self.samples = room


def _find(reader: int, most_samples: int) -> tuple[ct.c_int32 | None, bool]:
    """The bound, and whether it is the depth of each instance; None when this version of Cyclone
    keeps it elsewhere: then it stays as it was made."""
    limits = struct.pack("=iii", _UNLIMITED, most_samples, _UNLIMITED)
    depth = struct.pack("=i", most_samples)
    with native.pinned(reader) as entity:
        if entity is None:
            return None, False
        back = struct.pack("=Q", ct.addressof(entity.contents))
        for place in range(_ENTITY_WORDS):
            address = entity[place]
            history = native.bytes_at(address, _HISTORY_BYTES)
            back_at = history.find(back)
            if back_at < 0:
                continue
            at = history.find(limits, 0, back_at)
            if at >= 0 and at % 4 == 0:
                return ct.c_int32.from_address(address + at + 4), False
            at = back_at + _DEPTH_AFTER_BACK
            if history[at : at + 4] == depth:
                return ct.c_int32.from_address(address + at), True
    return None, False
