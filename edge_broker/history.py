"""What a transient-local publisher profile would give a late joiner: the last samples of each
instance, kept by the publisher's edge for LANs that subscribe later. Pure; made by outflows.py,
filled by outflow.py.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from edge_broker.lifecycle import Columns
from gateway.model import DurabilityService, HistoryKind
from gateway.tunnel.columns import UNREGISTER

INSTANCE_BYTES = 768
SAMPLE_BYTES = 256
"""What keeping it costs beside its own bytes, roughly: small samples of many instances are bounded,
too."""


class Kept(NamedTuple):
    order: int
    timestamp: int
    sample: bytes
    kind: int


class HistoryCache:
    """Bounded by what the origin itself keeps, and by bytes as a last resort."""

    def __init__(self, service: DurabilityService, most_bytes: int) -> None:
        depth = service.history.depth if service.history.kind is HistoryKind.KEEP_LAST else None
        limit = service.max_samples_per_instance
        if limit > 0:
            depth = limit if depth is None else min(depth, limit)
        self._depth = depth
        self._forgets = service.history.kind is HistoryKind.KEEP_LAST
        """Whether an instance goes when its writers let go of it, as in Cyclone's own history."""
        self._most_bytes = most_bytes
        self._instances: dict[int, deque[Kept]] = {}
        self._ages: deque[tuple[int, int]] = deque()
        self._order = 0
        self._count = 0
        self.bytes = 0
        self.evicted = 0
        """Samples given up because of `most_bytes`."""

    def __len__(self) -> int:
        return self._count

    def add(self, columns: Columns) -> None:
        kinds = columns.kinds or bytes(len(columns.samples))
        for instance, timestamp, sample, kind in zip(
            columns.instances, columns.timestamps, columns.samples, kinds, strict=True
        ):
            if kind == UNREGISTER:
                if self._forgets:
                    self._forget(instance)
                continue
            kept = self._instances.get(instance)
            if kept is None:
                kept = self._instances[instance] = deque()
                self.bytes += INSTANCE_BYTES
            if len(kept) == self._depth:
                self._drop(kept)
            kept.append(Kept(self._order, timestamp, sample, kind))
            self._ages.append((self._order, instance))
            self._order += 1
            self._count += 1
            self.bytes += len(sample) + SAMPLE_BYTES
        while self.bytes > self._most_bytes:
            self._evict_oldest()
        if len(self._ages) > 2 * self._count + 1024:
            self._ages = deque(
                sorted((k.order, i) for i, kept in self._instances.items() for k in kept)
            )

    def replay(self) -> list[Kept]:
        """Everything kept, in the order it was published."""
        return sorted(kept for instance in self._instances.values() for kept in instance)

    def _forget(self, instance: int) -> None:
        kept = self._instances.get(instance)
        if kept is not None:
            while kept:
                self._drop(kept)
            self._remove(instance)

    def _remove(self, instance: int) -> None:
        del self._instances[instance]
        self.bytes -= INSTANCE_BYTES

    def _drop(self, kept: deque[Kept]) -> None:
        self.bytes -= len(kept.popleft().sample) + SAMPLE_BYTES
        self._count -= 1

    def _evict_oldest(self) -> None:
        while True:
            order, instance = self._ages.popleft()
            kept = self._instances.get(instance)
            if kept and kept[0].order == order:
                break
        self._drop(kept)
        self.evicted += 1
        if not kept:
            self._remove(instance)
