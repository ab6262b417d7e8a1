"""Datagrams some of which are lost: after a few of them a repair, the XOR of what they held, of
which any single one that is missing is made again. A second repair comes later and is of every
third one: it makes again what the first could not, because another was missing, too, or it was lost
itself, as they are when several in a row are lost.
Pure; called by datagrams.py, which owns the sockets; what they hold is parcels.py's. Little endian.

A datagram:

  byte 0       VERSION
  byte 1       HOLDS_BODY, HOLDS_REPAIR or both; 0: a greeting, which holds nothing
  8 bytes      the token of its link
  8 bytes      its number, from 1
  4 + 4 bytes  heard of the other direction: the highest number, and how many; modulo 2^32
  repair       which datagrams it is of (8 bytes: the lowest bit is the one before this), its size
               (2 bytes), and the XOR of all of them, each as the size of its body (2 bytes) and
               the body
  body         to the end
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from gateway.errors import FrameError

VERSION = 0xD1
HOLDS_BODY = 1
HOLDS_REPAIR = 2

MOST_DATAGRAM_BYTES = 1232
"""With the headers of UDP and IPv6 1280, which every path takes whole."""
_HEAD = struct.Struct("<BBQQII")
_REPAIR_HEAD = struct.Struct("<QH")
_SIZE = struct.Struct("<H")
_MASK = 0xFFFFFFFF
_REMEMBERED = 64
"""Datagrams a repair is of lie within so many before it."""
_SPARE = 8
_LATER = 12
"""A second repair may be so many times later than the first …"""
_LATER_SUMS = 3
"""… is of every third datagram, so that neighbours are in different ones …"""
_MOST_MEMBERS_LATER = 8
"""… and of no more than so many."""
_FORGOTTEN = 1024
"""What comes so far behind the latest is too late to be told from a copy."""
_FARTHEST = 1 << 20
"""Ahead of the latest: a number beyond is a garbled one."""
_MOST_WAITING = 16
"""Repairs of which two or more are missing."""
_INTERVAL_SHARE = 0.2

MOST_BODY_BYTES = MOST_DATAGRAM_BYTES - _HEAD.size - _REPAIR_HEAD.size - _SIZE.size
"""Of one datagram, so that a repair of it fits into one, too."""


class Heard(NamedTuple):
    """Of the other direction, modulo 2^32."""

    highest: int
    total: int


class Head(NamedTuple):
    kind: int
    token: int
    number: int
    heard: Heard


def read_head(datagram: bytes) -> Head:
    """Raises FrameError when it is no datagram of a link."""
    if len(datagram) < _HEAD.size:
        raise FrameError("a datagram is too short")
    version, kind, token, number, highest, total = _HEAD.unpack_from(datagram)
    if version != VERSION or kind > HOLDS_BODY | HOLDS_REPAIR:
        raise FrameError("a datagram is none of a link")
    return Head(kind, token, number, Heard(highest, total))


# ---------------------------------------------------------------- sending


class _Sum:
    """A repair in the making."""

    def __init__(self) -> None:
        self.members: list[int] = []
        self.due_s = inf
        """When it must go, whatever follows."""
        self._sum = 0
        self._size = 0

    @property
    def size(self) -> int:
        """In a datagram."""
        return _REPAIR_HEAD.size + self._size

    def add(self, number: int, body: bytes, due_s: float) -> None:
        self.members.append(number)
        self._sum ^= int.from_bytes(_SIZE.pack(len(body)) + body, "little")
        self._size = max(self._size, _SIZE.size + len(body))
        self.due_s = min(self.due_s, due_s)

    def is_due(self, now_s: float, number: int) -> bool:
        """Also when, after the datagram with this number, its members are nearly too far back."""
        return bool(self.members) and (
            self.due_s <= now_s or number - self.members[0] >= _REMEMBERED - _SPARE
        )

    def take(self, number: int) -> bytes:
        """As part of the datagram with this number; begins anew."""
        which = sum(1 << (number - 1 - each) for each in self.members)
        found = _REPAIR_HEAD.pack(which, self._size) + self._sum.to_bytes(self._size, "little")
        self.members = []
        self.due_s = inf
        self._sum = self._size = 0
        return found


class Sealer:
    """Makes the datagrams of one direction of a link, and says when a repair is due.

    A repair waits for the next datagram and travels in it, unless that would be too late: `due_s`
    is when it must go by itself."""

    def __init__(self, token: int) -> None:
        self.number = 0
        """Of the last datagram."""
        self._token = token
        self._soon = _Sum()
        self._later = [_Sum() for _ in range(_LATER_SUMS)]
        """The first one gets the next datagram."""
        self._last_s: float | None = None
        self._interval_s = 0.0

    @property
    def due_s(self) -> float:
        """When the next repair is to go by itself; infinite: there is none to be sent."""
        return min(self._soon.due_s, *(each.due_s for each in self._later))

    def seal(
        self, body: bytes, heard: Heard, now_s: float, *, within_s: float, most_members: int
    ) -> list[bytes]:
        """The datagrams that are to go now: one with this body, and sometimes repairs before it.
        It is to be repairable `within_s`, by a repair of at most `most_members`."""
        self._note_interval(now_s)
        due = self._due(now_s + self._interval_s)
        later = self._later.pop(0)
        self._later.append(later)
        if len(self._soon.members) >= most_members and self._soon not in due:
            due.append(self._soon)
        if len(later.members) >= _MOST_MEMBERS_LATER and later not in due:
            due.insert(0, later)
        riding = None
        if due and _HEAD.size + due[-1].size + len(body) <= MOST_DATAGRAM_BYTES:
            riding = due.pop()
        datagrams = self._alone(due, heard)
        repair = b"" if riding is None else riding.take(self.number + 1)
        datagrams.append(self._datagram(repair, body, heard))
        self._soon.add(self.number, body, now_s + within_s)
        later.add(self.number, body, now_s + _LATER * within_s)
        return datagrams

    def plain(self, body: bytes, heard: Heard) -> list[bytes]:
        """A datagram with a body that is not worth a repair, because others like it follow; without
        any, a greeting."""
        datagrams = self._alone(self._due(-inf), heard)
        return [*datagrams, self._datagram(b"", body, heard)]

    def repairs(self, heard: Heard, now_s: float) -> list[bytes]:
        """Those that are due, by themselves."""
        return self._alone(self._due(now_s), heard)

    def _due(self, now_s: float) -> list[_Sum]:
        return [each for each in (*self._later, self._soon) if each.is_due(now_s, self.number)]

    def _alone(self, sums: Sequence[_Sum], heard: Heard) -> list[bytes]:
        return [self._datagram(each.take(self.number + 1), b"", heard) for each in sums]

    def _datagram(self, repair: bytes, body: bytes, heard: Heard) -> bytes:
        self.number += 1
        kind = (HOLDS_REPAIR if repair else 0) | (HOLDS_BODY if body else 0)
        return _HEAD.pack(VERSION, kind, self._token, self.number, *heard) + repair + body

    def _note_interval(self, now_s: float) -> None:
        if self._last_s is not None:
            passed_s = now_s - self._last_s
            share = _INTERVAL_SHARE if self._interval_s else 1.0
            self._interval_s += share * (passed_s - self._interval_s)
        self._last_s = now_s


# ---------------------------------------------------------------- receiving


class Opener:
    """Takes the datagrams of one direction apart, in whatever order they come."""

    def __init__(self) -> None:
        self.highest = 0
        self.count = 0
        """Datagrams that came, each once, also when they had been made again before."""
        self.repaired = 0
        """Those that did not come and were made again."""
        self._seen: set[int] = set()
        self._remade: set[int] = set()
        """Made again and not come so far: they may be late only."""
        self._bodies: dict[int, bytes] = {}
        self._repairs: dict[int, tuple[list[int], bytes]] = {}
        """By the number of the datagram they came with: which they are of."""

    @property
    def heard(self) -> Heard:
        return Heard(self.highest & _MASK, self.count & _MASK)

    def open(self, head: Head, datagram: bytes) -> list[bytes]:
        """The bodies there are now, those that were made again first. Raises FrameError when it is
        garbled, and counts as lost then."""
        number = head.number
        if number in self._seen or number <= self.highest - _FORGOTTEN:
            if number in self._remade:
                self._remade.discard(number)
                self.count += 1
            return []
        if number > self.highest + _FARTHEST:
            raise FrameError("a datagram has an impossible number")
        repair, body = _split(head, datagram)
        if number > self.highest + _FORGOTTEN:  # all that is remembered is of long ago
            self._seen.clear()
            self._bodies.clear()
            self._repairs.clear()
        self._note(number, body)
        self.count += 1
        if repair is not None:
            self._repairs[number] = repair
        bodies = self._mend()
        return [*bodies, body] if body else bodies

    def _note(self, number: int, body: bytes) -> None:
        self._seen.add(number)
        self._bodies[number] = body
        if number > self.highest:
            self.highest = number
            for old in [each for each in self._bodies if each < number - 2 * _REMEMBERED]:
                del self._bodies[old]
            if len(self._seen) > 2 * _FORGOTTEN:
                self._seen = {each for each in self._seen if each > number - _FORGOTTEN}
                self._remade &= self._seen

    def _mend(self) -> list[bytes]:
        """What can be made again now, first things first; that may allow for more."""
        made: dict[int, bytes] = {}
        is_done = False
        while not is_done:
            is_done = True
            for number, (members, total) in list(self._repairs.items()):
                missing = [each for each in members if each not in self._bodies]
                if len(missing) == 1 and missing[0] not in self._seen:
                    body = self._remake(total, [each for each in members if each != missing[0]])
                    if body is not None:
                        self._note(missing[0], body)
                        self._remade.add(missing[0])
                        made[missing[0]] = body
                        self.repaired += 1
                        is_done = False
                    del self._repairs[number]
                elif not missing:
                    del self._repairs[number]
        while len(self._repairs) > _MOST_WAITING:
            del self._repairs[min(self._repairs)]
        return [made[number] for number in sorted(made)]

    def _remake(self, total: bytes, others: Sequence[int]) -> bytes | None:
        found = int.from_bytes(total, "little")
        for number in others:
            body = self._bodies[number]
            found ^= int.from_bytes(_SIZE.pack(len(body)) + body, "little")
        if found.bit_length() > 8 * len(total):
            return None
        whole = found.to_bytes(len(total), "little")
        size = _SIZE.unpack_from(whole)[0]
        return whole[_SIZE.size :][:size] if size <= len(whole) - _SIZE.size else None


def _split(head: Head, datagram: bytes) -> tuple[tuple[list[int], bytes] | None, bytes]:
    """The repair and the body."""
    if not head.kind & HOLDS_REPAIR:
        return None, datagram[_HEAD.size :]
    at = _HEAD.size + _REPAIR_HEAD.size
    if len(datagram) < at:
        raise FrameError("a datagram ends within a repair")
    which, size = _REPAIR_HEAD.unpack_from(datagram, _HEAD.size)
    if not which or not _SIZE.size <= size <= len(datagram) - at:
        raise FrameError("a datagram ends within a repair")
    members = [head.number - 1 - bit for bit in range(_REMEMBERED) if which >> bit & 1]
    return (members, datagram[at : at + size]), datagram[at + size :]
