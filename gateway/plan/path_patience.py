"""How long the samples of a deadline topic wait for company on paths that lose packets. Pure;
called by the edge broker's sending side whenever it chooses paths.

On a long path that loses packets each loss holds up all that is sent in the next round trip. Losses
come with packets, not with bytes, so samples that travel together are held up less often, and cost
fewer bytes, than those that travel each alone. What the wait adds is a small part of what the path
takes anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.plan.path_choice import DEFAULT_TARGET
from gateway.plan.path_quality import PathQuality

WAIT_SHARE = 0.08
"""Of what the fastest of the paths takes."""
SLACK_SHARE = 0.5
"""Of the time a sample has left when it arrives as it usually does."""
HELD_UP_FACTOR = 2.0
"""What takes so many times as long as the fastest has been held up: by jitter it is less …"""
HELD_UP_SHARE = 0.05
"""… and a path does that to so many samples or is not worth waiting for."""
KNOWN_LEAST = 50.0
"""Delays of each path: less is guessing."""
COMPANY_LEAST = 1.0
"""Samples to be expected while one waits."""
WAIT_LEAST_S = 0.002
"""Timers are no finer than a millisecond."""
LATER_MOST = 1.2
"""By this factor more may come late because they waited: far fewer are to be held up."""


def patience_s(
    paths: Sequence[PathQuality],
    deadline_s: float,
    samples_per_s: float,
    now_s: float,
    *,
    most_s: float,
    target: float = DEFAULT_TARGET,
) -> float:
    """For the paths its samples take now; 0: each goes at once. `samples_per_s`: of all topics that
    go the same way. `target`: the share of samples that may miss the deadline."""
    levels = [each.level_s for each in paths if each.level_s is not None]
    if not levels or len(levels) < len(paths):
        return 0.0
    wait_s = min(most_s, WAIT_SHARE * min(levels))
    # Where it is late anyway it loses little.
    for level_s in levels:
        if level_s < deadline_s:
            wait_s = min(wait_s, SLACK_SHARE * (deadline_s - level_s))
    if wait_s < WAIT_LEAST_S or samples_per_s * wait_s < COMPANY_LEAST:
        return 0.0
    if min(each.known(now_s) for each in paths) < KNOWN_LEAST:
        return 0.0
    if not any(
        holds_up(path, level_s, now_s) or path.is_repaired
        for path, level_s in zip(paths, levels, strict=True)
    ):
        return 0.0
    too_close = any(_is_too_close(each, deadline_s, wait_s, now_s, target) for each in paths)
    return 0.0 if too_close else wait_s


def holds_up(path: PathQuality, level_s: float, now_s: float) -> bool:
    """Whether what a path loses delays what is sent behind it."""
    return path.miss_probability(HELD_UP_FACTOR * level_s, now_s) >= HELD_UP_SHARE


def _is_too_close(
    path: PathQuality, deadline_s: float, wait_s: float, now_s: float, target: float
) -> bool:
    """Whether the wait itself would make samples late."""
    late = path.miss_probability(deadline_s, now_s)
    return path.miss_probability(deadline_s - wait_s, now_s) > LATER_MOST * late + target
