"""What this edge, as a receiver, tells senders of deadline topics about their paths: when batches
arrived over which link, and answers to probes. Called by egress for every batch that asks.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from edge_broker.clocks import Clock
from edge_broker.links import Link
from gateway.tunnel import messages
from gateway.tunnel.frames import Peer
from gateway.tunnel.messages import Probe

_MOST_DELAYS = 512
"""In one report; of more the later ones are told."""
_MOST_ORIGINS = 4096
"""Edges something is known of, the last ones to appear: more than a fabric has, and strangers cost
little."""


class _Tally:
    """What came over one link from one life of an edge."""

    def __init__(self) -> None:
        self.link: Link | None = None
        self.total = 0
        self.newest_ns = 0
        """Sent last of what came since the last report: clocks may be set back."""
        self.delays_us: list[int] = []


class _Origin:
    """An edge in its present life."""

    def __init__(self, life: Peer) -> None:
        self.life = life
        self.tallies: dict[str, _Tally] = {}
        """By link."""


class Arrivals:
    """All reports of one edge."""

    def __init__(self, me: Peer, ask: Callable[[], object]) -> None:
        """`ask` is called when there is something to report: `reports` is to be called soon."""
        self._me = me
        self._ask = ask
        self._origins: OrderedDict[str, _Origin] = OrderedDict()
        self._due: dict[tuple[Peer, str], _Tally] = {}
        self._clocks: OrderedDict[str, tuple[Clock, float]] = OrderedDict()
        """What each edge last told of its own clock, and when."""

    def note(
        self,
        origin: Peer,
        via: str,
        link: Link,
        sent_ns: int,
        arrived_ns: int,
        *,
        is_current: bool = True,
    ) -> None:
        """A batch came, or a copy of one. `is_current`: from a life of the edge that lasts, for all
        that is known; what an earlier one left behind says nothing of the paths of a later one."""
        known = self._origins.get(origin.edge)
        if known is None or known.life != origin:
            if known is not None and not is_current:
                return
            known = self._begin_life(origin)
        tally = known.tallies.get(via)
        if tally is None:
            tally = known.tallies[via] = _Tally()
        tally.link = link
        tally.total += 1
        tally.newest_ns = max(tally.newest_ns, sent_ns)
        tally.delays_us.append((arrived_ns - sent_ns) // 1000)
        self._due[origin, via] = tally
        self._ask()

    def answer(self, probe: Probe, link: Link) -> None:
        if probe.clock_error_ns:
            told = Clock(probe.clock_offset_ns, probe.clock_error_ns).reversed()
            self._clocks[probe.sender.edge] = told, time.monotonic()
            if len(self._clocks) > _MOST_ORIGINS:
                self._clocks.popitem(last=False)
        link.send(messages.probe_answer(probe, self._me, time.time_ns()))

    def clock_offset_ns(self, edge: str) -> int:
        """By how much the clock here is ahead of that edge's; 0 while unknown."""
        told = self._clocks.get(edge)
        return 0 if told is None else -told[0].offset_ns

    def clock(self, edge: str, now_s: float) -> Clock | None:
        """That edge's clock, as it said; None: it has not."""
        told = self._clocks.get(edge)
        return None if told is None else told[0].aged(now_s - told[1])

    def _begin_life(self, origin: Peer) -> _Origin:
        self._forget(origin.edge)
        if len(self._origins) >= _MOST_ORIGINS:
            self._forget(next(iter(self._origins)))
        known = self._origins[origin.edge] = _Origin(origin)
        return known

    def _forget(self, edge: str) -> None:
        known = self._origins.pop(edge, None)
        if known is not None:
            for via in known.tallies:
                self._due.pop((known.life, via), None)

    def reports(self) -> dict[Link, list[bytes]]:
        """What came since the last call, as frames for where it came from."""
        due, self._due = self._due, {}
        frames: dict[Link, list[bytes]] = {}
        for (origin, _), tally in due.items():
            delays_us, tally.delays_us = tally.delays_us, []
            newest_ns, tally.newest_ns = tally.newest_ns, 0
            assert tally.link is not None
            frame = messages.arrivals(
                origin.edge, self._me, newest_ns, tally.total, delays_us[-_MOST_DELAYS:]
            )
            frames.setdefault(tally.link, []).append(frame)
        return frames
