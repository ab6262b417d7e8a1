"""What is remembered of the delays of one path, and what they say of the next one. Pure; called by
path_quality.py only.

A delay is taken apart into the path's level (what it typically takes now, known after a second or
two) and the excess over it (queues, retransmissions, stalls: learned over thousands of delays). So
a path that gets slower or faster is known at once without unlearning how it behaves.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from itertools import accumulate
from math import exp, inf, isinf, log2

WINDOW_S = 2.0
"""The level follows what came within this time."""
WINDOW_LEAST = 5
"""… but is never made of fewer delays than these, however old."""
WINDOW_MOST = 256
LEVEL_SHARE = 0.05
"""The level is this quantile of the window: it holds still while most are late, as they are when
each lost packet of a long path holds up half a second of those behind it."""
MEMORY_COUNT = 4000
"""So many excesses are remembered in full, then all count half: rare misses (0.1 %) must still be
seen, and what a path did an hour ago should not."""
MEMORY_S = 20.0
"""… but never faster than this: a flood of samples says little about other moments."""
INDEPENDENT_PER_S = 200.0
"""Delays closer together than this are not news of their own."""
STALE_S = 30.0
"""Knowledge older than this fades, by a factor of e in the same time again."""
HABIT_LEAST = 3
"""Lateness that came so often, or less, is no habit: each time something failed and was over."""
FLOOR_SHARE = 0.8
"""No delay is below this share of the fastest one remembered, however few were seen: a distance
does not shrink by chance. When the path is another one, the next probe says so."""

STEADY_S = 0.005
STEADY_SHARE = 0.25

_PER_OCTAVE = 6
_FINEST_S = 0.00025
_SIDE = 97  # up to 16 s either way
_LOST = 2 * _SIDE + 1
_SIZE = _LOST + 1
_TABLE_S = 0.05


def _bucket(excess_s: float) -> int:
    ratio = abs(excess_s) / _FINEST_S
    if ratio < 1.0:
        return _SIDE
    if isinf(ratio):
        return _LOST if excess_s > 0 else 0
    steps = min(int(log2(ratio) * _PER_OCTAVE) + 1, _SIDE)
    return _SIDE + steps if excess_s > 0 else _SIDE - steps


def _upper_edge_s(bucket: int) -> float:
    if bucket >= _LOST:
        return inf
    steps = bucket - _SIDE
    if steps >= 0:
        return _FINEST_S * float(2 ** (steps / _PER_OCTAVE))
    return -_FINEST_S * float(2 ** ((-steps - 1) / _PER_OCTAVE))


class DelayHistory:
    """Memory and time per call are bounded; a few microseconds per delay."""

    def __init__(self) -> None:
        self.level_s: float | None = None
        self.count = 0
        """All delays ever observed."""
        self.last_s = -inf
        """When the last one was."""
        self.last_delay_s = 0.0
        self._window: deque[tuple[float, float]] = deque()
        self._sorted: list[float] = []
        self._room = WINDOW_MOST / 4
        self._room_s = 0.0
        self._total = 0.0
        self._since_s = 0.0
        """The memory covers the time since then, roughly."""
        self._halved_s = 0.0
        self._counts = [0.0] * _SIZE
        self._rises = [0.0] * (_SIZE + 1)
        """Differences: their sum up to a bucket is how often it was risen to from below."""
        self._latest = [-1] * _SIZE
        """Number of the last delay in each bucket."""
        self._previous = _SIDE
        self._fastest_s = inf
        self._fastest_before_s = inf
        """Before the memory was last halved."""
        self._table_s = -inf
        self._table_count = -1
        self._late: list[float] = []
        self._episodes: list[float] = []
        self._latest_late: list[int] = []

    # ------------------------------------------------------------ learning

    def observe(self, delay_s: float, now_s: float) -> None:
        """`delay_s` may be infinite (lost) or, with clocks that disagree, negative."""
        if self.count == 0:
            self._since_s = self._halved_s = self._room_s = now_s
        if self.level_s is None and not isinf(delay_s):
            self.level_s = delay_s
        excess_s = delay_s - self.level_s if self.level_s is not None else inf
        bucket = _bucket(excess_s)
        self.count += 1
        self._total += 1.0
        self._counts[bucket] += 1.0
        if bucket > self._previous:
            self._rises[self._previous + 1] += 1.0
            self._rises[bucket + 1] -= 1.0
        self._previous = bucket
        self._latest[bucket] = self.count
        self._fastest_s = min(self._fastest_s, delay_s)
        self.last_s = now_s
        self.last_delay_s = delay_s
        self._slide(delay_s, now_s)
        if self._total >= MEMORY_COUNT and now_s - self._halved_s >= MEMORY_S:
            self._fade(now_s)

    def pardon(self, budget_s: float) -> None:
        """Delays above the budget become usual ones, but for the share that is a habit."""
        if self.level_s is None:
            return
        habit = self.habitual_share(budget_s) * self._total
        first = _bucket(budget_s - self.level_s)
        late = sum(self._counts[first:])
        if late <= habit:
            return
        self._counts[first:] = [each * habit / late for each in self._counts[first:]]
        self._counts[min(_SIDE, max(0, first - 1))] += late - habit
        self._table_count = -1

    def restart(self) -> None:
        """What follows may have another level; how the path behaves is still remembered."""
        self._window.clear()
        self._sorted.clear()
        self._fastest_s = self._fastest_before_s = inf

    def shift(self, by_s: float) -> None:
        """All delays so far were in fact so much longer: the clocks were compared wrongly. Excesses
        are what they were."""
        if self.level_s is not None:
            self.level_s += by_s
        self.last_delay_s += by_s
        self._window = deque((at_s, delay_s + by_s) for at_s, delay_s in self._window)
        self._sorted = [delay_s + by_s for delay_s in self._sorted]
        self._fastest_s += by_s
        self._fastest_before_s += by_s

    def _slide(self, delay_s: float, now_s: float) -> None:
        window, ordered = self._window, self._sorted
        # In a flood every delay enters the memory, but only some the window: else it would tell of
        # a moment only. Delays are reported several at a time, hence the saving up.
        room = self._room + (now_s - self._room_s) * WINDOW_MOST / WINDOW_S
        self._room = min(room, WINDOW_MOST / 4)
        self._room_s = now_s
        if self._room < 1.0 and len(window) >= WINDOW_LEAST:
            return
        self._room -= 1.0
        window.append((now_s, delay_s))
        insort(ordered, delay_s)
        horizon_s = now_s - WINDOW_S
        while len(window) > WINDOW_MOST or (
            len(window) > WINDOW_LEAST and window[0][0] < horizon_s
        ):
            del ordered[bisect_left(ordered, window.popleft()[1])]
        level_s = ordered[int(len(ordered) * LEVEL_SHARE)]
        if not isinf(level_s):
            self.level_s = level_s

    def _fade(self, now_s: float) -> None:
        self._counts = [each * 0.5 for each in self._counts]
        self._rises = [each * 0.5 for each in self._rises]
        self._total *= 0.5
        self._since_s = now_s - 0.5 * (now_s - self._since_s)
        self._halved_s = now_s
        self._fastest_before_s, self._fastest_s = self._fastest_s, inf

    # ------------------------------------------------------------ telling

    @property
    def is_settled(self) -> bool:
        """Whether enough came since the start or a restart to know the level."""
        return len(self._window) >= WINDOW_LEAST

    @property
    def worst_lately_s(self) -> float:
        """Of those the level is made of."""
        return self._sorted[-1] if self._sorted else inf

    def known(self, now_s: float) -> float:
        """How many independent delays the memory is worth now."""
        known = min(self._total, 1.0 + INDEPENDENT_PER_S * (now_s - self._since_s))
        if not self.is_settled:
            known = min(known, float(len(self._window)))
        age_s = now_s - self.last_s
        if age_s > STALE_S:
            known *= exp(1.0 - age_s / STALE_S)
        return known

    def late_share(self, budget_s: float, now_s: float, *, hopeful: bool = False) -> float:
        """The expected share of delays above the budget, from what is remembered: the mean under
        Jeffreys' prior, hence 1/2 for a path nothing is known of and 0.1 % after 500 delays
        none of which was late. Delays too close to the budget to tell count as late, or as in
        time when `hopeful`.

        A kind of lateness that has not come back for much longer than it used to stay away is
        over: then only what came since counts.
        """
        known = self.known(now_s)
        if self.level_s is None or known <= 0.0:
            return 0.5 if known <= 0.0 else (known + 0.5) / (known + 1.0)
        if budget_s < self._fastest_s and budget_s < self._fastest_before_s:
            # A level that stalls push up and down would make the impossible look possible.
            fastest_s = min(self._fastest_s, self._fastest_before_s)
            if self.is_settled and budget_s < FLOOR_SHARE * fastest_s:
                return 1.0
            return (known + 0.5) / (known + 1.0)
        self._tabulate(now_s)
        bucket = _bucket(budget_s - self.level_s)
        if hopeful and bucket < _LOST:
            bucket += 1
        late = self._late[bucket]
        total = self._late[0]
        share = (late / total * known + 0.5) / (known + 1.0)
        if late <= 0.0:
            return share
        since = self.count - self._latest_late[bucket]
        surprise = self._episodes[bucket] / total * since
        if surprise <= 3.0:
            return share
        same = exp(3.0 - surprise)
        return same * share + (1.0 - same) * 0.5 / (min(since, known) + 1.0)

    def recently_late(self, budget_s: float) -> float:
        """The share of the latest delays above the budget."""
        ordered = self._sorted
        if not ordered:
            return 0.0
        return 1.0 - bisect_right(ordered, budget_s) / len(ordered)

    def habitual_share(self, budget_s: float) -> float:
        """The share of delays that were the beginning of a lateness above the budget which is more
        than a few single failures, each counted once however long it was."""
        if self.level_s is None:
            return 1.0
        episodes = sum(self._rises[: _bucket(budget_s - self.level_s) + 1])
        return max(0.0, episodes - HABIT_LEAST) / self._total

    @property
    def is_steady(self) -> bool:
        """Whether the latest delays are alike."""
        latest = [self._window[-1 - at][1] for at in range(min(WINDOW_LEAST, len(self._window)))]
        if self.level_s is None or len(latest) < WINDOW_LEAST:
            return False
        return max(latest) - self.level_s <= STEADY_S + STEADY_SHARE * abs(self.level_s)

    def quantile(self, share: float) -> float | None:
        """The delay that this share does not exceed (never too small, at most 12 % of its excess
        too large), infinite when more is lost; None when nothing is known."""
        if self.level_s is None:
            return None
        self._tabulate(self.last_s)
        most = (1.0 - share) * self._late[0]
        low, high = 0, _LOST
        while low < high:
            middle = (low + high) // 2
            if self._late[middle + 1] <= most:
                high = middle
            else:
                low = middle + 1
        return self.level_s + _upper_edge_s(low)

    def _tabulate(self, now_s: float) -> None:
        if self._table_count == self.count or (
            now_s - self._table_s < _TABLE_S and self._table_count > 0.9 * self.count
        ):
            return
        self._table_s = now_s
        self._table_count = self.count
        self._late = list(accumulate(reversed(self._counts)))[::-1]
        self._late.append(0.0)
        self._episodes = list(accumulate(self._rises))
        self._latest_late = list(accumulate(reversed(self._latest), max))[::-1]
