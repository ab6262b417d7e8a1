"""How far another broker's clock is ahead of the one here, from pings over any paths between the
two, and how wrong that may be. Pure; fed by whoever answers pongs, asked for one-way delays.

No delay is negative, so each ping encloses the offset in an interval as wide as its round trip. The
intervals of all pings so far, widened by what clocks may drift meanwhile, intersect in one that
holds the offset however unequal the two directions are; short round trips make it narrow, so it
filters for the smallest by itself.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

MAX_DRIFT_PPM = 200.0
"""Two clocks drift apart by no more than this. Crystals stay within 50 each; a clock being slewed
faster looks like one that steps, which costs precision for a moment, no more."""
LIKELY_ASYMMETRY = 0.25
"""Of the smallest round trip one direction is taken to have at most (1 + this) halves."""
_STEP_LEAST_NS = 200_000
_STEP_SHARE = 1 / 16
_ROUNDING_NS = 2
_LATE_NS = 1_000_000_000
"""Pings over several paths may be told of in another order than answered: no clock went back."""
_SPAN_NS = 10_000_000_000
_SPANS = 12
"""The drift is fitted to the best ping of each of so many spans."""
_SPANS_LEAST = 3


@dataclass(frozen=True, slots=True)
class OffsetEstimate:
    """The other clock reads `offset_ns` more than this one: certainly within `error_ns`, unless a
    clock stepped since the last ping; within `likely_error_ns` if both directions are alike."""

    offset_ns: int
    error_ns: int
    likely_error_ns: int
    drift_ppm: float
    round_trip_ns: int
    """The smallest of late."""
    steps: int
    """How often a clock was found to have stepped."""


class ClockOffset:
    """For one pair of brokers."""

    def __init__(self, *, max_drift_ppm: float = MAX_DRIFT_PPM) -> None:
        self.steps = 0
        self._rate = max_drift_ppm * 1e-6
        self._low_ns = 0.0
        self._high_ns = 0.0
        self._at_ns: int | None = None
        """When the interval held, by the clock here; None before the first ping."""
        self._drift = 0.0
        self._round_trips: deque[tuple[int, int]] = deque()
        """(span, smallest round trip in it)."""
        self._best: deque[tuple[int, int, int, float]] = deque()
        """(span, round trip, when, offset if both directions took as long)."""

    def observe(
        self, sent_ns: int, seen_ns: int, received_ns: int, answered_ns: int | None = None
    ) -> bool:
        """A ping: sent and its answer received by the clock here, seen and answered (at once, if
        not said) by the clock there. Whether it could be used: a clock that stepped in between
        makes nonsense of it."""
        if answered_ns is None:
            answered_ns = seen_ns
        if received_ns < sent_ns or answered_ns < seen_ns:
            return False
        # Both ends are meant for the moment of receiving; the clocks drifted since they were read.
        drifted_ns = self._rate * (received_ns - sent_ns) + _ROUNDING_NS
        low_ns = answered_ns - received_ns - drifted_ns
        high_ns = seen_ns - sent_ns + drifted_ns
        if low_ns > high_ns:
            return False
        late_ns = 0 if self._at_ns is None else self._at_ns - received_ns
        if 0 < late_ns <= _LATE_NS:
            low_ns -= self._rate * late_ns
            high_ns += self._rate * late_ns
            sent_ns, received_ns = sent_ns + late_ns, received_ns + late_ns
        round_trip_ns = max(0, (received_ns - sent_ns) - (answered_ns - seen_ns))
        if self._at_ns is None or received_ns < self._at_ns:
            if self._at_ns is not None:
                self._forget()  # the clock here went back
            self._low_ns, self._high_ns = low_ns, high_ns
        else:
            old_low_ns, old_high_ns = self._interval(received_ns)
            # Queues raise one end or lower the other. Both moving the same way is a step, or a
            # change of route that cannot be told from one: the new interval alone holds then.
            shift_ns = self._shift(low_ns - old_low_ns, high_ns - old_high_ns)
            tolerance_ns = max(_STEP_LEAST_NS, round_trip_ns * _STEP_SHARE)
            if shift_ns > tolerance_ns or low_ns > old_high_ns or high_ns < old_low_ns:
                self._forget()
                self._low_ns, self._high_ns = low_ns, high_ns
            else:
                self._low_ns, self._high_ns = max(low_ns, old_low_ns), min(high_ns, old_high_ns)
        self._at_ns = received_ns
        self._remember(received_ns, round_trip_ns, (low_ns + high_ns) / 2)
        return True

    def estimate(self, now_ns: int) -> OffsetEstimate | None:
        """None before the first ping. `now_ns` by the clock here."""
        if self._at_ns is None:
            return None
        low_ns, high_ns = self._interval(now_ns)
        moved_ns = self._drift * max(0, now_ns - self._at_ns)
        offset_ns = (self._low_ns + self._high_ns) / 2 + moved_ns
        error_ns = max(high_ns - offset_ns, offset_ns - low_ns)
        width_ns = self._high_ns - self._low_ns
        drifted_ns = error_ns - width_ns / 2
        return OffsetEstimate(
            offset_ns=round(offset_ns),
            error_ns=round(error_ns) + 1,
            likely_error_ns=round(width_ns / 2 * LIKELY_ASYMMETRY + drifted_ns) + 1,
            drift_ppm=self._drift * 1e6,
            round_trip_ns=min(each[1] for each in self._round_trips),
            steps=self.steps,
        )

    def _interval(self, now_ns: int) -> tuple[float, float]:
        assert self._at_ns is not None
        widening_ns = self._rate * max(0, now_ns - self._at_ns)
        return self._low_ns - widening_ns, self._high_ns + widening_ns

    @staticmethod
    def _shift(low_ns: float, high_ns: float) -> float:
        """By how much both ends moved the same way."""
        if (low_ns > 0) != (high_ns > 0):
            return 0.0
        return min(abs(low_ns), abs(high_ns))

    def _forget(self) -> None:
        self.steps += 1
        self._best.clear()
        self._round_trips.clear()

    # ------------------------------------------------------------ drift

    def _remember(self, at_ns: int, round_trip_ns: int, offset_ns: float) -> None:
        span = at_ns // _SPAN_NS
        best = self._best
        if not best or best[-1][0] != span:
            best.append((span, round_trip_ns, at_ns, offset_ns))
            self._round_trips.append((span, round_trip_ns))
            while len(best) > _SPANS:
                best.popleft()
                self._round_trips.popleft()
            self._fit()
        elif round_trip_ns < best[-1][1]:
            best[-1] = (span, round_trip_ns, at_ns, offset_ns)
            self._round_trips[-1] = (span, round_trip_ns)

    def _fit(self) -> None:
        """The slope through the best pings of the spans that are over; kept after a step."""
        points = list(self._best)[:-1]
        if len(points) < _SPANS_LEAST:
            return
        start_ns, base_ns = points[0][2], points[0][3]
        times = [each[2] - start_ns for each in points]
        offsets = [each[3] - base_ns for each in points]
        mean_time = sum(times) / len(times)
        mean_offset = sum(offsets) / len(offsets)
        spread = sum((each - mean_time) ** 2 for each in times)
        slope = (
            sum((t - mean_time) * (o - mean_offset) for t, o in zip(times, offsets, strict=True))
            / spread
        )
        self._drift = max(-self._rate, min(self._rate, slope))
