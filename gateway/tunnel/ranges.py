"""A set of numbers that is nearly a prefix: everything up to a floor, and some ranges beyond. Pure;
both ends of a stream keep what has arrived in one.
"""

from __future__ import annotations

from bisect import bisect_right


class NearPrefix:
    """All numbers up to `floor`, and `beyond`: sorted ranges (first, last) that neither touch each
    other nor the floor."""

    __slots__ = ("beyond", "floor")

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self.beyond: list[tuple[int, int]] = []

    @property
    def highest(self) -> int:
        return self.beyond[-1][1] if self.beyond else self.floor

    def covers(self, first: int, last: int) -> bool:
        first = max(first, self.floor + 1)
        if first > last:
            return True
        at = bisect_right(self.beyond, (first, last)) - 1
        if at + 1 < len(self.beyond) and self.beyond[at + 1][0] == first:
            at += 1
        return at >= 0 and self.beyond[at][1] >= last

    def add(self, first: int, last: int) -> bool:
        """False when all of it was there."""
        if self.covers(first, last):
            return False
        beyond = self.beyond
        if first <= self.floor + 1:
            self.floor = last
            while beyond and beyond[0][0] <= self.floor + 1:
                self.floor = max(self.floor, beyond.pop(0)[1])
            return True
        start = bisect_right(beyond, (first, last))
        if start and beyond[start - 1][1] >= first - 1:
            start -= 1
            first = beyond[start][0]
        end = start
        while end < len(beyond) and beyond[end][0] <= last + 1:
            last = max(last, beyond[end][1])
            end += 1
        beyond[start:end] = [(first, last)]
        return True

    def raise_floor(self, floor: int) -> bool:
        """Everything up to `floor` is there now; False when it was."""
        return floor > self.floor and self.add(self.floor + 1, floor)
