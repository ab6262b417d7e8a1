"""A stream as its subscribing edge sees it: which batches may be written into DDS now, in order and
once each, and what to acknowledge. Pure. Called by the edge broker's egress.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Generic, TypeVar

from gateway.tunnel.frames import StreamKey
from gateway.tunnel.ranges import NearPrefix

MAX_ACK_RANGES = 32

Item = TypeVar("Item")


@dataclass(slots=True)  # not frozen: to be so would cost a call for each field
class Delivery(Generic[Item]):
    """Write the samples of `item` after its first `skip`: numbers first … first+count-1."""

    item: Item
    skip: int
    first: int
    count: int


class IncomingStream(Generic[Item]):
    """`Item` is whatever the caller wants back when a batch's turn comes.

    A reliable stream holds batches that came early, up to `hold_bytes`, and then refuses more: the
    publisher sends them again. What it once acknowledged as arrived it never gives up. A
    best-effort stream skips what is missing and drops what comes late.
    """

    def __init__(self, key: StreamKey, *, reliable: bool, first: int, hold_bytes: int) -> None:
        self.key = key
        self.is_reliable = reliable
        self.held_bytes = 0
        self.duplicates = 0
        """Samples that came again, or too late for a best-effort stream."""
        self.lost = 0
        """Samples skipped for good."""
        self.refused = 0
        """Batches that found no room to wait."""
        self.next_number = first
        """The first number not handed out yet."""
        self._hold_bytes = hold_bytes
        self._written = first - 1
        self._arrived = NearPrefix(first - 1)
        """Between calls its floor is next_number - 1."""
        self._held: list[tuple[int, int, int, int, Item]] = []
        """A heap of (first, last, arrival, size, item)."""
        self._arrivals = 0
        self._jumps: deque[tuple[int, int]] = deque()
        """(before, after): numbers skipped, which count as written once `before` is."""

    def __repr__(self) -> str:
        return (
            f"<IncomingStream {self.key} next {self.next_number}, written {self._written}, "
            f"held {len(self._held)}>"
        )

    @property
    def cumulative(self) -> int:
        """Everything up to it is written."""
        return self._written

    @property
    def has_gap(self) -> bool:
        """Whether something came that has to wait for something missing."""
        return bool(self._held)

    def offer(self, first: int, count: int, item: Item, size: int) -> list[Delivery[Item]]:
        """A batch arrived; what may be written now."""
        last = first + count - 1
        following = self.next_number
        if first == following and not self._held:
            self.next_number = last + 1
            self._arrived.floor = last
            return [Delivery(item, 0, first, count)]
        if last < following:
            self.duplicates += count
            return []
        if first > following:
            if self.is_reliable:
                self._hold(first, last, item, size)
                return []
            self._jump(first)
        return [self._hand_out(first, last, item), *self._release()]

    def advance(self, first: int) -> list[Delivery[Item]]:
        """The publisher opened the stream again at `first`: nothing before it will come any more.
        What is held of it is handed out."""
        if first <= self.next_number:
            return []
        deliveries = []
        while self._held and self._held[0][0] < first:
            early, last, _, size, item = heappop(self._held)
            self.held_bytes -= size
            if last >= self.next_number:
                if early > self.next_number:
                    self._jump(early)
                deliveries.append(self._hand_out(early, last, item))
        if first > self.next_number:
            self._jump(first)
        return [*deliveries, *self._release()]

    def written(self, upto: int) -> None:
        """Everything handed out up to this number is in DDS."""
        if upto >= self.next_number:
            raise ValueError(f"{self!r}: {upto} was never handed out")
        self._written = max(self._written, upto)
        while self._jumps and self._jumps[0][0] <= self._written:
            self._written = max(self._written, self._jumps.popleft()[1])

    def acknowledgement(self) -> tuple[int, tuple[tuple[int, int], ...]]:
        """(cumulative, ranges) for an Ack: what is written, and what has arrived beyond."""
        ranges = self._arrived.beyond[:MAX_ACK_RANGES]
        if self.next_number > self._written + 1:
            ranges = [(self._written + 1, self.next_number - 1), *ranges]
        return self._written, tuple(ranges)

    def _hold(self, first: int, last: int, item: Item, size: int) -> None:
        if self._arrived.covers(first, last):
            self.duplicates += last - first + 1
        elif self.held_bytes + size > self._hold_bytes:
            self.refused += 1
        else:
            self._arrived.add(first, last)
            self._arrivals += 1
            heappush(self._held, (first, last, self._arrivals, size, item))
            self.held_bytes += size

    def _hand_out(self, first: int, last: int, item: Item) -> Delivery[Item]:
        skip = self.next_number - first
        self.duplicates += skip
        self.next_number = last + 1
        return Delivery(item, skip, first + skip, last + 1 - first - skip)

    def _release(self) -> list[Delivery[Item]]:
        """Held batches whose turn has come."""
        deliveries = []
        while self._held and self._held[0][0] <= self.next_number:
            first, last, _, size, item = heappop(self._held)
            self.held_bytes -= size
            if last >= self.next_number:
                deliveries.append(self._hand_out(first, last, item))
        self._arrived.raise_floor(self.next_number - 1)
        return deliveries

    def _jump(self, first: int) -> None:
        """Give up what is missing before `first`."""
        before = self.next_number - 1
        self.lost += first - self.next_number
        self.next_number = first
        if not self.is_reliable:
            return  # nobody waits for its acknowledgements
        if self._written >= before:
            self._written = first - 1
        else:
            self._jumps.append((before, first - 1))
