"""What this edge, as a sender, knows of one path to one other edge: what is under way on it, what
was confirmed, what is lost. Kept by pairs.py; told by deadlines.py what was sent.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from edge_broker.dds import shortcuts
from edge_broker.links import Link, Way
from gateway.plan.path_quality import PathQuality

_MOST_OUTSTANDING = 8192
_NEVER_NS = (1 << 63) - 1
_LOST_AFTER_S = 0.25
"""What reports leave out for so long is lost, not late: a thread that has to wait for a processor
sends what it stamped after what others stamped later, and reports are told together."""


class Path:
    """One way to one edge, remembered while it is away."""

    def __init__(self, name: str) -> None:
        self.quality = PathQuality(name)
        self._batches: deque[int] = deque()
        self._probes: deque[int] = deque()
        """When what is not confirmed yet was sent, by the wall clock here."""
        self.probed_ns = 0
        self._told = 0
        self._missing = 0
        """Batches the last report left out although it told of later ones."""
        self._lasting = 0
        self._lasting_since_s = 0.0
        """So many of them have been missing since then."""
        self.confirmed_ns = 0
        """What was sent up to then has arrived, or is lost: over datagrams one behind it may have
        come first."""
        self._told_once: dict[Callable[[], None], None] = {}
        self._connection: tuple[Link, int] | None = None
        self.samples = 0
        """Of topics that may wait for company, sent since the last tick."""
        self.samples_per_s = 0.0

    def carry(self, link: Link, now_s: float) -> None:
        """It is up, over this link. What was under way over another connection is not waited for:
        lost or not, it says no more of the path than that it broke."""
        connection = link, link.connects
        if connection == self._connection:
            return
        if self._connection is not None:
            self.break_off(now_s)
        self._connection = connection
        self.quality.mark_up(now_s)
        self._expect_answer()

    def break_off(self, now_s: float) -> None:
        """It is gone."""
        self._connection = None
        self.quality.mark_down(now_s)
        self._batches.clear()
        self._probes.clear()
        self._missing = self._lasting = 0

    def note_batch(self, sent_ns: int) -> None:
        """It has just been sent, or not long ago: single samples go ahead of what is noted."""
        batches = self._batches
        if len(batches) >= _MOST_OUTSTANDING:
            return
        if batches and sent_ns < batches[-1]:
            insort(batches, sent_ns)
        else:
            batches.append(sent_ns)
        if len(batches) == 1:
            self._expect_answer()

    def note_probe(self, now_ns: int) -> None:
        self._probes.append(now_ns)
        self.probed_ns = now_ns

    def outstanding_s(self, now_ns: int) -> float:
        """Age of the oldest batch or probe that is not confirmed."""
        oldest = min(
            self._batches[0] if self._batches else now_ns,
            self._probes[0] if self._probes else now_ns,
        )
        return (now_ns - oldest) / 1e9

    def confirm_probe(self, sent_ns: int, now_s: float) -> bool:
        """Whether an answer was due to such a probe."""
        is_due = sent_ns in self._probes
        self._settle_probes(sent_ns)
        if is_due and not self.quality.is_repaired:
            # It has overtaken nothing, so what went long before it will not arrive any more.
            self._missing += self._settle_batches(sent_ns - int(_LOST_AFTER_S * 1e9))
            self._find_lost(now_s)
        return is_due

    def forget_times(self) -> None:
        """The wall clock here was set back: what was stamped before it says nothing of what is
        stamped now."""
        self.confirmed_ns = self.probed_ns = 0
        self._batches.clear()
        self._probes.clear()
        self._expect_answer()

    def tell_confirmed(self, told: Callable[[], None]) -> None:
        """Calls it once, as soon as more is confirmed."""
        self._told_once[told] = None

    def confirm(self, newest_ns: int, total: int, now_ns: int, now_s: float) -> None:
        """Everything sent up to then has arrived, or never will: paths keep the order, but that
        batches sent at about the same moment may change places."""
        newest_ns = min(newest_ns, now_ns)  # or it was stamped before the clock was set back
        self.confirmed_ns = max(self.confirmed_ns, newest_ns)
        # As `outstanding_s` counts: reports tell of several batches together.
        oldest_ns = self._batches[0] if self._batches else now_ns
        confirmed = self._settle_batches(newest_ns)
        if self.quality.is_repaired:  # a probe may be lost for good
            self._settle_probes(newest_ns)
        self._expect_answer()
        arrived = total - self._told if total >= self._told else total
        self._told = total
        self._missing = max(0, self._missing + confirmed - arrived)
        self._find_lost(now_s)
        if confirmed:
            self.quality.observe_confirmation((now_ns - oldest_ns) / 1e9, now_s)
        told_once, self._told_once = self._told_once, {}
        for told in told_once:
            told()

    def _expect_answer(self) -> None:
        """What goes ahead of everybody does not ask whether the path is still good."""
        if self._connection is None:
            return
        wire = self._connection[0].open_descriptor
        if wire is not None:
            due_ns = _NEVER_NS
            if self._batches:
                due_ns = self._batches[0] + int(self.quality.overdue_s * 1e9)
            shortcuts.expect(wire, due_ns)

    def _settle_batches(self, until_ns: int) -> int:
        """No longer outstanding; how many."""
        count = 0
        while self._batches and self._batches[0] <= until_ns:
            self._batches.popleft()
            count += 1
        return count

    def _settle_probes(self, until_ns: int) -> None:
        while self._probes and self._probes[0] <= until_ns:
            self._probes.popleft()

    def _find_lost(self, now_s: float) -> None:
        self._lasting = min(self._lasting, self._missing)
        if self._lasting:
            if now_s - self._lasting_since_s < _LOST_AFTER_S:
                return
            self.quality.observe_loss(self._lasting, now_s)
            self._missing -= self._lasting
        self._lasting, self._lasting_since_s = self._missing, now_s


@dataclass(frozen=True, slots=True)
class OpenPath:
    """A path that can be taken now."""

    path: Path
    way: Way
