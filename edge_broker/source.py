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


Entry = tuple[bytes, native.SampleInfo]
"""One taken sample."""


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
        with_instances: bool = False,
    ) -> None:
        """`open_reader` gets how many samples the reader holds and whether it wants history;
        `with_instances` fills that column also where nothing here needs it."""
        self._is_accepted = is_accepted
        self._with_instances = with_instances
        self._open_reader = open_reader
        self._close_reader = close_reader
        self._most_samples = most_samples
        self._most_bytes = most_bytes
        self._translator = Translator(is_accepted, self._key_sample)
        self._seen: Counter[tuple[int, int, int, bytes]] = Counter()
        self._seen_until_s = 0.0
        self.reader = open_reader(most_samples, True)

    def take(self, most: int) -> tuple[Columns, bool]:
        taken = native.take(self.reader.ref, most)
        if taken is None:
            return Columns((), (), b"", ()), False
        has_more = len(taken) == most
        sizes = list(map(len, taken.samples))
        is_replaceable = self._most_samples > _FEWEST_SAMPLES
        if is_replaceable and sum(sizes) * self._most_samples > 2 * self._most_bytes * len(taken):
            entries = self._without_seen(taken.entries())
            entries += self._replace(sum(sizes) // len(taken))
            translated = self._translator.translate(entries)
            self._translator.start_over()
            return translated, True
        if not self._seen and taken.is_plain and not self._translator.has_memory:
            columns = self._plain(taken)
            if columns is not None:
                return columns, has_more
        return self._take_rest(taken, most, has_more)

    def _plain(self, taken: native.Taken) -> Columns | None:
        """The common case, column by column: writes only, in the order they go out."""
        handles = taken.handles()
        if not all(map(self._is_accepted, handles)):
            return None
        timestamps = taken.timestamps()
        # DDS hands out instance by instance; one writer's own order is that of its clock.
        if (
            len(handles) == 1
            and not taken.is_of_one_instance
            and list(timestamps) != sorted(timestamps)
        ):
            return None
        instances = taken.instances() if self._with_instances else ()
        return Columns(timestamps, taken.samples, b"", instances)

    def _take_rest(self, taken: native.Taken, most: int, has_more: bool) -> tuple[Columns, bool]:
        """Sample by sample: something lived or died, or belongs elsewhere."""
        entries = taken.entries()
        is_alive = taken.is_alive
        while has_more and not is_alive:
            # The state of a dead instance belongs to its last sample: have all of them.
            more = native.take(self.reader.ref, most)
            has_more = more is not None and len(more) == most
            if more is not None:
                entries += more.entries()
        if self._seen:
            entries = self._without_seen(entries)
        return self._translator.translate(entries), has_more

    def close(self) -> None:
        self._close_reader(self.reader)

    def _replace(self, size: int) -> list[Entry]:
        """Goes over to a reader for samples of about this size. Both readers get what arrives
        while both exist; what was taken from the old one is passed over in the new one."""
        old = self.reader
        self._most_samples = max(_FEWEST_SAMPLES, self._most_bytes // size)
        self.reader = self._open_reader(self._most_samples, False)
        left: list[Entry] = []
        while more := native.take(old.ref, self._most_samples):
            left += more.entries()
        self._close_reader(old)
        fresh = self._without_seen(left)
        self._seen.update(_identity(data, info) for data, info in left)
        self._seen_until_s = time.monotonic() + _OVERLAP_S
        return fresh

    def _without_seen(self, taken: list[Entry]) -> list[Entry]:
        fresh = []
        for data, info in taken:
            identity = _identity(data, info)
            if self._seen[identity] > 0:
                self._seen[identity] -= 1
                self._translator.pass_over(info)
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
