"""Where the samples of an outflow come from: a DDS reader, or what a history cache kept. Made by
ingress, taken from by outflows.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from edge_broker.dds import native
from edge_broker.dds.domain import Port
from edge_broker.history import Kept
from edge_broker.lifecycle import Columns, Translator

_FEWEST_SAMPLES = 64
_OVERLAP_S = 1.0
"""How long a sample may take from one reader of this process to the next."""


class Source(Protocol):
    """Where the samples of an outflow come from."""

    def take(self, most: int) -> tuple[Columns, bool]:
        """Up to about `most` samples, and whether there may be more right now."""
        ...


class ReaderSource:
    """Samples of the LAN, from an ingress reader it owns.

    DDS bounds a reader by samples, memory is made of bytes, and how large samples are shows only
    when they come. So the first reader has room for many small ones; when large ones come it is
    replaced by one with room for fewer.
    """

    def __init__(
        self,
        open_reader: Callable[[int, bool], Port],
        close_reader: Callable[[Port], None],
        is_accepted: Callable[[int], bool],
        *,
        most_samples: int,
        most_bytes: int,
    ) -> None:
        """`open_reader` gets how many samples the reader holds and whether it wants history."""
        self._open_reader = open_reader
        self._close_reader = close_reader
        self._most_samples = most_samples
        self._most_bytes = most_bytes
        self._translator = Translator(is_accepted, self._key_sample)
        self._seen: Counter[tuple[int, int, int, bytes]] = Counter()
        self._seen_until_s = 0.0
        self.reader = open_reader(most_samples, True)

    def take(self, most: int) -> tuple[Columns, bool]:
        taken, has_more = self._take(most)
        size = sum(len(data) for data, _ in taken)
        is_replaceable = self._most_samples > _FEWEST_SAMPLES
        if is_replaceable and size * self._most_samples > 2 * self._most_bytes * len(taken):
            taken = [*taken, *self._replace(size // len(taken))]
            has_more = True
        return self._translator.translate(taken), has_more

    def close(self) -> None:
        self._close_reader(self.reader)

    def _take(self, most: int) -> tuple[native.Taken, bool]:
        ref = self.reader.ref
        taken = native.take(ref, most)
        has_more = len(taken) == most
        if has_more and any(info.instance_state != native.INSTANCE_ALIVE for _, info in taken):
            # The state of a dead instance belongs to its last sample: have all of them.
            while has_more:
                more = native.take(ref, most)
                has_more = len(more) == most
                taken = [*taken, *more]
        if self._seen:
            taken = self._without_seen(taken)
        return taken, has_more

    def _replace(self, size: int) -> native.Taken:
        """Goes over to a reader for samples of about this size. Both readers get what arrives
        while both exist; what was taken from the old one is passed over in the new one."""
        old = self.reader
        self._most_samples = max(_FEWEST_SAMPLES, self._most_bytes // size)
        self.reader = self._open_reader(self._most_samples, False)
        left: list[tuple[bytes, native.SampleInfo]] = []
        while more := native.take(old.ref, self._most_samples):
            left += more
        self._close_reader(old)
        self._seen = Counter(_identity(data, info) for data, info in left)
        self._seen_until_s = time.monotonic() + _OVERLAP_S
        return left

    def _without_seen(self, taken: native.Taken) -> native.Taken:
        fresh = []
        for data, info in taken:
            identity = _identity(data, info)
            if self._seen[identity] > 0:
                self._seen[identity] -= 1
            else:
                fresh.append((data, info))
        if time.monotonic() > self._seen_until_s:
            self._seen.clear()
        return fresh

    def _key_sample(self, sample: bytes) -> bytes:
        return native.key_sample(self.reader.topic, sample)


def _identity(data: bytes, info: native.SampleInfo) -> tuple[int, int, int, bytes]:
    return info.publication_handle, info.instance_handle, info.source_timestamp, data


class ReplaySource:
    """What a history cache kept, once."""

    def __init__(self, kept: list[Kept]) -> None:
        self._kept = kept
        self._at = 0

    def take(self, most: int) -> tuple[Columns, bool]:
        part = self._kept[self._at : self._at + most]
        self._at += len(part)
        kinds = bytes(kept.kind for kept in part)
        columns = Columns(
            [kept.timestamp for kept in part],
            [kept.sample for kept in part],
            kinds if any(kinds) else b"",
            [],
        )
        return columns, self._at < len(self._kept)

    @property
    def is_exhausted(self) -> bool:
        return self._at >= len(self._kept)
