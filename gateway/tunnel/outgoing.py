"""A stream as its publishing edge sees it: what was sent, who has acknowledged what, what to send
again and when. Pure: the caller sends, and passes the time. Called by the edge broker's ingress.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gateway.tunnel.frames import StreamKey
from gateway.tunnel.ranges import NearPrefix

FIRST_TIMEOUT_S = 0.2
LAST_TIMEOUT_S = 5.0
REMINDER_S = 1.0
"""How long all may have arrived without being written before one batch is sent again: that its
acknowledgement was lost looks the same from here."""
REORDER_GRACE_S = 0.05
"""How long a gap may be a mere detour over another path."""
_EVIDENCE_STEP_S = 0.01
"""Signs of a gap this close together share one entry, so that their number stays small."""
RESEND_BURST_BYTES = 4 * 1024 * 1024
RESEND_AHEAD_BYTES = 8 * 1024 * 1024
"""What is sent again runs at most so far ahead of what has arrived; acknowledgements bring the
next."""
_BATCH_OVERHEAD_BYTES = 256
"""What keeping a batch costs besides its frame; matters when batches are tiny."""


class Sent(NamedTuple):
    """A batch of a reliable stream that somebody has not acknowledged yet."""

    first: int
    last: int
    frame: bytes
    sent_s: float


class Resend(NamedTuple):
    """Send `frame` again, to this edge only (`frames.readdress`)."""

    edge: str
    first: int
    last: int
    frame: bytes


class _Subscriber:
    """`cumulative` is what it has written into DDS, `arrived` what it need not be sent again."""

    def __init__(self, incarnation: int, cumulative: int) -> None:
        self.incarnation = incarnation
        self.cumulative = cumulative
        self.arrived = NearPrefix(cumulative)
        self.quiet_since_s = 0.0
        """Since when it owes us a sign of progress."""
        self.backoff = 0
        self.lost_from = 0
        self.lost_below = 0
        """What is missing in lost_from … lost_below-1 is taken for lost: resend it as fast as
        acknowledgements allow."""
        self.is_far_ahead = False
        """Whether more of that must wait for an acknowledgement."""
        self.evidence: deque[tuple[float, int]] = deque()
        """(when it counts, number): later batches than this number arrived."""
        self.overtaken_below = 0
        """What is missing below this number was overtaken longer ago than the grace."""
        self.resent_s: dict[int, float] = {}
        """When a missing batch was sent again last, by its first number."""
        self.retry_s: float | None = None
        """When the first overtaken batch that is still missing is due again."""
        self.probe: tuple[int, float] | None = None
        """The batch being timed: its last number and when it was sent."""
        self._rtt_s: float | None = None
        self._rtt_variation_s = 0.0

    @property
    def first_timeout_s(self) -> float:
        if self._rtt_s is None:
            return FIRST_TIMEOUT_S
        return min(LAST_TIMEOUT_S, max(FIRST_TIMEOUT_S, self._rtt_s + 4 * self._rtt_variation_s))

    @property
    def timeout_s(self) -> float:
        return min(LAST_TIMEOUT_S, self.first_timeout_s * (1 << self.backoff))

    @property
    def reminder_s(self) -> float:
        """All has arrived but is not written, or so the last word from there was."""
        return max(REMINDER_S, self.timeout_s)

    def is_owing(self, next_number: int) -> bool:
        """Whether something sent has not arrived."""
        return self.arrived.floor + 1 < next_number

    def time_round_trip(self, now_s: float) -> None:
        """The batch may have been sent more than once, so the time may be too long; hence no
        sample counts more than twice the timeout it exceeded."""
        if self.probe is None or self.probe[0] > self.arrived.floor:
            return
        sample_s = min(now_s - self.probe[1], 2 * self.first_timeout_s)
        self.probe = None
        if self._rtt_s is None:
            self._rtt_s, self._rtt_variation_s = sample_s, sample_s / 2
            return
        error_s = sample_s - self._rtt_s
        self._rtt_s += error_s / 8
        self._rtt_variation_s += (abs(error_s) - self._rtt_variation_s) / 4

    def note_gap(self, now_s: float) -> None:
        """Something arrived while something before it is missing."""
        counts_s = now_s + REORDER_GRACE_S
        number = self.arrived.highest
        if self.evidence and counts_s - self.evidence[-1][0] < _EVIDENCE_STEP_S:
            counts_s = self.evidence.pop()[0] + _EVIDENCE_STEP_S
        self.evidence.append((counts_s, number))

    def forget_gap(self) -> None:
        self.evidence.clear()
        self.resent_s.clear()
        self.retry_s = None

    def take_for_lost(self, first: int, below: int) -> None:
        if self.lost_from < self.lost_below:
            self.lost_from = min(self.lost_from, first)
            self.lost_below = max(self.lost_below, below)
        else:
            self.lost_from, self.lost_below = first, below
        self.is_far_ahead = False

    def next_due_s(self, next_number: int) -> float | None:
        if self.lost_from < self.lost_below and not self.is_far_ahead:
            return 0.0
        if not self.is_owing(next_number):
            is_unwritten = self.cumulative + 1 < next_number
            return self.quiet_since_s + self.reminder_s if is_unwritten else None
        due_s = self.quiet_since_s + self.timeout_s
        if self.evidence:
            due_s = min(due_s, self.evidence[0][0])
        if self.retry_s is not None:
            due_s = min(due_s, self.retry_s)
        return due_s


class OutgoingStream:
    """Numbers batches and, when reliable, keeps them until every subscriber has written them into
    DDS. `window_bytes` bounds what is kept; the caller asks `has_room` before it takes more."""

    def __init__(self, key: StreamKey, *, reliable: bool, window_bytes: int) -> None:
        self.key = key
        self.is_reliable = reliable
        self.next_number = 1
        self.destinations: tuple[str, ...] = ()
        """The edges a batch is for now."""
        self.kept_bytes = 0
        self.is_ended = False
        self._window_bytes = window_bytes
        self._sent: deque[Sent] = deque()
        self._subscribers: dict[str, _Subscriber] = {}

    def __repr__(self) -> str:
        behind = {e: self.next_number - 1 - s.cumulative for e, s in self._subscribers.items()}
        return f"<OutgoingStream {self.key} at {self.next_number}, unacknowledged {behind}>"

    # ------------------------------------------------------------ subscribers

    @property
    def subscribers(self) -> dict[str, int]:
        """Edges and their incarnations."""
        return {edge: each.incarnation for edge, each in self._subscribers.items()}

    def add_subscriber(self, edge: str, incarnation: int) -> int:
        """The first number it will get or still needs: idempotent. A new incarnation replaces the
        old one and starts at the next number."""
        known = self._subscribers.get(edge)
        if known is not None and known.incarnation == incarnation:
            return known.cumulative + 1
        self._subscribers[edge] = _Subscriber(incarnation, self.next_number - 1)
        self.destinations = tuple(self._subscribers)
        self._trim()
        return self.next_number

    def reopen(self, edge: str, incarnation: int) -> int:
        """The edge has forgotten the stream (Ack.unknown): as add_subscriber, but what had arrived
        there without being written is to be sent again."""
        first = self.add_subscriber(edge, incarnation)
        self._subscribers[edge].arrived = NearPrefix(first - 1)
        self.mark_for_resend(edge)
        return first

    def remove_subscriber(self, edge: str) -> None:
        if self._subscribers.pop(edge, None) is not None:
            self.destinations = tuple(self._subscribers)
            self._trim()

    def acknowledged(self, edge: str) -> int:
        """The number up to which this subscriber has written everything."""
        return self._subscribers[edge].cumulative

    # ------------------------------------------------------------ sending

    @property
    def has_room(self) -> bool:
        """Whether another batch may be sent. An empty window always takes one, of any size."""
        return self.kept_bytes < self._window_bytes

    def record(self, count: int, frame: bytes, now_s: float) -> None:
        """`frame` carries samples next_number … next_number+count-1 and is being sent."""
        first = self.next_number
        self.next_number = first + count
        if not self.is_reliable or not self._subscribers:
            return
        last = first + count - 1
        self._sent.append(Sent(first, last, frame, now_s))
        self.kept_bytes += len(frame) + _BATCH_OVERHEAD_BYTES
        for subscriber in self._subscribers.values():
            if subscriber.arrived.floor == first - 1:
                subscriber.quiet_since_s = now_s
            if subscriber.probe is None:
                subscriber.probe = (last, now_s)

    def end(self) -> None:
        """No more will be recorded."""
        self.is_ended = True

    @property
    def is_finished(self) -> bool:
        """Ended, and every subscriber has written everything."""
        return self.is_ended and not self._sent

    # ------------------------------------------------------------ acknowledgements

    def on_ack(
        self,
        edge: str,
        incarnation: int,
        cumulative: int,
        ranges: Sequence[tuple[int, int]],
        now_s: float,
    ) -> bool:
        """Whether it told anything new. Acknowledgements of other lives and of numbers never sent
        are ignored."""
        subscriber = self._subscribers.get(edge)
        if subscriber is None or subscriber.incarnation != incarnation or not self.is_reliable:
            return False
        end = self.next_number
        if cumulative >= end or any(not 0 < first <= last < end for first, last in ranges):
            return False
        arrived = subscriber.arrived
        is_progress = arrived.raise_floor(cumulative)
        for first, last in ranges:
            is_progress |= arrived.add(first, last)
        if cumulative > subscriber.cumulative:
            subscriber.cumulative = cumulative
            self._trim()
        elif not is_progress:
            return False
        subscriber.quiet_since_s = now_s
        subscriber.backoff = 0
        subscriber.is_far_ahead = False
        subscriber.time_round_trip(now_s)
        if arrived.beyond:
            subscriber.note_gap(now_s)
        else:
            subscriber.forget_gap()
        return True

    def _trim(self) -> None:
        """Let go of what every subscriber has written."""
        done = min((each.cumulative for each in self._subscribers.values()), default=None)
        sent = self._sent
        while sent and (done is None or sent[0].last <= done):
            self.kept_bytes -= len(sent.popleft().frame) + _BATCH_OVERHEAD_BYTES

    # ------------------------------------------------------------ sending again

    def mark_for_resend(self, edge: str, first: int = 1) -> None:
        """The path to this edge was lost, or did not take what was sent since `first`."""
        subscriber = self._subscribers.get(edge)
        if subscriber is not None:
            subscriber.take_for_lost(max(first, subscriber.arrived.floor + 1), self.next_number)

    @property
    def next_due_s(self) -> float | None:
        """When to call `due`, 0 for at once; None while there is nothing to wait for."""
        if not self.is_reliable:
            return None
        times = [each.next_due_s(self.next_number) for each in self._subscribers.values()]
        return min((each for each in times if each is not None), default=None)

    @property
    def is_recovering(self) -> bool:
        """Whether something taken for lost may be sent again now."""
        return any(
            each.lost_from < each.lost_below and not each.is_far_ahead
            for each in self._subscribers.values()
        )

    def due(self, now_s: float, budget_bytes: int = RESEND_BURST_BYTES) -> list[Resend]:
        """What to send again now, at least one batch and about `budget_bytes` in all; what is left
        over stays due."""
        resends: list[Resend] = []
        for edge, subscriber in self._subscribers.items():
            if budget_bytes <= 0:
                break
            for sent in self._due_to(subscriber, now_s):
                resends.append(Resend(edge, sent.first, sent.last, sent.frame))
                subscriber.resent_s[sent.first] = now_s
                budget_bytes -= len(sent.frame) + _BATCH_OVERHEAD_BYTES
                if budget_bytes <= 0:
                    break
        return resends

    def _due_to(self, subscriber: _Subscriber, now_s: float) -> Iterator[Sent]:
        """Lazy, because the budget may end it; each step leaves the subscriber consistent."""
        if subscriber.lost_from < subscriber.lost_below and not subscriber.is_far_ahead:
            subscriber.quiet_since_s = now_s
            yield from self._lost(subscriber)
        if not subscriber.is_owing(self.next_number):
            if subscriber.cumulative + 1 < self.next_number:
                yield from self._reminder(subscriber, now_s)
            return
        while subscriber.evidence and subscriber.evidence[0][0] <= now_s:
            subscriber.overtaken_below = subscriber.evidence.popleft()[1]
        if subscriber.overtaken_below > subscriber.arrived.floor:
            yield from self._overtaken(subscriber, now_s)
        else:
            subscriber.retry_s = None
        timeout_s = subscriber.timeout_s
        if now_s >= subscriber.quiet_since_s + timeout_s:
            subscriber.quiet_since_s = now_s
            subscriber.backoff = min(subscriber.backoff + 1, 10)
            young = (each.first for each in self._sent if each.sent_s > now_s - timeout_s)
            below = next(young, self.next_number)
            subscriber.take_for_lost(subscriber.arrived.floor + 1, below)
            for sent in self._lost(subscriber):
                if subscriber.resent_s.get(sent.first) != now_s:
                    yield sent

    def _lost(self, subscriber: _Subscriber) -> Iterator[Sent]:
        """What was taken for lost and not sent again yet, within reach of what has arrived."""
        ahead_bytes = 0
        for sent in self._missing(subscriber, subscriber.lost_below):
            if ahead_bytes > RESEND_AHEAD_BYTES:
                subscriber.is_far_ahead = True
                return
            ahead_bytes += len(sent.frame) + _BATCH_OVERHEAD_BYTES
            if sent.last >= subscriber.lost_from:
                subscriber.lost_from = sent.last + 1
                yield sent
        subscriber.lost_from = subscriber.lost_below

    def _reminder(self, subscriber: _Subscriber, now_s: float) -> Iterator[Sent]:
        """The smallest batch will do: it is only meant to be acknowledged."""
        if now_s >= subscriber.quiet_since_s + subscriber.reminder_s:
            subscriber.quiet_since_s = now_s
            subscriber.backoff = min(subscriber.backoff + 1, 10)
            unwritten = (each for each in self._sent if each.last > subscriber.cumulative)
            yield min(unwritten, key=lambda each: len(each.frame))

    def _overtaken(self, subscriber: _Subscriber, now_s: float) -> Iterator[Sent]:
        timeout_s = subscriber.timeout_s
        below = subscriber.overtaken_below
        missing = list(self._missing(subscriber, below))
        before = subscriber.resent_s
        subscriber.resent_s = {
            each.first: before[each.first] for each in missing if each.first in before
        }
        # Until all of them were yielded they stay due.
        subscriber.retry_s = now_s
        for sent in missing:
            if now_s - before.get(sent.first, -timeout_s) >= timeout_s:
                yield sent
        again = [subscriber.resent_s[each.first] for each in missing]
        subscriber.retry_s = min(again) + timeout_s if again else None

    def _missing(self, subscriber: _Subscriber, below: int) -> Iterator[Sent]:
        """Kept batches before number `below` that have not arrived there in full."""
        arrived = subscriber.arrived
        start = arrived.floor + 1
        for sent in self._sent:
            if sent.first >= below:
                return
            if sent.last >= start and not arrived.covers(sent.first, sent.last):
                yield sent

    # ------------------------------------------------------------ looking

    def missing(self, edge: str, first: int) -> Sent | None:
        """The kept batch that begins with this number, unless this subscriber has it."""
        subscriber = self._subscribers.get(edge)
        if subscriber is None:
            return None
        for sent in reversed(self._sent):  # asked for soon after it was sent
            if sent.first <= first:
                is_asked_for = sent.first == first
                has_arrived = subscriber.arrived.covers(sent.first, sent.last)
                return sent if is_asked_for and not has_arrived else None
        return None

    def unacknowledged(self, edge: str) -> list[Sent]:
        """What this subscriber has not written yet, oldest first."""
        subscriber = self._subscribers.get(edge)
        if subscriber is None:
            return []
        return [each for each in self._sent if each.last > subscriber.cumulative]

    def lag_s(self, edge: str, now_s: float) -> float:
        """How long ago the oldest batch this subscriber has not written yet was sent; 0: none."""
        subscriber = self._subscribers.get(edge)
        return 0.0 if subscriber is None else now_s - self._oldest_owed_s(subscriber, now_s)

    def laggards(self, now_s: float, timeout_s: float) -> list[str]:
        """Subscribers that have owed an acknowledgement for longer than `timeout_s` and thereby,
        the window being full, hold up others that are ahead of them."""
        if self.has_room:
            return []
        ahead = max((each.cumulative for each in self._subscribers.values()), default=0)
        return [
            edge
            for edge, each in self._subscribers.items()
            if each.cumulative < ahead and self._oldest_owed_s(each, now_s) < now_s - timeout_s
        ]

    def _oldest_owed_s(self, subscriber: _Subscriber, now_s: float) -> float:
        return next(
            (each.sent_s for each in self._sent if each.last > subscriber.cumulative), now_s
        )
