"""Paths between two edges with everything that happens to them, and a sender that learns of it only
by reports and probes that take their time. Time is simulated; equal seeds give equal runs.

What each path would do to each sample is drawn beforehand, whether or not it is sent there. So all
policies face the same fate, and what a copy would have saved is counted, not estimated.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from random import Random

from gateway.plan.path_choice import DECISION_S, DEFAULT_TARGET, Choice, Mode, PathChooser
from gateway.plan.path_quality import PROBE_SOON_S, PROBE_SOON_SHARE, PathQuality

RETRANSMISSION_LEAST_S = 0.2
PROBE_CHECK_S = 0.1


@dataclass(frozen=True)
class PathModel:
    """TCP as an application sees it: what is lost comes a retransmission later and holds up all
    that follows. Loss comes alone (`loss`) or in bursts, each begun by a sample with probability
    `burst_start` and ended with `burst_end`."""

    name: str
    base_s: float
    jitter_s: float = 0.0005
    loss: float = 0.0
    burst_start: float = 0.0
    burst_end: float = 0.2
    burst_loss: float = 0.5
    outages: tuple[tuple[float, float], ...] = ()
    """From, to: nothing gets through, what was sent comes afterwards."""
    slow: tuple[tuple[float, float, float], ...] = ()
    """From, to, by how much."""
    is_ordered: bool = True
    clock_s: float = 0.0
    """Added to what the receiver reports."""

    @property
    def changes(self) -> int:
        return 2 * (len(self.outages) + len(self.slow))

    def delays(self, times: Sequence[float], random: Random) -> list[float]:
        interval_s = times[1] - times[0]
        fast_s = 2 * self.base_s + 3 * interval_s
        timeout_s = RETRANSMISSION_LEAST_S + 2 * self.base_s
        is_burst = False
        last_s = 0.0
        delays = []
        for now_s in times:
            is_burst = random.random() < (1 - self.burst_end if is_burst else self.burst_start)
            loss = self.burst_loss if is_burst else self.loss
            base_s = self.base_s + sum(
                more for start, end, more in self.slow if start <= now_s < end
            )
            arrival_s = now_s + base_s + random.expovariate(1.0) * self.jitter_s
            wait_s = min(fast_s, timeout_s)
            while loss and random.random() < loss:
                arrival_s += wait_s
                wait_s = 2 * max(wait_s, timeout_s)
            for start, end in self.outages:
                if start <= now_s < end:
                    arrival_s += end - now_s + random.random() * RETRANSMISSION_LEAST_S
            if self.is_ordered:
                arrival_s = last_s = max(arrival_s, last_s)
            delays.append(arrival_s - now_s)
        return delays


@dataclass
class Outcome:
    samples: int = 0
    missed: int = 0
    missed_by_all: int = 0
    """Also `duplicate` misses these."""
    missed_alone: tuple[int, ...] = ()
    """For each path: what sending on it only would miss."""
    copies: int = 0
    probes: int = 0
    taken: list[tuple[float, tuple[str, ...]]] = field(default_factory=list)
    """Each change of choice: when, and to what."""
    last: Choice | None = None

    def taken_at(self, now_s: float) -> tuple[str, ...]:
        return [paths for at_s, paths in self.taken if at_s <= now_s][-1]

    @property
    def excess(self) -> int:
        """Missed although another path would not have."""
        return self.missed - self.missed_by_all

    @property
    def cost(self) -> float:
        """Bytes compared with sending every sample once, a probe counted as a sample."""
        return (self.copies + self.probes) / self.samples


class _Sent:
    __slots__ = ("at_s", "is_confirmed")

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s
        self.is_confirmed = False


class Simulation:
    """One deadline topic over some paths; qualities are shared when several are run in a row."""

    def __init__(
        self,
        models: Sequence[PathModel],
        *,
        deadline_s: float,
        samples: int,
        rate: float = 100.0,
        seed: int = 0,
        mode: Mode = Mode.ADAPTIVE,
        target: float = DEFAULT_TARGET,
        clock_error_s: float = 0.0,
        can_hedge: bool = False,
    ) -> None:
        random = Random(seed)
        self.rate = rate
        self.times = [1.0 + i / rate for i in range(samples)]
        self.models = models
        self.delays = [model.delays(self.times, random) for model in models]
        self.qualities = [PathQuality(model.name) for model in models]
        self.chooser = PathChooser(mode, target=target)
        self._deadline_s = deadline_s
        self._clock_error_s = clock_error_s
        self._can_hedge = can_hedge
        self._index = {model.name: i for i, model in enumerate(models)}
        self._reports: list[tuple[float, int, int, float, _Sent]] = []
        """(when known here, …, path, delay, what it confirms)."""
        self._unconfirmed: list[deque[_Sent]] = [deque() for _ in models]
        self._hedges: list[tuple[float, int, int, _Sent]] = []
        self._number = 0

    def run(self) -> Outcome:
        count = len(self.times)
        outcome = Outcome(samples=count)
        best = [inf] * count
        probe_check_s = 0.0
        for i, now_s in enumerate(self.times):
            self._take_reports(now_s)
            while self._hedges and self._hedges[0][0] <= now_s:
                _, first, path, sent = heapq.heappop(self._hedges)
                if not sent.is_confirmed:
                    outcome.copies += 1
                    late_s = now_s - self.times[first]
                    best[first] = min(best[first], late_s + self._send(path, i, now_s)[0])
            choice = self.chooser.choose(
                self.qualities,
                self._deadline_s,
                now_s,
                clock_error_s=self._clock_error_s,
                outstanding_s=self._outstanding(now_s),
                can_hedge=self._can_hedge,
            )
            if not outcome.taken or choice.paths != outcome.taken[-1][1]:
                outcome.taken.append((now_s, choice.paths))
            outcome.last = choice
            for name in choice.paths:
                delay_s, sent = self._send(self._index[name], i, now_s)
                best[i] = min(best[i], delay_s)
                outcome.copies += 1
                if choice.hedge is not None:
                    due_s, path = now_s + choice.hedge.after_s, self._index[choice.hedge.path]
                    heapq.heappush(self._hedges, (due_s, i, path, sent))
            if now_s >= probe_check_s:
                probe_check_s = now_s + PROBE_CHECK_S
                outcome.probes += self._probe(i, now_s, choice.is_hopeless)
        deadline_s = self._deadline_s
        outcome.missed = sum(each > deadline_s for each in best)
        outcome.missed_by_all = sum(
            all(each > deadline_s for each in fate) for fate in zip(*self.delays, strict=True)
        )
        outcome.missed_alone = tuple(
            sum(each > deadline_s for each in delays) for delays in self.delays
        )
        return outcome

    def _send(self, path: int, i: int, now_s: float) -> tuple[float, _Sent]:
        delay_s = self.delays[path][i]
        model = self.models[path]
        sent = _Sent(now_s)
        self._number += 1
        known_s = now_s + delay_s + model.base_s
        heapq.heappush(self._reports, (known_s, self._number, path, delay_s + model.clock_s, sent))
        self._unconfirmed[path].append(sent)
        return delay_s, sent

    def _take_reports(self, now_s: float) -> None:
        reports = self._reports
        while reports and reports[0][0] <= now_s:
            known_s, _, path, delay_s, sent = heapq.heappop(reports)
            sent.is_confirmed = True
            quality = self.qualities[path]
            quality.observe(delay_s, known_s)
            quality.observe_confirmation(known_s - sent.at_s, known_s)

    def _outstanding(self, now_s: float) -> dict[str, float]:
        ages = {}
        for model, unconfirmed in zip(self.models, self._unconfirmed, strict=True):
            while unconfirmed and unconfirmed[0].is_confirmed:
                unconfirmed.popleft()
            if unconfirmed:
                ages[model.name] = now_s - unconfirmed[0].at_s
        return ages

    def _probe(self, i: int, now_s: float, soon: bool) -> int:
        probes = 0
        for path, quality in enumerate(self.qualities):
            if quality.is_probe_due(now_s, self.rate, soon=soon):
                quality.probed(now_s)
                self._send(path, i, now_s)
                probes += 1
        return probes


def reaction_s(qualities: Sequence[PathQuality], models: Sequence[PathModel], rate: float) -> float:
    """The longest time until a sender has learned of a sudden change and acted. For the worse: a
    batch is overdue. For the better, where nothing was in time: the next probe is back. Choices
    are renewed at intervals."""
    slowest_s = max(model.base_s + 5 * model.jitter_s for model in models)
    probe_s = max(PROBE_SOON_S, 1 / (PROBE_SOON_SHARE * rate)) + PROBE_CHECK_S + 2 * slowest_s
    overdue_s = max(quality.overdue_s for quality in qualities)
    return max(overdue_s, probe_s) + DECISION_S + 2 / rate
