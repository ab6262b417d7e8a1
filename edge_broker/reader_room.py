"""How many samples the reader of a topic may hold. DDS bounds it by samples, memory is made of
bytes, and how large a topic's samples are shows only when they are read. Pure; called by ingress.
"""

from __future__ import annotations

from collections import deque

_FEWEST_SAMPLES = 64
_READINGS = 3
_MOST_TOPICS = 10_000

TopicAndType = tuple[str, str]


class ReaderRoom:
    """Remembers how large samples were the last times a topic was read."""

    def __init__(self, most_samples: int, most_bytes: int) -> None:
        self._most_samples = most_samples
        self._most_bytes = most_bytes
        self._sizes: dict[TopicAndType, deque[int]] = {}

    def learn(self, topic: TopicAndType, average_bytes: int) -> None:
        """It is read no longer; its samples had this size."""
        sizes = self._sizes.pop(topic, None) or deque(maxlen=_READINGS)
        sizes.append(average_bytes)
        self._sizes[topic] = sizes
        if len(self._sizes) > _MOST_TOPICS:
            del self._sizes[next(iter(self._sizes))]

    def samples(self, topic: TopicAndType) -> int:
        """Fewer than usual only where samples were large time and again: a reader that is too small
        for a flood of small ones carries half of what it could."""
        sizes = self._sizes.get(topic, ())
        if len(sizes) < _READINGS:
            return self._most_samples
        return max(_FEWEST_SAMPLES, min(self._most_samples, self._most_bytes // min(sizes)))
