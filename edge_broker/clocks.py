"""How far the clocks of the brokers at the other end of this edge's links are from its own, from
the pings every link sends anyway. Called by tracing; what probes tell of other edges stays out.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from edge_broker.links import Link
from gateway.plan.clock_offset import MAX_DRIFT_PPM, ClockOffset
from gateway.tunnel.router_link import RouterLink


class Clock(NamedTuple):
    """Another clock reads so much more than the one here, certainly within the error."""

    offset_ns: int
    error_ns: int

    def reversed(self) -> Clock:
        """As seen from there."""
        return Clock(-self.offset_ns, self.error_ns)

    def aged(self, seconds: float) -> Clock:
        """What was known so long ago."""
        return Clock(self.offset_ns, self.error_ns + round(seconds * MAX_DRIFT_PPM * 1e3))


class _Neighbour:
    def __init__(self, link: Link) -> None:
        self.link = link
        self.offset = ClockOffset()
        self.heard: tuple[int, int, int] | None = None
        self.clock: Clock | None = None

    def refresh(self) -> None:
        ping = self.link.clock
        if ping is not None and ping is not self.heard:
            self.heard = ping
            self.offset.observe(*ping)
        estimate = self.offset.estimate(time.time_ns())
        if estimate is not None:
            self.clock = Clock(estimate.offset_ns, estimate.error_ns)


class LinkClocks:
    """Of the links somebody has asked about."""

    def __init__(self) -> None:
        self._neighbours: dict[tuple[bool, str], _Neighbour] = {}

    def of(self, link: Link) -> Clock | None:
        """The clock at the other end; None: not known yet."""
        key = (True, link.router or "") if isinstance(link, RouterLink) else (False, link.edge)
        neighbour = self._neighbours.get(key)
        if neighbour is None:
            neighbour = self._neighbours[key] = _Neighbour(link)
            neighbour.refresh()
        elif neighbour.link is not link:
            neighbour.link = link
        return neighbour.clock

    def tick(self) -> None:
        for key, neighbour in list(self._neighbours.items()):
            if neighbour.link.is_up:
                neighbour.refresh()
            else:
                del self._neighbours[key]
