"""When to rest for a moment before looking for data again. Single samples of very many topics cost
a wake-up and a message each, here and in every broker behind, and small batches of a flood nearly
as much as large ones; what comes together meanwhile travels together. Pure; called by take_pump.py.
"""

from __future__ import annotations

REST_S = 0.001
_HURRIED_S = 0.0004
"""Turns that follow each other so closely on average: latency is lost to them anyway."""
_WORTH_TOPICS = 3
_WEIGHT = 0.02
_LONGEST_S = 0.02

_FLOOD_SAMPLES = 64
_FLOOD_BYTES = 512 * 1024
"""So much at once is a flood."""
_STEADY_SAMPLES = 16
_STEADY_S = 0.002
_STEADY_TURNS = 16
"""So many samples in each of so many turns, so close to each other, are one too: where every stage
waits for a processor each finds little at once, and by that they keep each other busy."""


class Pace:
    """A trickle never rests, and floods come together by other means."""

    def __init__(self) -> None:
        self._turn_s = 0.0
        self._interval_s = _LONGEST_S
        self._is_resting = False

    def forget(self) -> None:
        """Something floods."""
        self._interval_s = _LONGEST_S
        self._is_resting = False

    def should_rest(self, now_s: float, trickling: int) -> bool:
        """After a turn in which so many topics gave a few samples each."""
        interval_s = min(now_s - self._turn_s, _LONGEST_S)
        self._turn_s = now_s
        if self._is_resting:
            # Turns are rare now, whatever comes: was it worth it?
            self._is_resting = trickling >= _WORTH_TOPICS
        else:
            self._interval_s += _WEIGHT * (interval_s - self._interval_s)
            self._is_resting = self._interval_s < _HURRIED_S
        return self._is_resting


class Flood:
    """Tells floods from trickles, whatever number of topics they come in."""

    def __init__(self) -> None:
        self._turn_s = 0.0
        self._steady_turns = 0

    def has(self, now_s: float, samples: int, size: int) -> bool:
        """After a turn that took so much and left nothing: whether that is part of one."""
        interval_s = now_s - self._turn_s
        self._turn_s = now_s
        is_steady = samples >= _STEADY_SAMPLES and interval_s < _STEADY_S
        self._steady_turns = self._steady_turns + 1 if is_steady else 0
        return (
            samples >= _FLOOD_SAMPLES or size >= _FLOOD_BYTES or self._steady_turns >= _STEADY_TURNS
        )
