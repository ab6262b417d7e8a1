"""Steps are found where they are, noise is left alone."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from gateway.analysis.changes import Point, find_changes, find_outliers


def _series(levels: list[float], noise: float, seed: int) -> list[Point]:
    dice = random.Random(seed)
    values = [level * dice.lognormvariate(0.0, noise) for level in levels]
    return [Point(60 * n, value, 2 * value) for n, value in enumerate(values)]


@given(
    before=st.integers(5, 40),
    after=st.integers(5, 40),
    level=st.floats(1e6, 1e9),
    ratio=st.one_of(st.floats(1.6, 10), st.floats(0.1, 0.6)),
    noise=st.floats(0.0, 0.06),
    seed=st.integers(0, 1000),
)
def test_a_step_is_found_where_it_is(
    before: int, after: int, level: float, ratio: float, noise: float, seed: int
) -> None:
    series = _series([level] * before + [level * ratio] * after, noise, seed)
    assert 60 * before in [change.at_s for change in find_changes(series)]


@given(
    count=st.integers(0, 120),
    level=st.floats(1e3, 1e9),
    noise=st.floats(0.0, 0.1),
    seed=st.integers(0, 1000),
)
def test_noise_is_no_change(count: int, level: float, noise: float, seed: int) -> None:
    series = _series([level] * count, noise, seed)
    assert find_changes(series) == []
    assert find_outliers(series, []) == []


def test_a_single_bad_period_is_an_outlier_and_no_change() -> None:
    series = _series([20e6] * 30, 0.05, 1)
    series[17] = Point(17 * 60, 20e6, 400e6)
    assert find_changes(series) == []
    (outlier,) = find_outliers(series, [])
    assert (outlier.at_s, outlier.p99_ns) == (17 * 60, 400e6)
    assert 30e6 < outlier.usual_ns < 50e6
