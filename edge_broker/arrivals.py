"""What this edge, as a receiver, tells senders of deadline topics about their paths: when batches
arrived over which link, and answers to probes. Called by egress for every batch that asks.
"""

from __future__ import annotations

import asyncio
import time

from edge_broker.clocks import Clock
from edge_broker.links import Link
from gateway.tunnel import messages
from gateway.tunnel.frames import Peer
from gateway.tunnel.messages import Probe

_REPORT_AFTER_S = 0.025
_MOST_DELAYS = 512
"""In one report; of more the later ones are told."""


class _Tally:
    """What came over one link from one life of an edge."""

    def __init__(self) -> None:
        self.link: Link | None = None
        self.total = 0
        self.newest_ns = 0
        self.delays_us: list[int] = []


class Arrivals:
    """All reports of one edge."""

    def __init__(self, me: Peer) -> None:
        self._me = me
        self._tallies: dict[tuple[Peer, str], _Tally] = {}
        self._due: dict[tuple[Peer, str], _Tally] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._clocks: dict[str, tuple[Clock, float]] = {}
        """What each edge last told of its own clock, and when."""

    def note(self, origin: Peer, via: str, link: Link, sent_ns: int, arrived_ns: int) -> None:
        """A batch came, or a copy of one."""
        key = (origin, via)
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = self._tally_of_new_life(origin, via)
        tally.link = link
        tally.total += 1
        tally.newest_ns = max(tally.newest_ns, sent_ns)
        tally.delays_us.append((arrived_ns - sent_ns) // 1000)
        self._due[key] = tally
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_REPORT_AFTER_S, self._report)

    def answer(self, probe: Probe, link: Link) -> None:
        if probe.clock_error_ns:
            told = Clock(probe.clock_offset_ns, probe.clock_error_ns).reversed()
            self._clocks[probe.sender.edge] = told, time.monotonic()
        link.send(messages.probe_answer(probe, self._me, time.time_ns()))

    def clock_offset_ns(self, edge: str) -> int:
        """By how much the clock here is ahead of that edge's; 0 while unknown."""
        told = self._clocks.get(edge)
        return 0 if told is None else -told[0].offset_ns

    def clock(self, edge: str, now_s: float) -> Clock | None:
        """That edge's clock, as it said; None: it has not."""
        told = self._clocks.get(edge)
        return None if told is None else told[0].aged(now_s - told[1])

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tally_of_new_life(self, origin: Peer, via: str) -> _Tally:
        for key in [key for key in self._tallies if key[0].edge == origin.edge]:
            if key[0] != origin:
                del self._tallies[key]
                self._due.pop(key, None)
        return _Tally()

    def _report(self) -> None:
        self._timer = None
        due, self._due = self._due, {}
        for (origin, _), tally in due.items():
            delays_us, tally.delays_us = tally.delays_us, []
            assert tally.link is not None
            tally.link.send(
                messages.arrivals(
                    origin.edge, self._me, tally.newest_ns, tally.total, delays_us[-_MOST_DELAYS:]
                )
            )
