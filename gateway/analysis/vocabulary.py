"""Words and numbers all of the analysis shares: hops, histogram bins, confidence bounds. Pure; the
Spark expressions in facts.py and tables.py say the same as `bin_of` and `value_of` here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hop:
    name: str
    text: str
    """For people who have never seen ddswan."""


HOPS: tuple[Hop, ...] = (
    Hop("source_lan", "publisher to its edge, inside the origin LAN"),
    Hop("origin_edge", "waiting in the origin edge (window, batching)"),
    Hop("to_router", "origin edge to router, over the network"),
    Hop("router", "inside the router"),
    Hop("from_router", "router to destination edge, over the network"),
    Hop("direct", "edge to edge, with no router's times in between"),
    Hop("destination_edge", "destination edge, until written into DDS (order, backpressure)"),
)
HOP_NAMES = tuple(hop.name for hop in HOPS)
BETWEEN_EDGES = ("to_router", "router", "from_router", "direct")
GATEWAY = "gateway"
"""All of ddswan: from taken out of DDS to written into DDS."""
END_TO_END = "end_to_end"
"""From the source timestamp to written into DDS."""
ARRIVAL = "arrival"
"""From the source timestamp to the arrival of a copy that was sent on several paths."""

GROWTH = 1.02
"""Each bin's upper end over its lower: a percentile is at most 1 % off, and histograms of any
two periods, files or machines can be added."""
SMALLEST_NS = 1_000
_LOG_GROWTH = math.log(GROWTH)


def bin_of(value_ns: float) -> int:
    """The histogram bin of a duration; bin 0 is everything up to a microsecond."""
    if value_ns <= SMALLEST_NS:
        return 0
    return math.ceil(math.log(value_ns / SMALLEST_NS) / _LOG_GROWTH)


def value_of(index: int) -> float:
    """The duration that stands for a bin: nobody in it is more than 1 % away."""
    if index <= 0:
        return float(SMALLEST_NS)
    return float(SMALLEST_NS * GROWTH**index * 2.0 / (1.0 + GROWTH))


_Z = 1.96


def confidence(hits: float, of: float, independent: float | None = None) -> tuple[float, float]:
    """Between which values a rate lies in 19 of 20 cases (Wilson). Samples of one batch share
    their fate, so `independent` (batches) counts as evidence, not samples."""
    if of <= 0:
        return 0.0, 1.0
    n = max(1.0, of if independent is None else min(independent, of))
    rate = hits / of
    middle = (rate + _Z * _Z / (2 * n)) / (1 + _Z * _Z / n)
    half = _Z / (1 + _Z * _Z / n) * math.sqrt(rate * (1 - rate) / n + _Z * _Z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)
