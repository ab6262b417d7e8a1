"""From the /metrics pages of an edge to what crosses the WAN into its LAN: rates, latency
percentiles and paths of every route, over the last few seconds. Pure; live.py brings the pages.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

WINDOW_S = 5.0
"""What rates and percentiles are taken over: long enough for them, short enough to watch."""

SAMPLES = "ddswan_samples_out_total"
BYTES = "ddswan_bytes_out_total"
DUPLICATES = "ddswan_samples_duplicate_total"
DEADLINE_SAMPLES = "ddswan_deadline_samples_total"
DEADLINE_MISSES = "ddswan_deadline_misses_total"
LATENCY = "ddswan_end_to_end_latency_seconds_bucket"
BATCHES_SENT = "ddswan_batches_sent_total"
START = "process_start_time_seconds"
USED_FAMILIES = frozenset(
    {
        *(SAMPLES, BYTES, DUPLICATES, DEADLINE_SAMPLES, DEADLINE_MISSES),
        *(LATENCY, BATCHES_SENT, START),
    }
)

_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n"}
_KNOWN_SLACK = 1000


class Series(NamedTuple):
    """One line of a page that is looked at; labels it does not have are empty."""

    name: str
    topic: str = ""
    peer_lan: str = ""
    path: str = ""
    upper_s: float = math.inf
    """Of a histogram's bucket."""


class Route(NamedTuple):
    topic: str
    from_lan: str
    to_lan: str


class Percentile(NamedTuple):
    seconds: float
    is_beyond: bool = False
    """It is more than that: the histogram ends there."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one route carries."""

    samples_per_s: float
    bytes_per_s: float
    duplicates_per_s: float
    misses_per_s: float | None
    """None: its writers offer no deadline."""
    p50: Percentile | None
    """Half of the batches took no longer; None: there were none."""
    p99: Percentile | None
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """One page."""

    at_s: float
    started_s: float
    """When the broker's process began, and its counters with it."""
    values: Mapping[Series, float]


class PageReader:
    """Reads the pages of one broker. What a line stands for is remembered from page to page: an
    edge with many topics has tens of thousands of lines."""

    def __init__(self) -> None:
        self._known: dict[str, Series | None] = {}

    def read(self, page: str, at_s: float) -> Reading:
        """Raises ValueError when this is no page of metrics."""
        lines = page.split("\n")
        known = self._known
        if len(known) > 2 * len(lines) + _KNOWN_SLACK:
            known.clear()  # most of it is gone from the page
        values: dict[Series, float] = {}
        for line in lines:
            identity, _, value = line.rpartition(" ")
            try:
                series = known[identity]
            except KeyError:
                series = known[identity] = _interpret(identity)
            if series is not None:
                values[series] = float(value)
        start = values.pop(Series(START), None)
        if start is None:
            raise ValueError(f"it has no {START}")
        return Reading(at_s, start, values)


def _interpret(identity: str) -> Series | None:
    """None for comments and for what is not used."""
    name, _, rest = identity.partition("{")
    if name not in USED_FAMILIES:
        return None
    labels = {
        label: _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), text)
        for label, text in _LABEL.findall(rest)
    }
    return Series(
        name,
        labels.get("topic", ""),
        labels.get("peer_lan", ""),
        labels.get("path", ""),
        float(labels.get("le", "inf")),
    )


@dataclass(frozen=True, slots=True)
class Increase:
    """What was counted meanwhile."""

    seconds: float
    by_series: Mapping[Series, float]


class History:
    """The readings of one broker that are not older than the window, and the one before."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._readings: deque[Reading] = deque()

    def add(self, reading: Reading) -> None:
        readings = self._readings
        if readings and (
            readings[-1].started_s != reading.started_s or readings[-1].at_s >= reading.at_s
        ):
            readings.clear()  # another life: nothing can be compared
        readings.append(reading)
        while len(readings) > 2 and reading.at_s - readings[1].at_s >= self._window_s:
            readings.popleft()

    def clear(self) -> None:
        self._readings.clear()

    def increase(self) -> Increase | None:
        """None until there is something to compare. A series that is new began at 0; one that fell
        was retired and began again."""
        if len(self._readings) < 2:
            return None
        first, last = self._readings[0], self._readings[-1]
        before = first.values
        return Increase(
            last.at_s - first.at_s,
            {
                series: value - old if (old := before.get(series, 0.0)) <= value else value
                for series, value in last.values.items()
            },
        )


class _Sums:
    """What the edges of one LAN tell of one route, per second."""

    def __init__(self) -> None:
        self.rates: dict[str, float] = {}
        self.buckets: dict[float, float] = {}
        self.paths: set[str] = set()

    def add(self, series: Series, per_s: float) -> None:
        if series.name == LATENCY:
            self.buckets[series.upper_s] = self.buckets.get(series.upper_s, 0.0) + per_s
            return
        self.rates[series.name] = self.rates.get(series.name, 0.0) + per_s
        if series.name == DEADLINE_SAMPLES and per_s > 0:
            self.paths.add(series.path)

    def traffic(self, paths_sent: Iterable[str]) -> Traffic:
        samples_per_s = self.rates.get(SAMPLES, 0.0)
        has_deadline = DEADLINE_SAMPLES in self.rates
        paths = self.paths or (paths_sent if samples_per_s > 0 else ())
        return Traffic(
            samples_per_s=samples_per_s,
            bytes_per_s=self.rates.get(BYTES, 0.0),
            duplicates_per_s=self.rates.get(DUPLICATES, 0.0),
            misses_per_s=self.rates.get(DEADLINE_MISSES, 0.0) if has_deadline else None,
            p50=percentile(self.buckets, 0.50),
            p99=percentile(self.buckets, 0.99),
            paths=tuple(sorted(paths)),
        )


def traffic_of(increases: Iterable[tuple[str, Increase]]) -> dict[Route, Traffic]:
    """What every route carries, from what the edges of each LAN counted; several edges of a LAN
    add up. The path is told by deadline topics for each route, by others for the publishing LAN."""
    sums: dict[Route, _Sums] = {}
    sent: dict[tuple[str, str], set[str]] = {}
    for lan, increase in increases:
        for series, count in increase.by_series.items():
            if series.name == BATCHES_SENT:
                if count > 0:
                    sent.setdefault((series.topic, lan), set()).add(series.path)
            else:
                route = Route(series.topic, series.peer_lan, lan)
                found = sums.get(route)
                if found is None:
                    found = sums[route] = _Sums()
                found.add(series, count / increase.seconds)
    return {
        route: found.traffic(sent.get((route.topic, route.from_lan), ()))
        for route, found in sums.items()
    }


def percentile(buckets: Mapping[float, float], share: float) -> Percentile | None:
    """What that share of the observations does not exceed, from counts by upper bound, each
    counting those below it too. Within a bucket they are taken to lie evenly, as PromQL does."""
    bounds = sorted(buckets.items())
    total = bounds[-1][1] if bounds else 0.0
    if total <= 0:
        return None
    rank = share * total
    for (lower_s, below), (upper_s, up_to) in pairwise([(0.0, 0.0), *bounds]):
        if up_to >= rank and up_to > below:
            if math.isinf(upper_s):
                return Percentile(lower_s, is_beyond=True)
            return Percentile(lower_s + (upper_s - lower_s) * (rank - below) / (up_to - below))
    return Percentile(bounds[-1][0])  # of rounding
