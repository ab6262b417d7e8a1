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
_OVERLAP_S = 0.5
"""How long a reader and its successor are both there. A new reader may lack samples in its first
moments, and what was lost under way is sent again only to readers that were there before."""


_DRAIN_SAMPLES = 1024

Entry = tuple[bytes, native.SampleInfo]
"""One taken sample."""

Identity = tuple[int, int, int, int]
"""Which sample it is, whichever reader has it: writer, instance, time and the hash of its data."""


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
        self._seen: Counter[Identity] = Counter()
        """What the reader's predecessor handed out: the reader may have it too."""
        self._given: Counter[Identity] = Counter()
        """What the reader handed out since it has a successor."""
        self._overlap_ends_s = 0.0
        self._successor: Port | None = None
        self._ahead: list[Entry] = []
        """What the successor handed out and the reader not, or not yet."""
        self._passed: dict[int, native.SampleInfo] = {}
        """The last sample of each instance that the successor was not the first to hand out."""
        self.reader = open_reader(most_samples, True)

    def take(self, most: int) -> tuple[Columns, bool]:
        if self._successor is not None:
            return self._take_from_both(self._successor, most)
        if self._ahead:
            ahead, self._ahead = self._ahead, []
            return self._translator.translate(ahead), True
        taken = native.take(self.reader.ref, most)
        if taken is None:
            return Columns((), (), b"", ()), False
        has_more = len(taken) == most
        sizes = list(map(len, taken.samples))
        is_replaceable = self._most_samples > _FEWEST_SAMPLES
        if is_replaceable and sum(sizes) * self._most_samples > 2 * self._most_bytes * len(taken):
            self._open_successor(sum(sizes) // len(taken))
        if not self._seen and taken.is_plain and not self._translator.has_memory:
            columns = self._plain(taken)
            if columns is not None:
                return columns, has_more
        entries, has_more = self._with_rest(taken, most)
        if self._seen:
            entries, _ = _without(self._seen, entries)
            if time.monotonic() > self._overlap_ends_s + _OVERLAP_S:
                self._seen.clear()
        return self._translator.translate(entries), has_more

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

    def _with_rest(self, taken: native.Taken, most: int) -> tuple[list[Entry], bool]:
        """Sample by sample: something lived or died, or belongs elsewhere."""
        entries = taken.entries()
        has_more = len(taken) == most
        is_alive = taken.is_alive
        while has_more and not is_alive:
            # The state of a dead instance belongs to its last sample: have all of them.
            more = native.take(self.reader.ref, most)
            has_more = more is not None and len(more) == most
            if more is not None:
                entries += more.entries()
        return entries, has_more

    def close(self) -> None:
        for reader in (self.reader, self._successor):
            if reader is not None:
                # To delete a full reader takes DDS some ten seconds.
                _drained(reader)
                self._close_reader(reader)

    def _open_successor(self, size: int) -> None:
        """A reader for samples of about this size. For a while both get everything."""
        self._most_samples = max(_FEWEST_SAMPLES, self._most_bytes // size)
        self._successor = self._open_reader(self._most_samples, False)
        self._overlap_ends_s = time.monotonic() + _OVERLAP_S

    def _take_from_both(self, successor: Port, most: int) -> tuple[Columns, bool]:
        """The reader leads, so that the order is its own; what only its successor has comes when
        the reader has gone."""
        self._ahead += _drained(successor)
        is_over = (
            time.monotonic() > self._overlap_ends_s
            or sum(len(data) for data, _ in self._ahead) > self._most_bytes
        )
        entries: list[Entry] = []
        has_more = False
        if is_over:
            entries = _drained(self.reader)
        elif (taken := native.take(self.reader.ref, most)) is not None:
            entries, has_more = self._with_rest(taken, most)
        columns = self._translator.translate(_without(self._seen, entries)[0])
        self._given.update(map(_identity, entries))
        self._ahead, passed = _without(self._given, self._ahead)
        self._passed.update((info.instance_handle, info) for _, info in passed)
        if is_over:
            self._close_reader(self.reader)
            self.reader, self._successor = successor, None
            self._seen, self._given = self._given, Counter()
            self._translator.start_over(self._passed.values())
            self._passed.clear()
        return columns, has_more or is_over or bool(self._ahead)

    def _key_sample(self, sample: bytes) -> bytes:
        return native.key_sample(self.reader.topic, sample)


def _identity(entry: Entry) -> Identity:
    data, info = entry
    return info.publication_handle, info.instance_handle, info.source_timestamp, hash(data)


def _without(seen: Counter[Identity], entries: list[Entry]) -> tuple[list[Entry], list[Entry]]:
    """The new ones, and those seen, which are struck off."""
    fresh: list[Entry] = []
    again: list[Entry] = []
    for entry in entries:
        identity = _identity(entry)
        if seen[identity] > 0:
            seen[identity] -= 1
            again.append(entry)
        else:
            fresh.append(entry)
    return fresh, again


def _drained(reader: Port) -> list[Entry]:
    entries: list[Entry] = []
    while (taken := native.take(reader.ref, _DRAIN_SAMPLES)) is not None:
        entries += taken.entries()
    return entries


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
