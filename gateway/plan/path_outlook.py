"""How paths look to one batch: how likely each misses its deadline, and how likely several do
though another would not have. Pure; called by path_choice.py and path_hedge.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from operator import mul

from gateway.plan.path_quality import PathQuality

BRIDGED_S = 1.0
"""Copies bridge a stall that is no longer than this: most are over sooner than a path that was left
could be returned to."""
_ERROR_STEPS = (-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True)
class Outlook:
    """One path and this budget, for each clock error considered."""

    quality: PathQuality
    usually_late: tuple[float, ...]
    """As if it did not stall, unless it does so for long: what speaks for keeping to it."""
    late: tuple[float, ...]
    rescue: tuple[float, ...]
    is_stalled: bool

    @property
    def usual_late(self) -> float:
        """Were the clocks known exactly."""
        return self.late[len(self.late) // 2]

    @property
    def as_usual(self) -> Outlook:
        """Were it not for a short stall."""
        if not self.is_stalled:
            return self
        usual = self.usually_late
        return Outlook(self.quality, usual, usual, self.rescue, is_stalled=False)


def budgets_of(budget_s: float, clock_error_s: float) -> tuple[float, ...]:
    """The middle one is the budget itself."""
    if clock_error_s <= 0.0:
        return (budget_s,)
    return tuple(budget_s + step * clock_error_s for step in _ERROR_STEPS)


def along(
    probability: Callable[[float, float], float], budgets_s: tuple[float, ...], now_s: float
) -> tuple[float, ...]:
    """For each of the budgets, which ascend. Mostly the clock error is too small to matter: where
    both ends say the same so does what lies between."""
    first = probability(budgets_s[0], now_s)
    last = probability(budgets_s[-1], now_s)
    if first == last:
        return (first,) * len(budgets_s)
    return (first, *[probability(each, now_s) for each in budgets_s[1:-1]], last)


def look(
    quality: PathQuality, budgets_s: tuple[float, ...], now_s: float, outstanding_s: float
) -> Outlook:
    is_stalled = outstanding_s > quality.overdue_s
    rescue = along(quality.rescue_probability, budgets_s, now_s)
    certainly = (1.0,) * len(budgets_s)
    if outstanding_s > quality.overdue_s + BRIDGED_S:
        usually_late = certainly
    else:
        usually_late = along(quality.miss_probability, budgets_s, now_s)
    late = certainly if is_stalled else usually_late
    return Outlook(quality, usually_late, late, rescue, is_stalled)


def risk_of(taken: Sequence[Outlook], left: Sequence[Outlook]) -> float:
    """That all of `taken` are late and one of `left` would not have been, for the clock error that
    makes it worst. Paths are taken as independent: when they fail together a copy is worth less,
    so that errs towards sending it."""
    if len(taken) == len(left) == 1:
        both: Iterator[float] = map(mul, taken[0].late, left[0].rescue)
        return max(both)
    return max(
        prod([each.late[step] for each in taken])
        * (1.0 - prod([1.0 - each.rescue[step] for each in left]))
        for step in range(len(taken[0].late))
    )


def most_rescued(left: Sequence[Outlook]) -> float:
    """What copies on all of `left` would rescue if nothing else were in time."""
    return max(
        1.0 - prod([1.0 - each.rescue[step] for each in left])
        for step in range(len(left[0].rescue))
    )
