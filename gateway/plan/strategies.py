"""What a topic costs the router that carries it: the interchangeable part of assignment planning.
Also what is remembered of measured rates. The leader picks a strategy by its configured name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol

from gateway.model import FabricView, RouterInfo, TopicView

Cost = Callable[[str, str], float]
"""Cost of a topic (first) on a router (second)."""


class Strategy(Protocol):
    """Every strategy says costs; the planner places, keeps and moves by them alike. A cost must not
    depend on where the topic is now: otherwise a move would change what it was decided on."""

    @property
    def name(self) -> str: ...

    @property
    def negligible(self) -> float:
        """A router this little above the mean is not worth a move."""

    def costs(self, view: FabricView, rates: Mapping[str, float]) -> Cost:
        """`rates`: bytes per second over all destinations, for the topics where it is known."""


class LeastTopics:
    """Every topic costs the same: what the PubSubCoord paper does."""

    name = "least-topics"
    negligible = 0.0

    def costs(self, view: FabricView, rates: Mapping[str, float]) -> Cost:
        return lambda topic, router: 1.0


class LeastConnections:
    """A topic costs the edges it connects. Counted from who uses it rather than from the links a
    router reports: those follow an assignment late."""

    name = "least-connections"
    negligible = 1.0

    def costs(self, view: FabricView, rates: Mapping[str, float]) -> Cost:
        edges = {
            name: float(len({a.edge for a in topic.pubs + topic.subs}))
            for name, topic in view.topics.items()
        }
        return lambda topic, router: edges[topic]


class LeastLoad:
    """A topic costs its bytes per second, each destination counted."""

    name = "least-load"

    def __init__(self, negligible_bytes_per_s: float = 0.0) -> None:
        self.negligible = negligible_bytes_per_s

    def costs(self, view: FabricView, rates: Mapping[str, float]) -> Cost:
        expected = expected_rates(view, rates)
        return lambda topic, router: expected[topic]


class LeastCpu:
    """A topic costs the processor time its bytes take on that router: machines differ. The price of
    a byte, unlike the load itself, stays put while topics move."""

    name = "least-cpu"
    negligible = 0.05

    def costs(self, view: FabricView, rates: Mapping[str, float]) -> Cost:
        expected = expected_rates(view, rates)
        prices = {
            name: info.load.cpu / info.load.bytes_per_s
            for name, info in view.routers.items()
            # Below this a router's own housekeeping is most of its time.
            if info.load.bytes_per_s >= 100_000 and info.load.cpu > 0
        }
        typical = sum(prices.values()) / len(prices) if prices else 1e-9
        return lambda topic, router: expected[topic] * prices.get(router, typical)


def choose_strategy(name: str, *, negligible_bytes_per_s: float) -> Strategy:
    """The strategy of that name; the configuration admits only names known here."""
    strategies: tuple[Strategy, ...] = (
        LeastLoad(negligible_bytes_per_s),
        LeastTopics(),
        LeastCpu(),
        LeastConnections(),
    )
    return {strategy.name: strategy for strategy in strategies}[name]


def fan_out(topic: TopicView) -> int:
    """Copies a router sends of what all publishing LANs of the topic publish once."""
    return sum(sub.lan != pub.lan for pub in topic.pubs for sub in topic.subs)


def expected_rates(view: FabricView, rates: Mapping[str, float]) -> dict[str, float]:
    """Known rates, and a fair guess for the others: what a known topic costs per destination, so
    that a burst of new topics spreads over the routers. A topic without a destination is counted
    as if it had one; subscribers often come a moment later."""
    per_destination = [
        rates[name] / max(1, fan_out(topic))
        for name, topic in view.topics.items()
        if rates.get(name, 0.0) > 0.0
    ]
    typical = sum(per_destination) / len(per_destination) if per_destination else 1.0
    return {
        name: rates[name] if name in rates else typical * max(1, fan_out(topic))
        for name, topic in view.topics.items()
    }


class TopicRates:
    """Smoothed bytes per second of each topic, from the loads the routers report. Only the leader
    keeps one; a new leader starts empty and knows silent topics after `settle_s`."""

    def __init__(self, *, smoothing_s: float = 10.0, settle_s: float = 15.0) -> None:
        self._smoothing_s = smoothing_s
        self._settle_s = settle_s
        self._first_seen_s: dict[str, float] = {}
        self._known: dict[str, float] = {}
        self._last_s: float | None = None

    @property
    def known(self) -> Mapping[str, float]:
        return self._known

    def observe(self, view: FabricView, now_s: float) -> None:
        """Fold in what `view` reports now. Call it as often as you like: time is what counts."""
        elapsed_s = 0.0 if self._last_s is None else max(0.0, now_s - self._last_s)
        self._last_s = now_s
        share = 1.0 - math.exp(-elapsed_s / self._smoothing_s)
        listed, unlisted = _reported(view)
        first_seen_s = {name: self._first_seen_s.get(name, now_s) for name in listed | unlisted}
        known: dict[str, float] = {}
        for name, seen_s in first_seen_s.items():
            level = listed.get(name, unlisted.get(name, 0.0))
            if name in self._known:
                before = self._known[name]
                known[name] = before + share * (level - before)
            elif name in listed or now_s - seen_s >= self._settle_s:
                known[name] = level
        self._first_seen_s, self._known = first_seen_s, known


def _reported(view: FabricView) -> tuple[dict[str, float], dict[str, float]]:
    """Topics that routers list by name, and for the other assigned ones an equal share of what
    their primary carries beside its list."""
    listed: dict[str, float] = {}
    for info in view.routers.values():
        for name, rate in info.load.topics:
            if name in view.topics:
                # While edges change over, two routers carry a part each.
                listed[name] = listed.get(name, 0.0) + max(0.0, rate)
    of_router: dict[str, list[str]] = {}
    for name, topic in view.topics.items():
        if name not in listed and topic.assignment is not None:
            of_router.setdefault(topic.assignment.primary, []).append(name)
    unlisted: dict[str, float] = {}
    for router, names in of_router.items():
        rest = _unlisted_rate(view.routers.get(router))
        unlisted.update((name, rest / len(names)) for name in names)
    return listed, unlisted


def _unlisted_rate(info: RouterInfo | None) -> float:
    if info is None:
        return 0.0
    return max(0.0, info.load.bytes_per_s - sum(rate for _, rate in info.load.topics))
