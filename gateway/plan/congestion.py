"""Which congestion control suits a connection now. Pure; asked by tunnel/wire_tuning.py once a tick
for each express link.

BBR, the best known for paths that lose packets, goes down to four packets in flight for 0.2 s every
ten seconds to learn how long the path is when nothing waits in it. On a long path that delays each
sample of a steady flow by up to a round trip, for nothing: a thin flow fills no path. So where BBR
is what the machine uses a thin flow that loses nothing goes without it, and has it back with its
first loss.
"""

from __future__ import annotations

from dataclasses import dataclass

GENTLE = "reno"
"""Never pauses; in every Linux, and anybody may use it unless somebody has forbidden that."""
PAUSING = "bbr"
"""… or what begins so."""
CLEAN_FIRST_S = 5.0
"""Without a loss for so long, a new connection may do without; BBR's first pause comes later."""
CLEAN_AGAIN_S = 60.0
"""… and one that has lost something, or may have filled the path."""
LEAST_LOOK_S = 0.5
"""A shorter time says nothing of how much is on its way."""
MOST_IN_FLIGHT = 64.0
"""Packets on their way at a time. More may fill a path …"""
LEAST_IN_FLIGHT = 4.0
"""… and fewer pass in a pause, too …"""
IDLE_IN_FLIGHT = 2.0
"""… but who goes without pauses has them back only when there are fewer still."""
MOST_FULL = 0.5
"""Of the room in packets. Full ones are parts of what is large and comes at once, for which it is
good to know how fast the path is."""


@dataclass(frozen=True, slots=True)
class Sent:
    """By one connection since it began."""

    packets: int
    """With data in them; those of `repeats`, too."""
    repeats: int
    size_bytes: int
    most_packet_bytes: int
    rtt_s: float


class CongestionChoice:
    """Of one connection."""

    def __init__(self, usual: str, now_s: float) -> None:
        """`usual`: what the machine gave it."""
        self._usual = usual
        self._is_gentle = False
        self._clean_since_s = now_s
        """It has lost nothing and was never thick since then …"""
        self._needed_s = CLEAN_FIRST_S
        """… and is to for so long."""
        self._before_s = now_s
        self._before = Sent(0, 0, 0, 0, 0.0)

    @property
    def may_change(self) -> bool:
        return self._usual.startswith(PAUSING)

    def choose(self, sent: Sent, now_s: float) -> str:
        """Called once in a while; judges what happened since the last call."""
        before, passed_s = self._before, now_s - self._before_s
        if self.may_change and passed_s >= LEAST_LOOK_S:
            self._before, self._before_s = sent, now_s
            self._judge(before, sent, passed_s, now_s)
        return GENTLE if self._is_gentle else self._usual

    def _judge(self, before: Sent, sent: Sent, passed_s: float, now_s: float) -> None:
        in_flight = (sent.packets - before.packets) / passed_s * sent.rtt_s
        if sent.repeats > before.repeats or _is_thick(before, sent, in_flight):
            self._clean_since_s, self._needed_s = now_s, CLEAN_AGAIN_S
        is_clean = now_s - self._clean_since_s >= self._needed_s
        is_steady = in_flight > (IDLE_IN_FLIGHT if self._is_gentle else LEAST_IN_FLIGHT)
        self._is_gentle = is_clean and is_steady


def _is_thick(before: Sent, sent: Sent, in_flight: float) -> bool:
    """Whether it may fill the path, all the time or by what comes at once. A few packets, such as
    a heartbeat and an answer, may be as full as they like."""
    if in_flight > MOST_IN_FLIGHT:
        return True
    packets = sent.packets - before.packets
    room_bytes = packets * sent.most_packet_bytes
    return packets > LEAST_IN_FLIGHT and sent.size_bytes - before.size_bytes > (
        MOST_FULL * room_bytes
    )
