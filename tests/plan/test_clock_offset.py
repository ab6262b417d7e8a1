"""Clock offsets: the true one lies within the bound, however the delays are."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.plan.clock_offset import ClockOffset

MS = 1_000_000
S = 1_000_000_000


class Clocks:
    """Ours is the true time; theirs is `offset_ns` ahead and drifts."""

    def __init__(self, offset_ns: int, drift_ppm: float = 0.0) -> None:
        self.offset_ns = offset_ns
        self.drift = drift_ppm * 1e-6
        self.start_ns = 1_700_000_000 * S
        self.now_ns = self.start_ns

    def ahead_ns(self, at_ns: int) -> int:
        return round(self.offset_ns + self.drift * (at_ns - self.start_ns))

    def ping(self, clock: ClockOffset, there_ns: int, back_ns: int, answering_ns: int = 0) -> bool:
        sent_ns = self.now_ns
        arrived_ns = sent_ns + there_ns
        left_ns = arrived_ns + answering_ns
        self.now_ns = left_ns + back_ns
        return clock.observe(
            sent_ns,
            arrived_ns + self.ahead_ns(arrived_ns),
            self.now_ns,
            left_ns + self.ahead_ns(left_ns),
        )

    def is_within_bound(self, clock: ClockOffset) -> bool:
        estimate = clock.estimate(self.now_ns)
        assert estimate is not None
        return abs(self.ahead_ns(self.now_ns) - estimate.offset_ns) <= estimate.error_ns


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    offset_ns=st.integers(-(10**12), 10**12),
    drift_ppm=st.floats(-190, 190),
    there_ns=st.integers(0, 300 * MS),
    back_ns=st.integers(0, 300 * MS),
    jitter_ns=st.integers(1, 100 * MS),
    interval_ns=st.integers(S // 10, 30 * S),
    seed=st.integers(0, 10**6),
)
def test_the_true_offset_is_within_the_bound_however_unequal_the_directions(
    offset_ns: int,
    drift_ppm: float,
    there_ns: int,
    back_ns: int,
    jitter_ns: int,
    interval_ns: int,
    seed: int,
) -> None:
    random, clock = Random(seed), ClockOffset()
    clocks = Clocks(offset_ns, drift_ppm)
    assert clock.estimate(clocks.now_ns) is None
    for _ in range(60):
        clocks.ping(
            clock,
            there_ns + round(random.expovariate(1 / jitter_ns)),
            back_ns + round(random.expovariate(1 / jitter_ns)),
            random.randrange(MS),
        )
        assert clocks.is_within_bound(clock)
        clocks.now_ns += random.randrange(2 * interval_ns)
        assert clocks.is_within_bound(clock)


def test_jitter_is_filtered_out_and_drift_is_followed() -> None:
    random, clock, clocks = Random(3), ClockOffset(), Clocks(5 * MS, 50.0)
    worst_ns = 0
    for i in range(600):
        there_ns, back_ns = (
            20 * MS + round(random.expovariate(1 / (5 * MS))) * (random.random() < 0.8)
            for _ in range(2)
        )
        clocks.ping(clock, there_ns, back_ns)
        estimate = clock.estimate(clocks.now_ns)
        assert estimate is not None and clocks.is_within_bound(clock)
        if i > 20:
            error_ns = abs(clocks.ahead_ns(clocks.now_ns) - estimate.offset_ns)
            worst_ns = max(worst_ns, error_ns)
            assert error_ns <= estimate.likely_error_ns < estimate.error_ns < 25 * MS
        clocks.now_ns += S
    assert worst_ns < 2 * MS
    estimate = clock.estimate(clocks.now_ns)
    assert estimate is not None
    assert 30 < estimate.drift_ppm < 70
    assert 40 * MS <= estimate.round_trip_ns < 42 * MS
    assert estimate.steps == 0
    # Without pings the bound grows, and the drift is still followed.
    clocks.now_ns += 60 * S
    later = clock.estimate(clocks.now_ns)
    assert later is not None and later.error_ns > estimate.error_ns + 10 * MS
    assert abs(clocks.ahead_ns(clocks.now_ns) - later.offset_ns) < 4 * MS


@pytest.mark.parametrize("step_ns", [-3600 * S, -S, -30 * MS, 10 * MS, 45 * MS, 70 * MS, S])
def test_a_step_of_the_other_clock_is_found_within_a_few_pings(step_ns: int) -> None:
    random, clock, clocks = Random(4), ClockOffset(), Clocks(-2 * S)

    def ping() -> None:
        jitters = [round(random.expovariate(1 / (2 * MS))) for _ in range(2)]
        clocks.ping(clock, 20 * MS + jitters[0], 40 * MS + jitters[1])
        clocks.now_ns += S

    for _ in range(50):
        ping()
        assert clocks.is_within_bound(clock)
    clocks.offset_ns += step_ns
    for _ in range(3):
        ping()
    for _ in range(50):
        ping()
        assert clocks.is_within_bound(clock)
    estimate = clock.estimate(clocks.now_ns)
    assert estimate is not None and estimate.steps >= 1
    assert abs(estimate.offset_ns - clocks.ahead_ns(clocks.now_ns)) < 12 * MS


@pytest.mark.parametrize("step_ns", [-3600 * S, -45 * MS, 45 * MS, 3600 * S])
def test_a_step_of_the_own_clock_is_a_step_too(step_ns: int) -> None:
    clock, clocks = ClockOffset(), Clocks(0)
    for _ in range(20):
        clocks.ping(clock, 20 * MS, 20 * MS)
        clocks.now_ns += S
    # Ours is the reference: stepping it shifts the time and takes the other one along.
    clocks.now_ns += step_ns
    clocks.offset_ns -= step_ns
    for _ in range(3):
        clocks.ping(clock, 20 * MS, 20 * MS)
        clocks.now_ns += S
    assert clocks.is_within_bound(clock)
    estimate = clock.estimate(clocks.now_ns)
    assert estimate is not None and abs(estimate.offset_ns + step_ns) < MS


def test_the_fastest_path_narrows_what_the_slow_one_leaves_open() -> None:
    clock, clocks = ClockOffset(), Clocks(7 * MS)
    clocks.ping(clock, 280 * MS, 250 * MS)
    wide = clock.estimate(clocks.now_ns)
    clocks.ping(clock, 30 * MS, 30 * MS)
    narrow = clock.estimate(clocks.now_ns)
    assert wide is not None and narrow is not None
    assert wide.error_ns > 250 * MS and narrow.error_ns < 31 * MS
    clocks.ping(clock, 280 * MS, 250 * MS)
    again = clock.estimate(clocks.now_ns)
    assert again is not None and again.error_ns < 31 * MS and again.steps == 0


def test_nonsense_is_refused() -> None:
    clock = ClockOffset()
    assert not clock.observe(100, 50, 90)
    assert not clock.observe(0, 500, 10, 400)
    assert not clock.observe(0, 500, 10, 600)
    assert clock.estimate(0) is None
    assert clock.observe(0, 500, 10)
    estimate = clock.estimate(10)
    assert estimate is not None and abs(estimate.offset_ns - 495) <= 1


def test_a_ping_told_of_late_forgets_nothing() -> None:
    """Answers over two paths cross on their way here."""
    ms = 1_000_000
    clock = ClockOffset()
    assert clock.observe(0, 60 * ms, 120 * ms)
    assert clock.observe(-400 * ms, -150 * ms, 100 * ms)  # was answered before
    estimate = clock.estimate(120 * ms)
    assert estimate is not None and estimate.steps == 0
    assert abs(estimate.offset_ns) <= estimate.error_ns <= 61 * ms
    # It does tell when a clock stepped.
    assert clock.observe(40 * ms, 600 * ms, 110 * ms)
    estimate = clock.estimate(120 * ms)
    assert estimate is not None and estimate.steps == 1
    assert abs(estimate.offset_ns - 525 * ms) <= estimate.error_ns
