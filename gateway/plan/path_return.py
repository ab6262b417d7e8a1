"""When a faster path than the one in use is taken again: one that was left because it failed, or
that has just come. Pure; called by path_choice.py for every choice, one for each path.

What is remembered of a path speaks against it for minutes, and probes are too few to acquit it. So
a path whose probes are in time is *tried*: it gets copies of what goes over the path in use, until
they have shown that it is good enough alone. A failure of seconds is then forgiven, unless it is
one of many. Each time the path has to be left again it is waited for twice as long.
"""

from __future__ import annotations

from gateway.plan.path_quality import PathQuality

RETURN_S = 1.0
"""Its probes are in time for so long before a path is tried: a failure is over, or it is new."""
RETURN_DOUBTFUL_S = 30.0
"""… if it was late time and again. Only what copies show may say that it no longer is."""
RETURN_MOST_S = 600.0
CALM_S = 300.0
"""After so long without having been left a path is waited for as if it never had been."""
_MOST_DOUBLINGS = 10
"""More change nothing: the wait is as long as it gets."""
TRIAL_S = 1.0
TRIAL_DOUBTFUL_MOST_S = 30.0


class PathReturn:
    """One path of one chooser."""

    def __init__(self) -> None:
        self.trying_since_s: float | None = None
        """Copies go over it since then."""
        self._departures = 0
        self._departed_s = 0.0
        self._fine_since_s: float | None = None

    @property
    def is_trying(self) -> bool:
        return self.trying_since_s is not None

    def leave(self, now_s: float) -> None:
        """It was in use and failed, or was tried and did."""
        if now_s - self._departed_s > CALM_S:
            self._departures = 0
        self._departures += 1
        self._departed_s = now_s
        self.rest()

    def rest(self) -> None:
        """It is in use, or no better than what is."""
        self.trying_since_s = self._fine_since_s = None

    def consider(
        self, quality: PathQuality, budget_s: float, now_s: float, target: float, *, is_fine: bool
    ) -> None:
        """It is faster than the path in use, but what is remembered speaks against it. `is_fine`:
        nothing that was seen of it in the latest seconds does."""
        if not is_fine:
            if self.is_trying:
                self.leave(now_s)
            self._fine_since_s = None
            return
        if self._fine_since_s is None:
            self._fine_since_s = now_s
        is_doubtful = quality.habitual_share(budget_s) > target
        if self.trying_since_s is None:
            wait_s = RETURN_DOUBTFUL_S if is_doubtful else RETURN_S
            doublings = min(_MOST_DOUBLINGS, max(0, self._departures - 1))
            wait_s = min(RETURN_MOST_S, wait_s * 2**doublings)
            if now_s - self._fine_since_s >= wait_s:
                self.trying_since_s = now_s
        elif is_doubtful:
            if now_s - self.trying_since_s > TRIAL_DOUBTFUL_MOST_S:
                self.leave(now_s)
        elif now_s - self.trying_since_s >= TRIAL_S + min(TRIAL_S, quality.overdue_s):
            quality.pardon(budget_s)
