"""Topics with strict deadlines: which they are, and over which paths each of their batches goes.
Made by outflows.py for an outflow; the decisions are gateway/plan/path_choice.py's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from edge_broker.dds import shortcuts
from edge_broker.hedges import Hedges, SendCopy
from edge_broker.known_path import OpenPath, Path
from edge_broker.links import Link
from edge_broker.pairs import Pairs
from gateway.config import Express
from gateway.model import INFINITE_NS, Profile
from gateway.plan.path_choice import Choice, Mode, PathChooser
from gateway.plan.path_patience import patience_s

_LARGE_BYTES = 8 * 1024
_LARGE_S = 10.0
"""A topic goes without datagrams for so long after a batch of more: many would have to arrive."""
_ACCOUNTED_S = 0.045
"""For a sample that has gone ahead a turn comes within that, by an answer or because none came."""
_PLAN_GOOD_S = 0.2
"""How long what was decided after a batch holds for the next one; longer while all is calm."""


class DeadlinePolicy:
    """The settings and what was advised, asked for one topic."""

    def __init__(self, settings: Express) -> None:
        self._settings = settings
        self.advised: dict[str, bool] = {}
        """What was recommended and applied, which goes before the settings."""

    def deadline_s(self, topic: str, profile: Profile) -> float | None:
        """What its samples aim at; None: it is no topic with a strict deadline."""
        settings = self._settings
        deadline_s = profile.qos.deadline_ns / 1e9
        advised = self.advised.get(topic)
        if advised is False:
            return None
        if deadline_s <= settings.max_deadline_s:
            return deadline_s
        if advised and profile.qos.deadline_ns < INFINITE_NS:
            return deadline_s
        if advised or any(fnmatchcase(topic, pattern) for pattern in settings.topics):
            return settings.max_deadline_s
        return None

    def mode(self, topic: str) -> Mode:
        for pattern, mode in self._settings.modes.items():
            if fnmatchcase(topic, pattern):
                return Mode(mode)
        return Mode(self._settings.mode)

    @property
    def target(self) -> float:
        return self._settings.miss_target

    @property
    def most_wait_s(self) -> float:
        return self._settings.most_wait_s


class Group(NamedTuple):
    """Edges that get a batch over the same link."""

    link: Link
    path: str
    edges: tuple[str, ...]


class Leeway(NamedTuple):
    """How long samples may go as was planned without anybody looking."""

    overdue_s: float
    """After so long without an answer somebody has to."""
    may_wait: bool
    """To be accounted for: no copy has to follow sooner."""


FREE = Leeway(3600.0, True)
"""Of topics that have one path, whatever becomes of it."""


class _Hedging(NamedTuple):
    """A copy for one edge that waits."""

    edge: str
    first: Path
    second: OpenPath
    after_s: float


class DeadlineRouting:
    """Where the batches of one outflow go."""

    def __init__(self, topic: str, deadline_s: float, policy: DeadlinePolicy, pairs: Pairs) -> None:
        self.deadline_s = deadline_s
        self.patience_s = 0.0
        """How long samples wait for company before they are taken."""
        self._topic = topic
        self._mode = policy.mode(topic)
        self._policy = policy
        self._pairs = pairs
        self._choosers: dict[str, PathChooser] = {}
        self._patience: dict[str, tuple[Choice | None, float]] = {}
        """What the last choice for each edge allows."""
        self._paths_of = (-1, -1)
        self._paths: dict[str, list[OpenPath]] = {}
        self._plan: list[Group] = []
        self._taken: list[OpenPath] = []
        self._hedging: list[_Hedging] = []
        self._hedges: Hedges | None = None
        self._planned_for: tuple[str, ...] = ()
        self._planned_s = 0.0
        self._generation = -1
        self._large_s = -math.inf
        """When a batch was last too large for datagrams."""
        self._may_use_datagrams = self._mode is Mode.ADAPTIVE

    def hedge_with(self, send_copy: SendCopy) -> None:
        """Batches are kept until they are acknowledged, so copies may wait."""
        self._hedges = Hedges(send_copy)

    def paths(self, edge: str, generation: int) -> list[OpenPath]:
        """The ways to this edge now; they change with the generations of links and pairs."""
        now = (generation, self._pairs.generation)
        if now != self._paths_of:
            self._paths_of = now
            self._paths.clear()
        paths = self._paths.get(edge)
        if paths is None:
            paths = self._paths[edge] = self._pairs.open_paths(
                self._topic, edge, may_use_datagrams=self._may_use_datagrams
            )
            if (chooser := self._choosers.get(edge)) is not None:
                chooser.reconsider()
        return paths

    def plan(
        self,
        edges: tuple[str, ...],
        oldest_ns: int,
        sent_ns: int,
        now_s: float,
        generation: int,
    ) -> list[Group]:
        """Which edges get a batch over which link. `oldest_ns` is the time of its oldest sample,
        `sent_ns` the time now, which the batch carries. Decided anew only when what was decided
        after the last batch cannot hold any longer: a lone sample does not wait for it."""
        is_recent = now_s <= self._planned_s + _PLAN_GOOD_S
        if self._has_changed(edges, generation, sent_ns) or not (is_recent or self._is_calm(now_s)):
            self._decide(edges, oldest_ns, sent_ns, now_s, generation)
        return self._plan

    def _has_changed(self, edges: tuple[str, ...], generation: int, now_ns: int) -> bool:
        """Whether what was decided last cannot hold."""
        return (
            edges != self._planned_for or generation != self._generation or self._is_overdue(now_ns)
        )

    def _is_calm(self, now_s: float) -> bool:
        """Whether to decide anew would change nothing, unless something is overdue."""
        if self._paths_of != (self._generation, self._pairs.generation):
            return False
        for edge in self._planned_for:
            chooser = self._choosers.get(edge)
            qualities = [each.path.quality for each in self._paths.get(edge, ())]
            if chooser is None or not chooser.is_calm(qualities, now_s):
                return False
        return True

    def _is_overdue(self, now_ns: int) -> bool:
        for each in self._taken:
            if each.path.outstanding_s(now_ns) > each.path.quality.overdue_s:
                return True
        return False

    def leeway(self, edges: tuple[str, ...]) -> Leeway | None:
        """None: the plan is not for these edges."""
        if edges != self._planned_for:
            return None
        overdue_s = min([FREE.overdue_s, *(each.path.quality.overdue_s for each in self._taken)])
        return Leeway(overdue_s, all(each.after_s >= _ACCOUNTED_S for each in self._hedging))

    def sent(
        self,
        edges: tuple[str, ...],
        oldest_ns: int,
        sent_ns: int,
        now_ns: int,
        now_s: float,
        generation: int,
        number: int,
        count: int,
        size_bytes: int,
    ) -> None:
        """The batch of `count` samples that begins with this number went as planned, then; decides
        for the next one, which will be as old as this one was."""
        self._note_size(size_bytes, now_s)
        may_wait = self._mode is Mode.ADAPTIVE
        for each in self._taken:
            each.path.note_batch(sent_ns)
            if may_wait:
                each.path.samples += count
        if self._hedges is not None:
            for edge, first, second, after_s in self._hedging:
                self._hedges.arm(first, sent_ns, edge, number, second, after_s)
        for edge in edges:
            pair = self._pairs.pair(edge)
            pair.used_s = now_s
            if self._hedges is None:
                pair.best_effort_s = now_s
            pair.batches += 1
        if self._is_overdue(now_ns):
            shortcuts.lower_all()  # other topics shall look as well before they go the same way
        if self._has_changed(edges, generation, now_ns) or not self._is_calm(now_s):
            self._decide(edges, oldest_ns + now_ns - sent_ns, now_ns, now_s, generation)

    def _note_size(self, size_bytes: int, now_s: float) -> None:
        if size_bytes > _LARGE_BYTES:
            self._large_s = now_s
        may = self._mode is Mode.ADAPTIVE and now_s - self._large_s > _LARGE_S
        if may != self._may_use_datagrams:
            self._may_use_datagrams = may
            self._paths_of = (-1, -1)

    def _decide(
        self,
        edges: tuple[str, ...],
        oldest_ns: int,
        sent_ns: int,
        now_s: float,
        generation: int,
    ) -> None:
        groups: dict[int, tuple[Link, str, list[str]]] = {}
        self._taken = []
        self._hedging = []
        patience = []
        for edge in edges:
            chosen = self._choose(edge, oldest_ns, sent_ns, now_s, generation)
            patience.append(self._patience_s(edge, chosen, now_s))
            self._taken += chosen
            for each in sorted(chosen, key=_level_s):
                link = each.way.link
                groups.setdefault(id(link), (link, each.way.name, []))[2].append(edge)
        self.patience_s = min(patience, default=0.0)
        self._plan = [Group(link, name, tuple(to)) for link, name, to in groups.values()]
        self._planned_for = edges
        self._planned_s = now_s
        self._generation = generation

    def _choose(
        self, edge: str, oldest_ns: int, sent_ns: int, now_s: float, generation: int
    ) -> list[OpenPath]:
        paths = self.paths(edge, generation)
        chooser = self._choosers.get(edge)
        if chooser is None:
            chooser = PathChooser(self._mode, target=self._policy.target)
            self._choosers[edge] = chooser
        pair = self._pairs.pair(edge)
        # Only a choice by delays asks how wrong they may be.
        estimate = pair.clock.estimate(sent_ns) if self._mode is Mode.ADAPTIVE else None
        for each in paths:
            # Topics share what is known of a path, but one's routed path is another's standby.
            each.path.quality.name = each.way.name
        choice = chooser.choose(
            [each.path.quality for each in paths],
            self.deadline_s - max(self.patience_s, (sent_ns - oldest_ns) / 1e9),
            now_s,
            clock_error_s=0.0 if estimate is None else estimate.likely_error_ns / 1e9,
            outstanding_s={each.way.name: each.path.outstanding_s(sent_ns) for each in paths},
            can_hedge=self._hedges is not None,
        )
        if choice.is_hopeless:
            pair.hopeless_s = now_s
        taken = [each for each in paths if each.way.name in choice.paths]
        if (hedge := choice.hedge) is not None:
            for each in paths:
                if each.way.name == hedge.path:
                    self._hedging.append(_Hedging(edge, taken[0].path, each, hedge.after_s))
        return taken

    def _patience_s(self, edge: str, chosen: Sequence[OpenPath], now_s: float) -> float:
        if self._mode is not Mode.ADAPTIVE:
            return 0.0
        choice = self._choosers[edge].choice
        known = self._patience.get(edge)
        if known is None or known[0] is not choice:
            found_s = patience_s(
                [each.path.quality for each in chosen],
                self.deadline_s,
                max([each.path.samples_per_s for each in chosen], default=0.0),
                now_s,
                most_s=self._policy.most_wait_s,
                target=self._policy.target,
            )
            known = self._patience[edge] = choice, found_s
        return known[1]

    @property
    def last_plan(self) -> list[Group]:
        """The way the next batch is likely to go: over the fastest link first, as far as known."""
        return self._plan

    def forget(self, edge: str) -> None:
        self._choosers.pop(edge, None)
        self._patience.pop(edge, None)
        self._paths.pop(edge, None)

    def summary(self) -> list[dict[str, Any]]:
        """For status."""
        return [
            {
                "edge": edge,
                "mode": chooser.mode.value,
                "deadline_ms": round(self.deadline_s * 1e3, 3),
                "taken": [] if chooser.choice is None else list(chooser.choice.paths),
                "why": self._why(chooser),
                "wait_ms": round(self.patience_s * 1e3, 3),
                "paths": self._pairs.names(
                    self._topic, edge, may_use_datagrams=self._may_use_datagrams
                ),
            }
            for edge, chooser in sorted(self._choosers.items())
        ]

    def _why(self, chooser: PathChooser) -> str:
        if chooser.choice is None:
            return "nothing sent yet"
        if not self.patience_s:
            return chooser.choice.why
        return f"{chooser.choice.why}; samples wait {self.patience_s * 1e3:.0f} ms for company"


def _level_s(each: OpenPath) -> float:
    level_s = each.path.quality.level_s
    return math.inf if level_s is None else level_s
