"""Which router carries which topic. Pure: the leader calls it with the view as last read and
performs the changes. What works is kept; what must move promotes its standby; voluntary moves are
few, bounded and only made against a clear imbalance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gateway.model import Assignment, FabricView, RouterInfo, TopicView
from gateway.plan.strategies import Cost, Strategy

_ROUNDING = 1e-9


class Cause(StrEnum):
    """Why an assignment changes."""

    NEW_TOPIC = "new topic"
    ROUTER_LEFT = "router left"
    ROUTER_DRAINS = "router drains"
    STANDBY_FOUND = "standby found"
    STANDBY_LEFT = "standby left"
    STANDBY_DRAINS = "standby drains"
    REBALANCING = "rebalancing"
    ADVICE = "advice"


@dataclass(frozen=True, slots=True)
class Change:
    """One assignment to write, provided the topic's node still has `version`."""

    topic: str
    before: Assignment | None
    after: Assignment
    version: int
    why: Cause

    @property
    def is_move(self) -> bool:
        """Samples take another way than before."""
        return self.before is not None and self.before.primary != self.after.primary


@dataclass(frozen=True, slots=True)
class AssignmentPlan:
    changes: tuple[Change, ...] = ()
    unserved: tuple[str, ...] = ()
    """Topics in use that no live router can carry."""


@dataclass(frozen=True, slots=True)
class Rebalancing:
    """When working assignments are moved for the sake of balance."""

    factor: float = 1.5
    """Only a router above this multiple of the mean is relieved."""
    max_moves: int = 16
    """Moves of one plan."""


@dataclass(slots=True)
class _Layout:
    """Who carries what, while a plan is made."""

    routers: dict[str, RouterInfo]
    """The routers that may be given topics."""
    cost: Cost
    avoided: dict[str, str] = field(default_factory=dict)
    """By topic the router that is not to be given it."""
    primaries: dict[str, str] = field(default_factory=dict)
    load: dict[str, float] = field(default_factory=dict)
    """Cost of the topics for which a router is primary."""
    count: dict[str, int] = field(default_factory=dict)
    """Their number."""
    inherits: dict[tuple[str, str], float] = field(default_factory=dict)
    """Cost of what a standby (second) takes over when a primary (first) fails."""
    backs: dict[str, int] = field(default_factory=dict)
    """Number of topics for which a router is standby."""

    def carry(self, topic: str, router: str) -> None:
        self.primaries[topic] = router
        self._add(topic, router, 1)

    def move(self, topic: str, target: str) -> None:
        self._add(topic, self.primaries[topic], -1)
        self.carry(topic, target)

    def stand_by(self, topic: str, router: str) -> None:
        pair = (self.primaries[topic], router)
        self.inherits[pair] = self.inherits.get(pair, 0.0) + self.cost(topic, router)
        self.backs[router] = self.backs.get(router, 0) + 1

    def _add(self, topic: str, router: str, sign: int) -> None:
        cost = sign * self.cost(topic, router)
        self.load[router] = self.load.get(router, 0.0) + cost
        self.count[router] = self.count.get(router, 0) + sign

    def load_with(self, topic: str, router: str) -> float:
        return self.load.get(router, 0.0) + self.cost(topic, router)

    def best_primary(self, topic: str) -> str:
        return min(
            (r for r in self.routers if r != self.avoided.get(topic)),
            key=lambda r: (self.load_with(topic, r), self.count.get(r, 0), r),
        )

    def best_standby(self, topic: str) -> str | None:
        """Elsewhere than the primary if it can be: what takes one zone down spares another. Then
        the one left with the least if that primary fails, so that its topics spread."""
        primary = self.primaries[topic]
        home = self.routers[primary].zone
        return min(
            (r for r in self.routers if r != primary),
            key=lambda r: (
                bool(home) and self.routers[r].zone == home,
                self.load_with(topic, r) + self.inherits.get((primary, r), 0.0),
                self.backs.get(r, 0),
                r,
            ),
            default=None,
        )


def plan_assignments(
    view: FabricView,
    strategy: Strategy,
    *,
    epoch: int,
    rates: Mapping[str, float],
    rebalancing: Rebalancing | None = None,
) -> AssignmentPlan:
    """The changes that give every topic in use a usable primary and, where there are two routers,
    a standby. Working assignments move only if `rebalancing` is given."""
    topics = {name: view.topics[name] for name in sorted(view.topics) if is_used(view.topics[name])}
    usable = usable_routers(view)
    if not usable:
        return AssignmentPlan(unserved=tuple(topics))
    # Where there is no other router there is no choice.
    avoided = view.advice.avoided() if len(usable) > 1 else {}
    layout = _Layout(usable, strategy.costs(view, rates), avoided)
    why: dict[str, Cause] = {}

    homeless = []
    for name, topic in topics.items():
        heir = _heir(topic.assignment, usable, avoided.get(name))
        if topic.assignment is not None and topic.assignment.primary == avoided.get(name):
            why[name] = Cause.ADVICE
        if heir is None:
            homeless.append(name)
        else:
            layout.carry(name, heir)
    # The heaviest first: the light ones then level out what is left.
    cheapest = {name: min(layout.cost(name, router) for router in usable) for name in homeless}
    for name in sorted(homeless, key=lambda name: (-cheapest[name], name)):
        layout.carry(name, layout.best_primary(name))
    if rebalancing is not None:
        for name in _rebalance(layout, topics, strategy, rebalancing):
            why[name] = Cause.REBALANCING

    standbys = _standbys(layout, topics)
    changes = []
    for name, topic in topics.items():
        before = topic.assignment
        primary, standby = layout.primaries[name], standbys[name]
        if before is not None and (before.primary, before.standby) == (primary, standby):
            continue
        after = Assignment(primary, standby, epoch)
        cause = why.get(name) or _cause(before, primary, view)
        changes.append(Change(name, before, after, topic.version, cause))
    return AssignmentPlan(tuple(changes))


def is_used(topic: TopicView) -> bool:
    return bool(topic.pubs or topic.subs)


def usable_routers(view: FabricView) -> dict[str, RouterInfo]:
    """Live routers that are not draining; if all are, the draining ones: better than none."""
    live = {name: view.routers[name] for name in sorted(view.routers)}
    return {name: info for name, info in live.items() if not info.draining} or live


def empty_since(view: FabricView, before: Mapping[str, float], now_s: float) -> dict[str, float]:
    """Since when each topic nobody uses has been seen unused; `before` is the last answer."""
    return {
        name: before.get(name, now_s) for name, topic in view.topics.items() if not is_used(topic)
    }


def plan_deletions(unused: Mapping[str, float], now_s: float, grace_s: float) -> tuple[str, ...]:
    """Topics unused for `grace_s`: an application that restarts finds its topic as it was."""
    return tuple(sorted(name for name, since_s in unused.items() if now_s - since_s >= grace_s))


def _heir(
    before: Assignment | None, usable: dict[str, RouterInfo], avoided: str | None
) -> str | None:
    """Who carries the topic on without anything being placed anew: the primary, else the standby,
    to which edges hold links already."""
    for router in (before.primary, before.standby) if before is not None else ():
        if router in usable and router != avoided:
            return router
    return None


def _standbys(layout: _Layout, topics: dict[str, TopicView]) -> dict[str, str | None]:
    """Keeps every standby that still is one; a move to the standby makes the old primary the new
    standby if it still works."""
    chosen: dict[str, str | None] = {}
    for name, topic in topics.items():
        before, primary = topic.assignment, layout.primaries[name]
        candidates: Iterable[str | None] = (before.standby, before.primary) if before else ()
        for candidate in candidates:
            if candidate in layout.routers and candidate is not None and candidate != primary:
                chosen[name] = candidate
                layout.stand_by(name, candidate)
                break
    for name in topics:
        if name not in chosen:
            standby = layout.best_standby(name)
            chosen[name] = standby
            if standby is not None:
                layout.stand_by(name, standby)
    return chosen


def _cause(before: Assignment | None, primary: str, view: FabricView) -> Cause:
    if before is None:
        return Cause.NEW_TOPIC
    if before.primary != primary:
        return Cause.ROUTER_DRAINS if before.primary in view.routers else Cause.ROUTER_LEFT
    if before.standby is None:
        return Cause.STANDBY_FOUND
    return Cause.STANDBY_DRAINS if before.standby in view.routers else Cause.STANDBY_LEFT


def _rebalance(
    layout: _Layout, topics: dict[str, TopicView], strategy: Strategy, limits: Rebalancing
) -> list[str]:
    """Moves topics in `layout` off overloaded routers; the topics moved, each at most once."""
    moved: list[str] = []
    while len(moved) < limits.max_moves:
        mean = sum(layout.load.values()) / len(layout.routers)
        bound = max(mean * limits.factor, mean + strategy.negligible)
        hot = sorted(
            (r for r in layout.routers if layout.load.get(r, 0.0) > bound * (1 + _ROUNDING)),
            key=lambda r: (-layout.load[r], r),
        )
        for router in hot:
            move = _best_move(layout, topics, router, bound, set(moved))
            if move is not None:
                layout.move(*move)
                moved.append(move[0])
                break
        else:
            return moved
    return moved


def _best_move(
    layout: _Layout, topics: dict[str, TopicView], hot: str, bound: float, moved: set[str]
) -> tuple[str, str] | None:
    """The topic to take off `hot` and the router to give it to: a move that ends the imbalance if
    there is one, else the one that helps most; of equally good ones a promotion of the standby.
    None if no move lowers the peak of the two routers."""
    options = []
    for name, primary in layout.primaries.items():
        if primary != hot or name in moved:
            continue
        rest = layout.load[hot] - layout.cost(name, hot)
        before = topics[name].assignment
        standby = before.standby if before is not None else None
        for target in dict.fromkeys((standby, layout.best_primary(name))):
            if target is None or target == hot or target not in layout.routers:
                continue
            if target == layout.avoided.get(name):
                continue
            peak = max(rest, layout.load_with(name, target))
            # Sums of floats differ by the order of their terms: that is no gain.
            if peak < layout.load[hot] * (1 - _ROUNDING):
                options.append((max(peak, bound), target != standby, peak, name, target))
    if not options:
        return None
    *_, name, target = min(options)
    return name, target
