"""Where a series of latencies changes its level, and which periods stand out from theirs. Pure;
called by conclude.py with one series per topic and LAN pair.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_LEAST_PERIODS = 4
"""A level lasts at least so long; anything shorter is an outlier."""
_LEAST_RATIO = 1.3
_LEAST_STEP_NS = 100_000
_PENALTY = 6.0
"""How many times the noise a split must explain; 6 finds no change in noise of any length seen in
the tests, and every step of five times the noise."""
_OUTLIER_RATIO = 2.0
_OUTLIER_DEVIATIONS = 6.0


@dataclass(frozen=True, slots=True)
class Point:
    """One period."""

    at_s: int
    p50_ns: float
    p99_ns: float


@dataclass(frozen=True, slots=True)
class ChangePoint:
    at_s: int
    """Start of the first period of the new level."""
    before_ns: float
    after_ns: float
    """Medians of the periods' medians."""


@dataclass(frozen=True, slots=True)
class Outlier:
    at_s: int
    p99_ns: float
    usual_ns: float


def find_changes(series: Sequence[Point]) -> list[ChangePoint]:
    """Steps of the median, oldest first: binary segmentation of its logarithm."""
    levels = [math.log(max(point.p50_ns, 1.0)) for point in series]
    edges = [0, *_split(levels, 0, len(levels), _noise(levels)), len(levels)]
    found = []
    for start, middle, end in zip(edges, edges[1:], edges[2:], strict=False):
        before = statistics.median(point.p50_ns for point in series[start:middle])
        after = statistics.median(point.p50_ns for point in series[middle:end])
        is_large = max(before, after) >= _LEAST_RATIO * min(before, after)
        if is_large and abs(after - before) >= _LEAST_STEP_NS:
            found.append(ChangePoint(series[middle].at_s, before, after))
    return found


def find_outliers(series: Sequence[Point], changes: Sequence[ChangePoint]) -> list[Outlier]:
    """Periods whose 99th percentile is far above the usual one of their level, worst first."""
    starts = [change.at_s for change in changes]
    levels: dict[int, list[Point]] = {}
    for point in series:
        levels.setdefault(sum(start <= point.at_s for start in starts), []).append(point)
    found = []
    for points in levels.values():
        if len(points) < _LEAST_PERIODS:
            continue
        logs = [math.log(max(point.p99_ns, 1.0)) for point in points]
        usual = statistics.median(logs)
        deviation = statistics.median(abs(value - usual) for value in logs)
        limit = usual + max(math.log(_OUTLIER_RATIO), _OUTLIER_DEVIATIONS * deviation)
        found += [
            Outlier(point.at_s, point.p99_ns, math.exp(usual))
            for point, value in zip(points, logs, strict=True)
            if value > limit
        ]
    return sorted(found, key=lambda outlier: outlier.usual_ns / outlier.p99_ns)


def _noise(levels: Sequence[float]) -> float:
    """Standard deviation around the levels, from neighbours' differences: steps do not count."""
    if len(levels) < 2:
        return 0.0
    steps = [abs(b - a) for a, b in itertools.pairwise(levels)]
    return max(statistics.median(steps) / 0.954, 0.01)  # of the difference of two normal ones


def _split(levels: Sequence[float], start: int, end: int, noise: float) -> list[int]:
    if end - start < 2 * _LEAST_PERIODS:
        return []
    total = sum(levels[start:end])
    left, best_gain, best = 0.0, 0.0, 0
    for at in range(start + 1, end):
        left += levels[at - 1]
        if at - start < _LEAST_PERIODS or end - at < _LEAST_PERIODS:
            continue
        n, m = at - start, end - at
        gain = n * m / (n + m) * (left / n - (total - left) / m) ** 2
        if gain > best_gain:
            best_gain, best = gain, at
    if best_gain <= _PENALTY * noise * noise * math.log(max(len(levels), 8)):
        return []
    return [*_split(levels, start, best, noise), best, *_split(levels, best, end, noise)]
