"""What this edge, as a sender, knows of the paths to each other edge: how long they take, whether
they stall, how far the clocks are apart. Learns from what the other edge reports and from probes;
shared by all topics. Called by outflows with a deadline, by arriving messages and by a tick.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import Any

from edge_broker.known_path import OpenPath, Path
from edge_broker.links import DATAGRAMS, EXPRESS, Links, Way
from gateway.observe.logs import get_logger
from gateway.plan.clock_offset import ClockOffset, OffsetEstimate
from gateway.plan.datagram_choice import Counts, DatagramChoice
from gateway.tunnel import messages
from gateway.tunnel.express_link import ExpressLink
from gateway.tunnel.frames import Peer
from gateway.tunnel.messages import Arrivals, ProbeAnswer

_log = get_logger("edge.paths")

_FIRST_PROBES_S = 0.1
"""Until the clocks are known nothing else is."""
_CLOCK_NS = 10_000_000_000
"""Every path is probed so often, also when samples flow over it: the fastest one tells most of the
clocks."""
_IDLE_AFTER_S = 30.0
"""A pair no deadline topic has used for so long is forgotten."""
_HOPELESS_S = 1.0
"""So long a topic that had no path in time asks for more probes."""
_BEST_EFFORT_S = 5.0
_RATE_SHARE = 0.1
_SET_BACK_NS = 50_000_000
"""Of the wall clock: less matters to nobody."""
_CORRECTED_NS = 100_000
"""Delays seen so far are corrected when the clocks turn out to differ by so much from what was
thought; less is below what a choice could depend on."""


class Pair:
    """This edge and another one."""

    def __init__(self, edge: str, now_s: float) -> None:
        self.edge = edge
        self.clock = ClockOffset()
        self.paths: dict[str, Path] = {}
        """By the link they use."""
        self.used_s = now_s
        self.batches = 0
        """Sent since the last tick."""
        self.hopeless_s = -inf
        """When a topic last had no path in time: whether that is still so is worth some probes."""
        self._estimate: tuple[int, OffsetEstimate] | None = None
        """What the delays of the paths are corrected by, and since when."""
        self.batches_per_s = 0.0
        self.best_effort_s = -inf
        """When a best-effort stream was last sent on: it drops what comes out of order."""
        self.datagrams = DatagramChoice()
        self._heard_ping: tuple[int, int, int] | None = None

    def path(self, way: Way, now_s: float) -> Path:
        """What is known of it. Its name is the asking topic's affair."""
        path = self.paths.get(way.via)
        if path is None:
            path = self.paths[way.via] = Path(way.name)
            path.quality.is_repaired = way.via == DATAGRAMS
        path.carry(way.link, now_s)
        return path

    def estimate(self, now_ns: int) -> OffsetEstimate | None:
        """How far the clocks are apart. What is known of the paths is corrected when that turns out
        to be something else: the first answers over a path that stalls say little."""
        estimate = self.clock.estimate(now_ns)
        if estimate is None:
            return None
        before, self._estimate = self._estimate, (now_ns, estimate)
        if before is None:
            return estimate
        then_ns, known = before
        drifted_ns = estimate.drift_ppm * 1e-6 * (now_ns - then_ns)
        wrong_ns = known.offset_ns + drifted_ns - estimate.offset_ns
        if estimate.steps != known.steps:
            for path in self.paths.values():
                path.quality.note_clock_step()
        elif abs(wrong_ns) >= _CORRECTED_NS:
            for path in self.paths.values():
                path.quality.correct_clock(wrong_ns / 1e9)
        else:
            self._estimate = before
        return estimate

    def count_rates(self, passed_s: float) -> None:
        self.batches_per_s += _RATE_SHARE * (self.batches / passed_s - self.batches_per_s)
        self.batches = 0
        for path in self.paths.values():
            path.samples_per_s += _RATE_SHARE * (path.samples / passed_s - path.samples_per_s)
            path.samples = 0

    def review_datagrams(self, link: ExpressLink | None, now_s: float) -> bool:
        """Over this direct link, if there is one; whether that has changed."""
        was_used = self.datagrams.is_used
        stream, path = self.paths.get(EXPRESS), self.paths.get(DATAGRAMS)
        beside = None if link is None else link.datagrams
        if beside is None or stream is None:
            self.datagrams.interrupt(now_s)
        else:
            quality = None if path is None else path.quality
            counts = Counts(beside.sent, beside.lost, beside.overflows)
            self.datagrams.review(now_s, stream.quality, quality, counts)
            repair = self.datagrams.repair(
                stream.quality.level_s, is_order_kept=now_s - self.best_effort_s < _BEST_EFFORT_S
            )
            beside.within_s, beside.most_members = repair.within_s, repair.most_members
        if was_used and not self.datagrams.is_used:
            self.paths.pop(DATAGRAMS, None)  # or it would be probed for ever
        if was_used != self.datagrams.is_used:
            _log.info(
                "deadline topics go over another transport on the direct way",
                edge=self.edge,
                transport="TCP" if was_used else "UDP",
                reason=self.datagrams.why,
            )
        return was_used != self.datagrams.is_used

    def heed_ping(self, ping: tuple[int, int, int] | None) -> None:
        """The last ping of the direct link. While samples flow over it nothing else asks for the
        time on this, the shortest way."""
        if ping is not None and ping is not self._heard_ping:
            self._heard_ping = ping
            self.clock.observe(*ping)


class Pairs:
    """All pairs deadline topics of this edge use."""

    def __init__(self, me: Peer, links: Links, clock: Callable[[], float] = time.monotonic) -> None:
        self._me = me
        self._links = links
        self._clock = clock
        self.generation = 0
        """Grows whenever a pair is forgotten: who holds paths of it must ask for new ones."""
        self._pairs: dict[str, Pair] = {}
        self._ticked_s = clock()
        self._began_ns = self._clock_began_ns()

    def pair(self, edge: str) -> Pair:
        pair = self._pairs.get(edge)
        if pair is None:
            pair = self._pairs[edge] = Pair(edge, self._clock())
        return pair

    def open_paths(
        self, topic: str, edge: str, *, may_use_datagrams: bool = False
    ) -> list[OpenPath]:
        """The paths to take to this edge now, the preferred one first."""
        pair, now_s = self.pair(edge), self._clock()
        ways = self._ways(pair, topic, may_use_datagrams)
        return [OpenPath(pair.path(way, now_s), way) for way in ways]

    def names(self, topic: str, edge: str, *, may_use_datagrams: bool = False) -> dict[str, str]:
        """What the paths to this edge are called for this topic now, and the link each uses."""
        ways = self._ways(self.pair(edge), topic, may_use_datagrams)
        return {way.name: way.via for way in ways}

    def _ways(self, pair: Pair, topic: str, may_use_datagrams: bool) -> list[Way]:
        ways = self._links.ways(topic, pair.edge)
        if may_use_datagrams and pair.datagrams.is_used:
            return [_beside(way) for way in ways]
        return ways

    # ------------------------------------------------------------ messages

    def on_answer(self, message: ProbeAnswer, via: str) -> None:
        pair = self._pairs.get(message.responder.edge)
        path = None if pair is None else pair.paths.get(via)
        now_ns, now_s = time.time_ns(), self._clock()
        if pair is None or path is None or not path.confirm_probe(message.sent_ns, now_s):
            return
        pair.clock.observe(message.sent_ns, message.seen_ns, now_ns)
        estimate = pair.estimate(now_ns)
        if estimate is not None:
            delay_ns = message.seen_ns - message.sent_ns - estimate.offset_ns
            path.quality.observe(delay_ns / 1e9, now_s)

    def on_arrivals(self, message: Arrivals, via: str) -> None:
        pair = self._pairs.get(message.subscriber.edge)
        path = None if pair is None else pair.paths.get(via)
        if pair is None or path is None:
            return
        now_ns, now_s = time.time_ns(), self._clock()
        path.confirm(message.newest_ns, message.total, now_ns, now_s)
        estimate = pair.estimate(now_ns)
        if estimate is not None:
            for delay_us in message.delays_us:
                path.quality.observe((delay_us * 1000 - estimate.offset_ns) / 1e9, now_s)

    # ------------------------------------------------------------ time

    def on_links_changed(self) -> None:
        """Some path may have come or gone."""
        now_s = self._clock()
        for pair in self._pairs.values():
            up = {way.via: way.link for way in self._links.all_ways(pair.edge)}
            for via, path in pair.paths.items():
                if via in up:
                    path.carry(up[via], now_s)
                elif path.quality.is_up:
                    path.break_off(now_s)

    def tick(self) -> None:
        """Probes paths nothing else tells about."""
        now_s = self._clock()
        passed_s = max(1e-3, now_s - self._ticked_s)
        self._ticked_s = now_s
        self._heed_clock()
        for edge, pair in list(self._pairs.items()):
            pair.count_rates(passed_s)
            if now_s - pair.used_s > _IDLE_AFTER_S:
                del self._pairs[edge]
                self.generation += 1
                continue
            ways = self._links.all_ways(edge)
            direct = next((way.link for way in ways if isinstance(way.link, ExpressLink)), None)
            if direct is not None:
                pair.heed_ping(direct.clock)
            if pair.review_datagrams(direct, now_s):
                self.generation += 1
            for way in ways:
                if (path := pair.paths.get(way.via)) is not None:
                    self._probe_if_due(pair, path, way, now_s)

    def _heed_clock(self) -> None:
        (before_ns, _), self._began_ns = self._began_ns, self._clock_began_ns()
        back_ns = before_ns - self._began_ns[1]
        if back_ns > _SET_BACK_NS:
            _log.warning(
                "the clock of this host was set back; paths are looked at anew",
                by_s=round(back_ns / 1e9, 3),
            )
            for pair in self._pairs.values():
                for path in pair.paths.values():
                    path.forget_times()

    def _clock_began_ns(self) -> tuple[int, int]:
        """When the steady clock began, by the wall clock: at the earliest and at the latest, as
        this process may stand still between looking at one and at the other."""
        before_s, now_ns, after_s = self._clock(), time.time_ns(), self._clock()
        return now_ns - int(after_s * 1e9), now_ns - int(before_s * 1e9)

    def _probe_if_due(self, pair: Pair, path: Path, way: Way, now_s: float) -> None:
        now_ns = time.time_ns()
        estimate = pair.clock.estimate(now_ns)
        if estimate is None:
            is_due = path.outstanding_s(now_ns) >= _FIRST_PROBES_S or not path.outstanding_s(now_ns)
        else:
            soon = now_s - pair.hopeless_s < _HOPELESS_S
            is_due = path.quality.is_probe_due(now_s, pair.batches_per_s, soon=soon)
            is_due |= abs(now_ns - path.probed_ns) >= _CLOCK_NS
        if not is_due:
            return
        offset_ns, error_ns = (
            (0, 0) if estimate is None else (estimate.offset_ns, max(1, estimate.error_ns))
        )
        frame = messages.probe(pair.edge, self._me, now_ns, offset_ns, error_ns)
        if way.link.send(frame):
            path.quality.probed(now_s)
            path.note_probe(now_ns)

    # ------------------------------------------------------------ looking on

    def summary(self) -> list[dict[str, Any]]:
        """For status."""
        now_s, now_ns = self._clock(), time.time_ns()
        rows = []
        for edge, pair in sorted(self._pairs.items()):
            estimate = pair.clock.estimate(now_ns)
            rows.append(
                {
                    "edge": edge,
                    "clock_offset_ms": None if estimate is None else estimate.offset_ns / 1e6,
                    "clock_error_ms": None if estimate is None else estimate.error_ns / 1e6,
                    "clock_likely_error_ms": None
                    if estimate is None
                    else estimate.likely_error_ns / 1e6,
                    "datagrams": pair.datagrams.why or "not needed yet",
                    "paths": [
                        _describe(via, path, now_s, now_ns)
                        for via, path in sorted(pair.paths.items())
                    ],
                }
            )
        return rows


def _beside(way: Way) -> Way:
    """The same, over datagrams where they pass."""
    link = way.link.datagrams if isinstance(way.link, ExpressLink) else None
    return way if link is None else Way(way.name, DATAGRAMS, link)


def _describe(via: str, path: Path, now_s: float, now_ns: int) -> dict[str, Any]:
    known = path.quality.summary(now_s)
    return {
        "via": via,
        "up": known.is_up,
        "delays": known.observations,
        "level_ms": _ms(known.level_s),
        "p50_ms": _ms(known.median_s),
        "p99_ms": _ms(known.p99_s),
        "p999_ms": _ms(known.p999_s),
        "lost": known.lost,
        "outstanding_ms": _ms(path.outstanding_s(now_ns)),
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None or seconds > 1e9 else round(seconds * 1e3, 3)
