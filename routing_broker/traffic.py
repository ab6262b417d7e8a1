"""What a router forwards, by topic: learnt from the Open messages that pass. Pure; called by the
relay once a frame and once a second. Rates are smoothed over a few seconds.
"""

from __future__ import annotations

from collections import OrderedDict

from gateway.tunnel.frames import StreamKey

MAX_STREAMS = 100_000
"""Streams of which the topic is remembered. Beyond that the one that has carried nothing for
longest is forgotten: most likely it is closed, which not every router is told."""
_SMOOTHING = 0.35
"""Weight of the latest second: a change shows within about three."""
_IDLE_BYTES_PER_S = 1.0


class _Meter:
    __slots__ = ("bytes_per_s", "pending", "streams")

    def __init__(self) -> None:
        self.pending = 0
        """Bytes since the last tick."""
        self.bytes_per_s = 0.0
        self.streams = 0

    def tick(self, elapsed_s: float) -> None:
        self.bytes_per_s += _SMOOTHING * (self.pending / elapsed_s - self.bytes_per_s)
        self.pending = 0


class Traffic:
    def __init__(self) -> None:
        self._total = _Meter()
        self._topics: dict[str, _Meter] = {}
        self._streams: OrderedDict[tuple[str, int, int], tuple[str, _Meter]] = OrderedDict()
        """The one that has carried nothing for longest comes first."""

    @property
    def bytes_per_s(self) -> float:
        return self._total.bytes_per_s

    def learn(self, stream: StreamKey, topic: str) -> None:
        if stream in self._streams:
            return
        if len(self._streams) >= MAX_STREAMS:
            self._forget_one()
        meter = self._topics.get(topic)
        if meter is None:
            meter = self._topics[topic] = _Meter()
        meter.streams += 1
        self._streams[stream] = (topic, meter)

    def _forget_one(self) -> None:
        _, (topic, meter) = self._streams.popitem(last=False)
        meter.streams -= 1
        if meter.streams == 0:
            del self._topics[topic]

    def forget(self, edge: str) -> None:
        """All streams of this edge are over: it left."""
        for stream in [stream for stream in self._streams if stream[0] == edge]:
            _, meter = self._streams.pop(stream)
            meter.streams -= 1

    def count(self, stream: tuple[str, int, int], size: int) -> None:
        """`size` bytes of a batch went out, all destinations together."""
        self._total.pending += size
        known = self._streams.get(stream)
        if known is not None:
            known[1].pending += size
            self._streams.move_to_end(stream)

    def tick(self, elapsed_s: float) -> None:
        self._total.tick(elapsed_s)
        for topic, meter in list(self._topics.items()):
            meter.tick(elapsed_s)
            if meter.streams == 0 and meter.bytes_per_s < _IDLE_BYTES_PER_S:
                del self._topics[topic]

    def heaviest(self, limit: int) -> tuple[tuple[str, float], ...]:
        """The topics with the most bytes per second, idle ones left out."""
        busy = [
            (topic, meter.bytes_per_s)
            for topic, meter in self._topics.items()
            if meter.bytes_per_s >= _IDLE_BYTES_PER_S
        ]
        busy.sort(key=lambda each: (-each[1], each[0]))
        return tuple(busy[:limit])
