"""Which congestion control suits a connection now. Pure; called by the wire of each express link
once a tick.

BBR, the best known for paths that lose packets, goes down to four packets in flight for 0.2 s every
ten seconds to learn how fast the path is when nothing waits in it. On a long path that delays each
sample of a steady flow by up to a round trip, for nothing: a thin flow fills no path. So where BBR
is what the machine uses a thin flow that loses nothing goes without it, and has it back with its
first loss.
"""

from __future__ import annotations

from dataclasses import dataclass

GENTLE = "reno"
"""Never pauses, and every Linux has it and lets everybody use it."""
PAUSING = "bbr"
"""… or what begins so."""
CLEAN_FIRST_S = 5.0
"""Without a loss for so long, a new connection may do without; BBR's first pause comes later."""
CLEAN_AGAIN_S = 60.0
"""… and one that has lost something."""
THIN_IN_FLIGHT = 64.0
"""Packets on their way at a time, at most. More may fill a path."""
THIN_FILL = 0.5
"""How full they are, at most: full ones are parts of what is large and comes at once, which needs
to know how fast the path is."""


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
        self._since_s = now_s
        """It has lost nothing, and was thin, since then …"""
        self._needed_s = CLEAN_FIRST_S
        """… and is to for so long."""
        self._before_s = now_s
        self._before: Sent | None = None

    def choose(self, sent: Sent, now_s: float) -> str:
        """Called once in a while; judges what happened since the last call."""
        before, passed_s = self._before, now_s - self._before_s
        self._before, self._before_s = sent, now_s
        if before is None or passed_s <= 0 or not self._usual.startswith(PAUSING):
            return self._usual
        if sent.repeats > before.repeats:
            self._since_s, self._needed_s = now_s, CLEAN_AGAIN_S
        elif not _is_thin(before, sent, passed_s):
            self._since_s = now_s
        return GENTLE if now_s - self._since_s >= self._needed_s else self._usual


def _is_thin(before: Sent, sent: Sent, passed_s: float) -> bool:
    packets = sent.packets - before.packets
    in_flight = packets / passed_s * sent.rtt_s
    room_bytes = packets * sent.most_packet_bytes
    return in_flight <= THIN_IN_FLIGHT and sent.size_bytes - before.size_bytes <= (
        THIN_FILL * room_bytes
    )
