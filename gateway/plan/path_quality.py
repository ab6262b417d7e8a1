"""One path between two edges as its sender knows it from reports and probes: how likely a sample
misses its deadline on it, whether it is stalled, when to probe it. Shared by all topics of the pair
of edges. Pure; fed by the edge brokers, asked by path_choice.py and for `status`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isinf, sqrt

from gateway.plan.delay_history import DelayHistory

PROBE_S = 1.0
PROBE_SOON_S = 0.2
PROBE_LATE_S = 10.0
PROBE_SHARE = 0.02
PROBE_SOON_SHARE = 0.05
"""An idle path is probed about once a second, sooner while its latest delays differ, it has just
come up, or no path is in time; never more often than this share of the batches sent to that
edge, but every PROBE_LATE_S."""
CONFIRMATIONS_LEAST = 20
SILENT_FACTOR = 2.0
SILENT_LEAST_S = 0.25
_STALL_SLACK_S = 0.005


@dataclass(frozen=True, slots=True)
class PathSummary:
    """One path for people: `status`, logs. Times in seconds; None where nothing is known."""

    name: str
    is_up: bool
    observations: int
    level_s: float | None
    """What the path typically takes now."""
    median_s: float | None
    p99_s: float | None
    p999_s: float | None
    lost: int
    overdue_s: float
    age_s: float | None
    """Since the last delay was observed."""


class PathQuality:
    """`name` is what choices call the path: express, routed, standby."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_up = True
        self.version = 0
        """Changes when the path goes up or down: cached choices end."""
        self.lost = 0
        self.is_repaired = False
        """It loses packets, and repair data is sent for them: bytes for each packet."""
        self._delays = DelayHistory()
        self._confirmations = DelayHistory()
        self._probed_s = -inf
        self._overdue_s = inf
        self._overdue_count = -1

    def __repr__(self) -> str:
        level_s = self._delays.level_s
        level = "unknown" if level_s is None else f"{level_s * 1e3:.1f} ms"
        state = "up" if self.is_up else "down"
        return f"<PathQuality {self.name} {state}, {level}, {self._delays.count} delays>"

    # ------------------------------------------------------------ learning

    def observe(self, delay_s: float, now_s: float) -> None:
        """A batch or a probe took this long one way, clock offset corrected; losing copies too."""
        self._delays.observe(delay_s, now_s)

    def observe_confirmation(self, round_trip_s: float, now_s: float) -> None:
        """From sending a batch on this path until its arrival was known here, whichever way that
        was told: what `overdue_s` is made from."""
        self._confirmations.observe(round_trip_s, now_s)

    def observe_loss(self, count: int, now_s: float) -> None:
        """Batches sent on this path that never arrived."""
        self.lost += count
        # One episode of a hundred in a row and a hundred of one are both remembered as they were;
        # beyond that the rest changes nothing.
        for _ in range(min(count, 1000)):
            self._delays.observe(inf, now_s)

    def mark_down(self, now_s: float) -> None:
        """The link is gone, and with it at least the batch that found out."""
        if self.is_up:
            self.is_up = False
            self.version += 1
            if self._delays.count:
                self._delays.observe(inf, now_s)

    def mark_up(self, now_s: float) -> None:
        """A link is there (again): its level has to be seen first, what it is prone to is still
        remembered."""
        if not self.is_up:
            self.is_up = True
            self.version += 1
            self._delays.restart()
            self._confirmations.restart()

    def correct_clock(self, by_s: float) -> None:
        """The clocks are known better now: all delays so far were so much longer."""
        self._delays.shift(by_s)

    def note_clock_step(self) -> None:
        """A clock stepped: delays from before say nothing of the level of those that follow."""
        self.version += 1
        self._delays.restart()

    def pardon(self, budget_s: float) -> None:
        """A failure is over: it says nothing of what comes."""
        self._delays.pardon(budget_s)

    # ------------------------------------------------------------ telling

    @property
    def observations(self) -> int:
        return self._delays.count

    @property
    def level_s(self) -> float | None:
        """What the path typically takes now: follows within about two seconds."""
        return self._delays.level_s

    @property
    def worst_lately_s(self) -> float | None:
        """The longest delay of the latest seconds; None until its level is known."""
        return self._delays.worst_lately_s if self._delays.is_settled else None

    def known(self, now_s: float) -> float:
        """How many independent, fresh observations the answers rest on."""
        return self._delays.known(now_s)

    def miss_probability(self, budget_s: float, now_s: float) -> float:
        """Of one sample sent now with that much time left: the larger of what is remembered and
        what the latest seconds show; 1/2 for an unknown path, 1 for one that is down."""
        if not self.is_up:
            return 1.0
        delays = self._delays
        remembered = delays.late_share(budget_s, now_s)
        recent = delays.recently_late(budget_s) if delays.is_settled else 0.0
        return remembered if remembered >= recent else recent

    def is_fine(self, budget_s: float, now_s: float) -> bool:
        """Whether everything lately seen of it was in time."""
        delays = self._delays
        is_fresh = now_s - delays.last_s < 1.5 * PROBE_LATE_S
        return self.is_up and is_fresh and delays.is_settled and not delays.recently_late(budget_s)

    def habitual_share(self, budget_s: float) -> float:
        """The share of samples with which a lateness begins that comes time and again."""
        return self._delays.habitual_share(budget_s)

    def rescue_probability(self, budget_s: float, now_s: float) -> float:
        """That a copy sent now would come in time, for weighing whether it is worth its bytes:
        hopeful, so a stall that may be over this moment does not count against it."""
        if not self.is_up:
            return 0.0
        return 1.0 - self._delays.late_share(budget_s, now_s, hopeful=True)

    def miss_bound(self, budget_s: float, now_s: float) -> float:
        """Upper end of the 95 % confidence interval (Wilson) of the remembered part of
        `miss_probability`: 3 to 4 divided by the number of delays when none was late."""
        known = self._delays.known(now_s)
        if not self.is_up or known <= 0.0:
            return 1.0
        share = self._delays.late_share(budget_s, now_s)
        z2 = 1.96 * 1.96
        middle = share + z2 / (2 * known)
        spread = 1.96 * sqrt(share * (1 - share) / known + z2 / (4 * known * known))
        return min(1.0, (middle + spread) / (1 + z2 / known))

    def quantile(self, share: float) -> float | None:
        """The one-way delay not exceeded with this probability, at the level of now."""
        return self._delays.quantile(share)

    @property
    def overdue_s(self) -> float:
        """A batch that is not confirmed this long after it was sent is late as at most one in a
        hundred is: something stalls."""
        # Asked for with every batch, so recomputed now and then only.
        count = self._confirmations.count
        if count > self._overdue_count + min(self._overdue_count // 10, 20):
            self._overdue_count = count
            self._overdue_s = self._estimate_overdue_s()
        return self._overdue_s

    def _estimate_overdue_s(self) -> float:
        if self._confirmations.count >= CONFIRMATIONS_LEAST:
            usual_s = self._confirmations.quantile(0.99)
            if usual_s is not None and not isinf(usual_s):
                return 1.25 * usual_s + _STALL_SLACK_S
        return 1.0 if self.level_s is None else 0.2 + 3.0 * max(0.0, self.level_s)

    @property
    def silent_s(self) -> float:
        """Nothing confirmed for so long is no mere stall: even a packet lost twice is repaired
        sooner."""
        return SILENT_FACTOR * self.overdue_s + SILENT_LEAST_S

    @property
    def is_confirming(self) -> bool:
        """Whether `overdue_s` rests on experience."""
        return self._confirmations.count >= CONFIRMATIONS_LEAST and self._confirmations.is_settled

    def unconfirmed_share(self, after_s: float, now_s: float) -> float:
        """Of batches, so long after they were sent."""
        confirmations = self._confirmations
        share = confirmations.late_share(after_s, now_s)
        return max(share, confirmations.recently_late(after_s))

    # ------------------------------------------------------------ probing

    def is_probe_due(self, now_s: float, batches_per_s: float, *, soon: bool = False) -> bool:
        """Whether to ping over this path now, because nothing else tells how it is. Data that flows
        over it is the better probe, and none is due then. `batches_per_s`: all that is sent to
        that edge. `soon`: no path is in time."""
        if not self.is_up:
            return False
        quiet_s = now_s - max(self._probed_s, self._delays.last_s)
        if soon or not self._delays.is_steady:
            shortest_s, share = PROBE_SOON_S, PROBE_SOON_SHARE
        else:
            shortest_s, share = PROBE_S, PROBE_SHARE
        if quiet_s < shortest_s:
            return False
        return quiet_s >= PROBE_LATE_S or quiet_s * batches_per_s * share >= 1.0

    def probed(self, now_s: float) -> None:
        self._probed_s = now_s

    # ------------------------------------------------------------ reporting

    def summary(self, now_s: float) -> PathSummary:
        delays = self._delays
        return PathSummary(
            name=self.name,
            is_up=self.is_up,
            observations=delays.count,
            level_s=delays.level_s,
            median_s=delays.quantile(0.5),
            p99_s=delays.quantile(0.99),
            p999_s=delays.quantile(0.999),
            lost=self.lost,
            overdue_s=self.overdue_s,
            age_s=now_s - delays.last_s if delays.count else None,
        )
