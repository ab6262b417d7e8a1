"""What an emulated link does to packets, one direction at a time: pure, with time and seed passed
in. Driven by `tests/lab/wan_process.py`, described by labs through `tests/lab/wan.py`.
"""

from __future__ import annotations

import heapq
from dataclasses import astuple, dataclass, fields
from enum import Enum, auto
from random import Random

NEVER_NS = 2**63
WAITING_BYTES = 128 << 20
"""Bound on what one direction holds, however long its delay: more overflows as a queue does."""


@dataclass(frozen=True, slots=True)
class Impairments:
    """One direction of a link. A new one does nothing but pass packets on."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    """Uniform around the delay, never negative in sum; keeps the order of packets."""
    loss: float = 0.0
    """Probability of each packet, independent of others."""
    burst_start: float = 0.0
    """Gilbert model: probability at each packet of going from the good state to the bad one."""
    burst_end: float = 1.0
    """… and back. Bad states last 1 / burst_end packets on average."""
    burst_loss: float = 1.0
    """Probability of loss in the bad state, beside `loss`."""
    rate_mbit: float = 0.0
    """10⁶ bits of IP packets a second; 0 is unlimited."""
    queue_bytes: float = 256_000
    """What may wait for the transmitter; more is dropped at the tail. Without a rate, unused."""
    reorder: float = 0.0
    """Probability of each packet to be held back, so that later ones overtake it."""
    reorder_ms: float = 10.0
    """How long it is held back."""
    cut: bool = False
    """Everything vanishes, what is on the way included."""

    def __post_init__(self) -> None:
        for name in ("loss", "burst_start", "burst_end", "burst_loss", "reorder"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} is a probability from 0 to 1, not {getattr(self, name)}")
        for name in ("delay_ms", "jitter_ms", "rate_mbit", "queue_bytes", "reorder_ms"):
            if getattr(self, name) < 0.0:
                raise ValueError(f"{name} cannot be negative: {getattr(self, name)}")


class Drop(Enum):
    LOST = auto()
    OVERFLOWED = auto()
    CUT = auto()


@dataclass(slots=True)
class Counters:
    """One direction since the link was made. Bytes are those of IP packets, headers included."""

    packets: int = 0
    bytes: int = 0
    """What senders put onto the link, whatever became of it."""
    delivered_packets: int = 0
    delivered_bytes: int = 0
    lost: int = 0
    overflowed: int = 0
    cut: int = 0
    refused: int = 0
    """Packets the interface at the far end did not take, because it was down."""
    overrun: int = 0
    """Packets the emulator was too slow to take in, not counted above: must be 0 in measurements,
    since no setting asked for them."""

    @property
    def dropped(self) -> int:
        return self.lost + self.overflowed + self.cut + self.refused + self.overrun

    def __add__(self, other: Counters) -> Counters:
        return Counters(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: Counters) -> Counters:
        return Counters(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))


class LinkModel:
    """Decides the fate of each packet. The n-th packet meets the n-th draw of every kind, whatever
    settings were before: the same seed loses the same packets of two runs that are compared."""

    def __init__(self, seed: str, impairments: Impairments | None = None) -> None:
        self._draw_loss = Random(f"{seed}/loss").random
        self._draw_burst = Random(f"{seed}/burst").random
        self._draw_burst_loss = Random(f"{seed}/burst loss").random
        self._draw_jitter = Random(f"{seed}/jitter").random
        self._draw_reorder = Random(f"{seed}/reorder").random
        self._is_bad = False
        self._free_ns = 0
        """When the transmitter has sent all that it took."""
        self._last_ns = 0
        """When the packet arrives that none may overtake."""
        self._impairments = Impairments()
        self._ns_per_byte = 0.0
        self._queue_ns = 0.0
        self.change(0, impairments or Impairments())

    @property
    def impairments(self) -> Impairments:
        return self._impairments

    def change(self, now_ns: int, impairments: Impairments) -> None:
        """From now on. Packets on the way keep their fate, and may be overtaken by those that find
        a shorter way, as when routes change; what waits for the transmitter keeps its size."""
        ns_per_byte = 8_000 / impairments.rate_mbit if impairments.rate_mbit else 0.0
        waiting_ns = max(0, self._free_ns - now_ns)
        scale = ns_per_byte / self._ns_per_byte if self._ns_per_byte else 0.0
        self._free_ns = now_ns + int(waiting_ns * scale)
        if _way(impairments) != _way(self._impairments):
            self._last_ns = now_ns
        self._ns_per_byte = ns_per_byte
        self._queue_ns = impairments.queue_bytes * ns_per_byte
        self._impairments = impairments

    def fate(self, now_ns: int, size: int, waiting_bytes: int = 0) -> int | Drop:
        """When a packet sent now arrives, or how it is lost."""
        asked = self._impairments
        threshold = asked.burst_end if self._is_bad else asked.burst_start
        if self._draw_burst() < threshold:
            self._is_bad = not self._is_bad
        in_burst = self._draw_burst_loss() < asked.burst_loss and self._is_bad
        is_lost = self._draw_loss() < asked.loss or in_burst
        jitter = self._draw_jitter()
        is_late = self._draw_reorder() < asked.reorder
        if asked.cut:
            return Drop.CUT
        if waiting_bytes + size > WAITING_BYTES:
            return Drop.OVERFLOWED
        sent_ns = now_ns
        if self._ns_per_byte:
            backlog_ns = self._free_ns - now_ns
            takes_ns = size * self._ns_per_byte
            if backlog_ns > 0:
                if backlog_ns + takes_ns > self._queue_ns:
                    return Drop.OVERFLOWED
                sent_ns = self._free_ns
            self._free_ns = sent_ns = sent_ns + int(takes_ns)
        if is_lost:
            # On the wire: the transmitter was busy with it all the same.
            return Drop.LOST
        way_ms = asked.delay_ms + (2.0 * jitter - 1.0) * asked.jitter_ms
        due_ns = max(sent_ns + int(way_ms * 1e6), sent_ns, self._last_ns)
        if is_late:
            return due_ns + int(asked.reorder_ms * 1e6)
        self._last_ns = due_ns
        return due_ns


def _way(asked: Impairments) -> tuple[float, float, float]:
    """What makes packets sent later find a shorter way."""
    return asked.delay_ms, asked.jitter_ms, asked.rate_mbit


class Line:
    """One direction: the packets on their way, and counts of all there were."""

    def __init__(self, seed: str) -> None:
        self.model = LinkModel(seed)
        self.counters = Counters()
        self.due_ns = NEVER_NS
        """When the next packet arrives."""
        self._waiting: list[tuple[int, int, bytes]] = []
        self._waiting_bytes = 0

    def change(self, now_ns: int, impairments: Impairments) -> None:
        self.model.change(now_ns, impairments)
        if impairments.cut:
            self.counters.cut += len(self._waiting)
            self._waiting.clear()
            self._waiting_bytes = 0
            self.due_ns = NEVER_NS

    def send(self, now_ns: int, packet: bytes) -> None:
        size = len(packet)
        counters = self.counters
        counters.packets += 1
        counters.bytes += size
        fate = self.model.fate(now_ns, size, self._waiting_bytes)
        if isinstance(fate, int):
            # The running number keeps packets that are due together in order.
            heapq.heappush(self._waiting, (fate, counters.packets, packet))
            self._waiting_bytes += size
            if fate < self.due_ns:
                self.due_ns = fate
        elif fate is Drop.LOST:
            counters.lost += 1
        elif fate is Drop.OVERFLOWED:
            counters.overflowed += 1
        else:
            counters.cut += 1

    def take_due(self, now_ns: int, limit: int) -> list[bytes]:
        """Up to `limit` packets that have arrived by now, which count as delivered."""
        waiting = self._waiting
        due: list[bytes] = []
        size = 0
        while waiting and waiting[0][0] <= now_ns and len(due) < limit:
            packet = heapq.heappop(waiting)[2]
            due.append(packet)
            size += len(packet)
        self._waiting_bytes -= size
        self.counters.delivered_packets += len(due)
        self.counters.delivered_bytes += size
        self.due_ns = waiting[0][0] if waiting else NEVER_NS
        return due

    def refuse(self, packet: bytes) -> None:
        """A packet that was due could not be delivered."""
        self.counters.delivered_packets -= 1
        self.counters.delivered_bytes -= len(packet)
        self.counters.refused += 1


FIELDS = frozenset(field.name for field in fields(Impairments))
