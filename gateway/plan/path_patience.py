"""How long the samples of a deadline topic wait for company on paths that lose packets. Pure;
called by the edge broker's sending side whenever it chooses paths.

On a long path that loses packets each loss holds up all that is sent in the next round trip. Losses
come with packets, not with bytes, so samples that travel together are held up less often, and cost
fewer bytes, than those that travel each alone. What the wait adds is a small part of what the path
takes anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.plan.path_quality import PathQuality

WAIT_SHARE = 0.08
"""Of what the fastest of the paths takes."""
SLACK_SHARE = 0.5
"""Of the time a sample has left when it arrives as it usually does."""
HELD_UP_FACTOR = 1.5
"""What takes so many times as long as usual has been held up …"""
HELD_UP_SHARE = 0.05
"""… and a path does that to so many samples or is not worth waiting for."""
COMPANY_LEAST = 1.0
"""Samples to be expected while one waits."""


def patience_s(
    paths: Sequence[PathQuality],
    deadline_s: float,
    samples_per_s: float,
    now_s: float,
    *,
    most_s: float,
) -> float:
    """For the paths its samples take now; 0: each goes at once. `samples_per_s`: of all topics that
    go the same way."""
    levels = [each.level_s for each in paths if each.level_s is not None]
    if not levels or len(levels) < len(paths):
        return 0.0
    wait_s = min(most_s, WAIT_SHARE * min(levels))
    # Where it is late anyway it loses little.
    for level_s in levels:
        if level_s < deadline_s:
            wait_s = min(wait_s, SLACK_SHARE * (deadline_s - level_s))
    if samples_per_s * wait_s < COMPANY_LEAST:
        return 0.0
    return wait_s if any(_holds_up(each, now_s) for each in paths) else 0.0


def _holds_up(path: PathQuality, now_s: float) -> bool:
    if path.level_s is None:
        return False
    return path.miss_probability(HELD_UP_FACTOR * path.level_s, now_s) >= HELD_UP_SHARE
