"""How much each mirror may have under way in DDS when many write at once: the readers of an
application share a socket buffer, and what overflows it is sent again. Pure; called by write_pump.
"""

from __future__ import annotations

from collections.abc import Hashable

_TOGETHER_BYTES = 1_000_000
"""A reader's socket buffer is some 2 MB where the system allows it; small packets take twice their
size in it."""
_LEAST_BYTES = 16_000
_LOOK_BACK_S = 0.05
_FULL_S = 0.001
_MOST_FULL_S = 0.008
_CROWD = 4


class Flight:
    """The writers at work lately, and what follows for each."""

    def __init__(self) -> None:
        self._before: set[Hashable] = set()
        self._now: set[Hashable] = set()
        self._turn_s = 0.0
        self._writers = 1

    def share(self, writer: Hashable, now_s: float) -> int | None:
        """The bytes this one, which is about to write, may have under way; None: it is alone."""
        if now_s >= self._turn_s:
            is_recent = now_s < self._turn_s + _LOOK_BACK_S
            self._before = self._now if is_recent else set()
            self._now = set()
            self._turn_s = now_s + _LOOK_BACK_S
        self._now.add(writer)
        self._writers = max(len(self._before), len(self._now))
        if self._writers == 1:
            return None
        return max(_LEAST_BYTES, _TOGETHER_BYTES // self._writers)

    @property
    def is_crowded(self) -> bool:
        """Whether so many are at work that each one's pace matters little."""
        return self._writers > _CROWD

    @property
    def patience_s(self) -> float:
        """How long a full writer is left alone. Each try of one is a heartbeat to its readers, and
        an answer from each: with many writers they would be most of the traffic."""
        return min(_MOST_FULL_S, max(1.0, self._writers / _CROWD) * _FULL_S)
