"""Which paths a batch of a deadline topic takes: one, one and another if it is not confirmed in
time, or several at once. Pure; called by the edge broker's sending side for every batch.

What is promised: with `adaptive`, a sample misses its deadline although another path would have
brought it in time with a probability of at most the target, as far as the delays observed tell.
A copy is worth its bytes only when it rescues: where all paths are late, or the other is always
slower, none is sent, and a clock error matters only where it changes which paths are in time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gateway.plan.path_hedge import Hedge, plan_hedge
from gateway.plan.path_outlook import Outlook, budgets_of, look, most_rescued, risk_of
from gateway.plan.path_quality import PathQuality
from gateway.plan.path_return import PathReturn

DEFAULT_TARGET = 0.001
DECISION_S = 0.05
"""How long a choice is good for as long as nothing happens."""
CALM_S = 0.5
"""… when it is the preferred path alone, which lately took no more than CALM_SHARE of the budget:
until that changes, or a stall or loss shows. To decide costs more than all else an edge does for a
single sample."""
CALM_SHARE = 0.5
HOLD_S = 0.5
"""Several copies are sent at least this long."""
HOLD_MOST_S = 2.0
LEAVING_SHARE = 0.8
"""Back to one copy only below this share of the target."""
FASTER_S = 2.0
"""A path has to be clearly faster for so long before a path that does its work is left for it, or
no slower if it is the preferred one."""
FASTER_MOST_S = 60.0
"""Each time the preferred one is left for being slower it takes twice as long, up to that: paths
that lose packets are slow for seconds now and then, and going to and fro serves nobody."""
_FASTER_DOUBLINGS = 5
"""More change nothing."""
FASTER_CALM_S = 300.0
"""After so long that is forgotten."""
FASTER_SHARE = 0.9
FASTER_LEAST_S = 0.002
ALIKE = 1.5
"""Risks that differ by no more than this factor are taken for the same: they are estimates."""
_BUDGET_TOLERANCE = 0.05

_NOTHING_OUTSTANDING: Mapping[str, float] = {}


class Mode(StrEnum):
    """How a deadline topic uses the paths it has."""

    SINGLE = "single"
    DUPLICATE = "duplicate"
    ADAPTIVE = "adaptive"


@dataclass(frozen=True, slots=True)
class Choice:
    paths: tuple[str, ...]
    """Send one copy on each; empty when no path is up."""
    why: str
    """For operators."""
    hedge: Hedge | None = None
    risk: float = 0.0
    """Expected share of samples that miss although one of the paths not taken would not."""
    is_hopeless: bool = False
    """No path is in time as far as is known."""


class PathChooser:
    """For one topic and one destination edge. Keeps the last choice, so that it is cheap and does
    not flap."""

    def __init__(self, mode: Mode, *, target: float = DEFAULT_TARGET) -> None:
        self.mode = mode
        self.target = target
        self.choice: Choice | None = None
        """The last one, for `status`."""
        self._until_s = 0.0
        self._calm: tuple[PathQuality, int] | None = None
        """The path that is taken alone for a while, and how many were lost on it until then."""
        self._versions = -1
        self._budget_s = 0.0
        self._primary: str | None = None
        self._overdue_s: dict[str, float] = {}
        self._has_stall = False
        self._copies_until_s = 0.0
        self._faster_since_s: float | None = None
        self._left_slow = 0
        """How often the preferred path was left only because another was faster."""
        self._left_slow_s = 0.0
        self._returns: dict[str, PathReturn] = {}

    def choose(
        self,
        paths: Sequence[PathQuality],
        budget_s: float,
        now_s: float,
        *,
        clock_error_s: float = 0.0,
        outstanding_s: Mapping[str, float] = _NOTHING_OUTSTANDING,
        can_hedge: bool = False,
    ) -> Choice:
        """`paths` in order of preference; `budget_s`: deadline minus the age of the batch's oldest
        sample; `clock_error_s`: how wrong the delays may be because of the clocks;
        `outstanding_s`: for each path the age of its oldest batch (or probe) not confirmed yet;
        `can_hedge`: whether batches are confirmed one by one and the caller keeps them."""
        choice = self.choice
        if (
            choice is not None
            and now_s < self._until_s
            and abs(budget_s - self._budget_s) <= _BUDGET_TOLERANCE * abs(self._budget_s)
            and _versions_of(paths) == self._versions
            and self._is_stalled(outstanding_s) == self._has_stall
            and (self._calm is None or _is_calm(*self._calm, budget_s))
        ):
            return choice
        self._versions = _versions_of(paths)
        self._until_s = now_s + DECISION_S
        self._budget_s = budget_s
        self._overdue_s = {each.name: each.overdue_s for each in paths}
        self._has_stall = self._is_stalled(outstanding_s)
        usable = [each for each in paths if each.is_up]
        self.choice = self._decide(usable, budget_s, now_s, clock_error_s, outstanding_s, can_hedge)
        self._calm = None
        if paths and not self._has_stall and self.choice.paths == (paths[0].name,):
            calm = paths[0], paths[0].lost
            if _is_calm(*calm, budget_s):
                self._calm = calm
                self._until_s = now_s + CALM_S
        return self.choice

    def is_calm(self, paths: Sequence[PathQuality], now_s: float) -> bool:
        """Whether the last choice holds for a while, as long as nothing stalls: one need not even
        ask."""
        return (
            self._calm is not None
            and now_s < self._until_s
            and _versions_of(paths) == self._versions
            and _is_calm(*self._calm, self._budget_s)
        )

    def reconsider(self) -> None:
        """The next choice is made anew: it is between other paths than the last."""
        self._until_s = 0.0

    def _is_stalled(self, outstanding_s: Mapping[str, float]) -> bool:
        overdue_s = self._overdue_s
        return any(age_s > overdue_s.get(name, age_s) for name, age_s in outstanding_s.items())

    def _decide(
        self,
        usable: list[PathQuality],
        budget_s: float,
        now_s: float,
        clock_error_s: float,
        outstanding_s: Mapping[str, float],
        can_hedge: bool,
    ) -> Choice:
        if not usable:
            return Choice((), "no path is up")
        if self.mode is Mode.SINGLE:
            return _first_that_answers(usable, outstanding_s)
        if len(usable) == 1:
            return Choice((usable[0].name,), f"{usable[0].name} alone: no other path is up")
        if self.mode is Mode.DUPLICATE:
            return Choice(tuple(each.name for each in usable), "all paths: mode duplicate")
        budgets = budgets_of(budget_s, clock_error_s)
        outlooks = [
            look(each, budgets, now_s, outstanding_s.get(each.name, 0.0)) for each in usable
        ]
        primary = self._choose_primary(outlooks, budget_s, now_s)
        others = [each for each in outlooks if each is not primary]
        if (
            self.choice is not None
            and not self._is_taken(primary)
            and most_rescued(others) > self.target
        ):
            # It lay idle, so it may stall as well: both are used until it has shown itself.
            shown_s = now_s + HOLD_S + min(HOLD_MOST_S, primary.quality.overdue_s)
            self._copies_until_s = max(self._copies_until_s, shown_s)
        risk = risk_of([primary], others)
        hedge, hedged_risk = None, risk
        if can_hedge:
            hedge, hedged_risk = plan_hedge(primary, others, budgets, now_s, self.target)
        has_copies = self.choice is not None and len(self.choice.paths) > 1
        limit = self.target * (LEAVING_SHARE if has_copies else 1.0)
        tried = [each for each in others if self._return_of(each.quality).is_trying]
        if min(risk, hedged_risk) > limit:
            self._copies_until_s = max(self._copies_until_s, now_s + HOLD_S)
        elif now_s >= self._copies_until_s and not tried:
            return self._alone(primary, others, budget_s, hedge, min(risk, hedged_risk))
        return self._copied(primary, tried, others, budget_s, now_s, risk)

    # ------------------------------------------------------------ the first path

    def _choose_primary(self, outlooks: list[Outlook], budget_s: float, now_s: float) -> Outlook:
        """The path whose misses the others could help least; among equals the preferred one that
        is not clearly slower than another. The one in use is kept while it is as good, or the
        better one has not proven to be so for long."""
        risks = {
            each.quality.name: max(
                risk_of([each.as_usual], [other for other in outlooks if other is not each]),
                self.target,
            )
            for each in outlooks
        }
        alike = ALIKE * min(risks.values())
        best = _fastest([each for each in outlooks if risks[each.quality.name] <= alike])
        current = next((each for each in outlooks if each.quality.name == self._primary), None)
        if current is not None:
            risk = risks[current.quality.name]
            for at, each in enumerate(outlooks):
                if risks[each.quality.name] > risk:
                    is_preferred = at < outlooks.index(current)
                    self._consider_return(each, current, is_preferred, budget_s, now_s)
        is_preferred = current is not None and outlooks.index(best) < outlooks.index(current)
        if current is None:
            self._faster_since_s = None
        elif risks[current.quality.name] > alike:
            self._faster_since_s = None
            self._return_of(current.quality).leave(now_s)
        elif not (is_preferred or _is_clearly_faster(best.quality, current.quality)):
            self._faster_since_s = None
            return current
        elif self._return_of(best.quality).is_trying or (is_preferred and self._is_taken(best)):
            self._faster_since_s = None
        elif self._faster_since_s is None:
            self._faster_since_s = now_s
            return current
        elif now_s - self._faster_since_s < self._patience_s(is_preferred, now_s):
            return current
        else:
            self._faster_since_s = None
            if not is_preferred:
                self._left_slow = min(_FASTER_DOUBLINGS, 1 + self._times_left_slow(now_s))
                self._left_slow_s = now_s
        self._primary = best.quality.name
        self._return_of(best.quality).rest()
        return best

    def _is_taken(self, outlook: Outlook) -> bool:
        return self.choice is not None and outlook.quality.name in self.choice.paths

    def _patience_s(self, is_preferred: bool, now_s: float) -> float:
        """How long a better path has to be so."""
        if is_preferred:
            return FASTER_S
        return min(FASTER_MOST_S, FASTER_S * 2.0 ** self._times_left_slow(now_s))

    def _times_left_slow(self, now_s: float) -> int:
        return self._left_slow if now_s - self._left_slow_s < FASTER_CALM_S else 0

    def _consider_return(
        self, riskier: Outlook, current: Outlook, is_preferred: bool, budget_s: float, now_s: float
    ) -> None:
        """A faster path, or the preferred one if it is no slower, that only memory speaks against,
        or that too little is known of, is tried after a while."""
        quality = riskier.quality
        if _is_clearly_faster(quality, current.quality) or (
            is_preferred and not _is_clearly_faster(current.quality, quality)
        ):
            is_fine = not riskier.is_stalled and quality.is_fine(budget_s, now_s)
            self._return_of(quality).consider(
                quality, budget_s, now_s, self.target, is_fine=is_fine
            )
        else:
            self._return_of(quality).rest()

    def _return_of(self, quality: PathQuality) -> PathReturn:
        return self._returns.setdefault(quality.name, PathReturn())

    # ------------------------------------------------------------ the answers

    def _alone(
        self,
        primary: Outlook,
        others: list[Outlook],
        budget_s: float,
        hedge: Hedge | None,
        risk: float,
    ) -> Choice:
        name = primary.quality.name
        late = primary.usual_late
        stalled = [each.quality.name for each in others if each.is_stalled]
        is_hopeless = late > 0.5
        if is_hopeless:
            why = (
                f"{name} alone: no path meets {_ms(budget_s)}, "
                f"{name} takes {_ms(_level_s(primary.quality))} and a copy would not help"
            )
        else:
            why = (
                f"{name} alone: takes {_ms(_level_s(primary.quality))} of {_ms(budget_s)}, "
                f"a copy would save {_percent(risk)} of the samples"
            )
        if stalled:
            why += f"; {', '.join(stalled)} stalled"
        if hedge is not None:
            why += f"; a copy on {hedge.path} after {_ms(hedge.after_s)} without confirmation"
        return Choice((name,), why, hedge, risk, is_hopeless)

    def _copied(
        self,
        primary: Outlook,
        tried: list[Outlook],
        others: list[Outlook],
        budget_s: float,
        now_s: float,
        risk: float,
    ) -> Choice:
        taken, left = [primary, *tried], [each for each in others if each not in tried]
        while left and (len(taken) == 1 or risk_of(taken, left) > self.target):
            addition = min(
                left,
                key=lambda each: risk_of([*taken, each], [it for it in left if it is not each]),
            )
            taken.append(addition)
            left.remove(addition)
        names = tuple(each.quality.name for each in taken)
        title = " and ".join(names)
        name = primary.quality.name
        known = primary.quality.known(now_s)
        needed = 0.5 / self.target
        late = primary.usual_late
        if primary.is_stalled:
            why = f"{title}: {name} is stalled, nothing confirmed for longer than usual"
        elif tried:
            again = " and ".join(each.quality.name for each in tried)
            why = f"{title}: trying {again} again, which is faster and seems to be in time"
        elif risk <= self.target:
            why = f"{title}: for a moment, until {name} has shown to be good enough alone"
        elif known < needed and late * (known + 1.0) < 1.0:
            why = f"{title}: still learning {name}, {known:.0f} of {needed:.0f} delays observed"
        else:
            why = (
                f"{title}: {name} alone misses {_ms(budget_s)} with "
                f"{_percent(late)}, "
                f"a copy saves {_percent(risk)} of the samples, target {_percent(self.target)}"
            )
        return Choice(names, why, None, risk_of(taken, left))


# ---------------------------------------------------------------- comparing


def _first_that_answers(usable: list[PathQuality], outstanding_s: Mapping[str, float]) -> Choice:
    """One that is silent has been cut, most likely, and nobody has noticed yet."""
    for each in usable:
        if outstanding_s.get(each.name, 0.0) <= each.silent_s:
            break
    else:
        each = usable[0]
    why = f"{each.name} alone: mode single"
    if each is not usable[0]:
        why += f", {usable[0].name} is silent"
    return Choice((each.name,), why)


def _versions_of(paths: Sequence[PathQuality]) -> int:
    return sum([each.version for each in paths], len(paths))


def _is_calm(quality: PathQuality, lost: int, budget_s: float) -> bool:
    worst_s = quality.worst_lately_s
    return worst_s is not None and worst_s <= CALM_SHARE * budget_s and quality.lost == lost


def _fastest(outlooks: Sequence[Outlook]) -> Outlook:
    """The first that none is clearly faster than: what is preferred costs less."""
    fastest = min(outlooks, key=lambda each: _level_s(each.quality))
    return next(each for each in outlooks if not _is_clearly_faster(fastest.quality, each.quality))


def _level_s(quality: PathQuality) -> float:
    return quality.level_s if quality.level_s is not None else 1e9


def _is_clearly_faster(one: PathQuality, other: PathQuality) -> bool:
    return _level_s(one) < min(
        _level_s(other) - FASTER_LEAST_S,
        _level_s(other) - (1.0 - FASTER_SHARE) * abs(_level_s(other)),
    )


# ---------------------------------------------------------------- words


def _ms(seconds: float) -> str:
    return f"{round(seconds * 1e3)} ms" if seconds < 1e6 else "an unknown time"


def _percent(share: float) -> str:
    return f"{share * 100:.2g} %"
