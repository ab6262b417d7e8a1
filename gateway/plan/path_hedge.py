"""Whether a copy can wait: sent on a second path only if the first has confirmed nothing when it is
high time. Pure; called by path_choice.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.plan.path_outlook import Outlook, along

UNCONFIRMED_MOST = 0.15
"""A copy that would have to be sent for more batches than this can as well be sent at once."""
LATE_MOST = 0.2
"""Nor is it worth waiting for a first copy that is late more often than this."""
KNOWN_LEAST = 50.0
"""Delays of the second path: less is guessing how long a copy takes."""
SLACK_S = 0.01
"""Between the time a copy is due and its sending, in the worst case."""
_LATEST_SHARES = (0.95, 0.8, 0.6)


@dataclass(frozen=True, slots=True)
class Hedge:
    """Send a copy on `path` if the batch is not confirmed `after_s` after it was sent."""

    path: str
    after_s: float


def plan_hedge(
    first: Outlook,
    others: Sequence[Outlook],
    budgets_s: tuple[float, ...],
    now_s: float,
    target: float,
) -> tuple[Hedge | None, float]:
    """The best path and time for a second copy, and the risk left then: that the first is late and
    the second would have been in time only if sent at once."""
    if first.is_stalled or first.usual_late > LATE_MOST or not first.quality.is_confirming:
        return None, 1.0
    overdue_s = first.quality.overdue_s
    best: tuple[Hedge | None, float] = (None, 1.0)
    for other in others:
        if other.is_stalled or other.quality.known(now_s) < KNOWN_LEAST:
            continue
        level_s = other.quality.level_s
        latest_s = 0.0 if level_s is None else min(budgets_s) - level_s - SLACK_S
        # Few batches are overdue, so that time costs little. Where it is too late a copy is due
        # while more are under way: the later the fewer.
        for after_s in (overdue_s, *(share * latest_s for share in _LATEST_SHARES)):
            if not 0.0 < after_s <= overdue_s:
                continue
            unconfirmed = first.quality.unconfirmed_share(after_s, now_s)
            if after_s < overdue_s and unconfirmed > UNCONFIRMED_MOST:
                continue
            risk = _risk(first, other, budgets_s, after_s + SLACK_S, now_s)
            if risk < best[1]:
                best = (Hedge(other.quality.name, after_s), risk)
            if risk <= 0.5 * target:
                break
    return best


def _risk(
    first: Outlook, other: Outlook, budgets_s: tuple[float, ...], after_s: float, now_s: float
) -> float:
    left_s = tuple([each - after_s for each in budgets_s])
    too_late = along(other.quality.miss_probability, left_s, now_s)
    if too_late[len(too_late) // 2] > 0.5:
        return 1.0
    return max(
        late * max(0.0, rescue - (1.0 - missed))
        for late, rescue, missed in zip(first.late, other.rescue, too_late, strict=True)
    )
