"""When to rest for a moment before looking for data again. Single samples of very many topics cost
a wake-up and a message each, here and in every broker behind; what comes together meanwhile travels
together. Pure; called by the take pump.
"""

from __future__ import annotations

REST_S = 0.001
_HURRIED_S = 0.0004
"""Turns that follow each other so closely on average: latency is lost to them anyway."""
_WORTH_TOPICS = 3
_WEIGHT = 0.02
_LONGEST_S = 0.02


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
