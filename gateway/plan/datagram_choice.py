"""Whether samples of deadline topics go to another edge in datagrams, and how soon what is lost of
those is to be made again. Pure; asked by the edge broker once a tick for each direct link.

TCP holds up all behind a packet it lost for a round trip. Where that happens time and again,
datagrams with repair data bring nearly everything in time at hardly more bytes; where nothing is
lost TCP does as well, and lone samples have a shortcut there. Nothing tells datagrams how much a
path can carry, so they are for what is thin, and end where a path loses so much that it must be
full.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from gateway.plan.path_patience import KNOWN_LEAST, holds_up
from gateway.plan.path_quality import PathQuality

LEVEL_LEAST_S = 0.01
"""On a shorter path TCP mends a loss soon enough, and jitter looks like being held up."""
CLEAN_S = 30.0
CLEAN_LEAST = 500
"""After so long, and so many datagrams, without a loss TCP will do …"""
LOOK_LEAST = 200
"""Losses are looked at of so many datagrams together."""
LOST_MOST = 0.2
"""More, twice in a row, is no noise: the path is full, or somebody holds datagrams back. Once may
be a cut that is over."""
SLOWER_MOST = 1.25
SLOWER_LEAST_S = 0.01
"""Datagrams that take so much longer than TCP are held back by somebody."""
REST_S = 30.0
REST_MOST_S = 600.0
"""After a failure they are not used for so long, each time twice as long …"""
FORGIVEN_S = 300.0
"""… but if they did well for so long."""

REPAIR_SHARE = 0.05
"""Of what the path takes: within that what is lost is to be made again."""
REPAIR_LEAST_S = 0.002
REPAIR_MOST_S = 0.05
MEMBERS_MOST = 10
LOST_TWICE_MOST = 0.0005
"""The share of datagrams a first repair may fail for: two of those it is of are missing."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Of the datagrams of one link, since it began."""

    sent: int
    lost: int
    overflows: int
    """Frames that were more than datagrams may carry."""


@dataclass(frozen=True, slots=True)
class Repair:
    within_s: float
    most_members: int
    """Datagrams one repair is of."""


class DatagramChoice:
    """For one direct link at a time; it remembers what went wrong from one to the next."""

    def __init__(self) -> None:
        self.is_used = False
        self.why = ""
        """They are used, or no longer: for operators."""
        self.lost_share = 0.0
        """Of the latest datagrams."""
        self._bad_looks = 0
        self._clean_since_s = 0.0
        self._clean_sent = self._clean_lost = 0
        self._looked = Counts(0, 0, 0)
        self._overflows = 0
        self._rest_until_s = -inf
        self._rest_s = REST_S
        self._used_since_s = 0.0

    def review(
        self,
        now_s: float,
        stream: PathQuality,
        datagrams: PathQuality | None,
        counts: Counts,
    ) -> bool:
        """Whether to use them from now on. `stream` and `datagrams`: what is known of the same way
        over TCP and over datagrams."""
        if counts.sent < self._looked.sent or counts.overflows < self._overflows:  # another link
            self._looked, self._overflows = Counts(0, 0, 0), 0
        has_overflown = counts.overflows > self._overflows
        self._overflows = counts.overflows
        if counts.lost > self._clean_lost or not self.is_used:
            self._clean_since_s, self._clean_sent = now_s, counts.sent
        self._clean_lost = counts.lost
        self._look(counts)
        if not self.is_used:
            if now_s >= self._rest_until_s and _is_held_up(stream, now_s):
                self._use(True, "losses hold up what goes over TCP", now_s)
        elif has_overflown:
            self._fail(now_s, "there is more than datagrams may carry")
        elif self._bad_looks > 1:
            self._fail(now_s, f"{self.lost_share:.0%} of them were lost")
        elif _is_slower(datagrams, stream, now_s):
            self._fail(now_s, "they take longer than TCP")
        elif (
            now_s - self._clean_since_s >= CLEAN_S
            and counts.sent - self._clean_sent >= CLEAN_LEAST
            and not _is_held_up(stream, now_s)  # as remembered: TCP would be left again at once
        ):
            self._use(False, "nothing is lost any more", now_s)
        return self.is_used

    def interrupt(self, now_s: float) -> None:
        """They do not pass now."""
        self._use(False, "datagrams do not pass", now_s)

    def _use(self, is_used: bool, why: str, now_s: float) -> None:
        if is_used != self.is_used:
            self.is_used, self.why = is_used, why
            if is_used:
                self._used_since_s = now_s

    def _fail(self, now_s: float, why: str) -> None:
        self._use(False, why, now_s)
        if now_s - self._used_since_s >= FORGIVEN_S:
            self._rest_s = REST_S
        self._rest_until_s = now_s + self._rest_s
        self._rest_s = min(REST_MOST_S, 2 * self._rest_s)
        self.lost_share = 0.0
        self._bad_looks = 0

    def repair(self, level_s: float | None, *, is_order_kept: bool = False) -> Repair:
        """On a path that takes so long. `is_order_kept`: what is made again is to come before what
        was sent after it, because what comes later is dropped."""
        within_s = REPAIR_SHARE * (level_s or 0.0)
        lost_twice = self.lost_share**2
        members = 1 if is_order_kept else MEMBERS_MOST
        if members * lost_twice > LOST_TWICE_MOST:
            members = int(LOST_TWICE_MOST / lost_twice)
        return Repair(
            min(REPAIR_MOST_S, max(REPAIR_LEAST_S, within_s)), min(MEMBERS_MOST, max(1, members))
        )

    def _look(self, counts: Counts) -> None:
        sent = counts.sent - self._looked.sent
        if sent >= LOOK_LEAST:
            share = min(1.0, max(0, counts.lost - self._looked.lost) / sent)
            # Bad news counts at once, good news when it lasts.
            self.lost_share = max(share, 0.75 * self.lost_share + 0.25 * share)
            self._bad_looks = self._bad_looks + 1 if share > LOST_MOST else 0
            self._looked = counts


def _is_held_up(stream: PathQuality, now_s: float) -> bool:
    level_s = stream.level_s
    return (
        level_s is not None
        and level_s >= LEVEL_LEAST_S
        and stream.known(now_s) >= KNOWN_LEAST
        and holds_up(stream, level_s, now_s)
    )


def _is_slower(datagrams: PathQuality | None, stream: PathQuality, now_s: float) -> bool:
    if datagrams is None or datagrams.level_s is None or stream.level_s is None:
        return False
    return (
        datagrams.known(now_s) >= KNOWN_LEAST
        and datagrams.level_s > SLOWER_MOST * stream.level_s + SLOWER_LEAST_S
    )
