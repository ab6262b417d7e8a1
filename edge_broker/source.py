"""Where the samples of an outflow come from: a DDS reader, or what a history cache kept. Made by
outflows.py, taken from by outflow.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from edge_broker.dds import native, samples
from edge_broker.dds.domain import Port
from edge_broker.dds.reader_room import ReaderRoom
from edge_broker.dds.samples import Entry, Plain
from edge_broker.dds.shortcuts import OutgoingAim
from edge_broker.history import Kept
from edge_broker.lifecycle import Columns, Translator, divide
from gateway.tunnel.columns import NOTHING, Packed, pack

_DRAIN_SAMPLES = 1024


class Taken(NamedTuple):
    """`instances` has the handle of each sample's, where that is needed."""

    packed: Packed
    instances: Sequence[int]
    has_more: bool
    """Whether there may be more right now."""


class Source(Protocol):
    """Where the samples of an outflow come from."""

    def take(self, most: int, *, is_sent: bool = False) -> Taken:
        """Up to about `most` samples; `is_sent`: which are on their way already."""
        ...


class ReaderSource:
    """Samples of the LAN, from an ingress reader it owns from now on."""

    def __init__(
        self,
        reader: Port,
        close_reader: Callable[[Port], None],
        is_accepted: Callable[[int], bool],
        room: ReaderRoom,
        *,
        with_instances: bool = False,
    ) -> None:
        """`with_instances` fills that column also where nothing here needs it."""
        self.reader = reader
        self.aim = OutgoingAim(reader.ref)
        self._lone_writer: int | None = None
        self._room = room
        self._close_reader = close_reader
        self._is_accepted = is_accepted
        self._with_instances = with_instances
        self._translator = Translator(is_accepted, self._key_sample)
        self._rest: Columns | None = None
        """Taken together because they had to be, and still to be handed out."""

    @property
    def lone_writer(self) -> int | None:
        """Whose sample was taken last, if it was all there was, the next one is likely to be no
        more than that, too, and what this writer writes still belongs here."""
        writer = self._lone_writer
        return writer if writer is not None and self._is_accepted(writer) else None

    def take(self, most: int, *, is_sent: bool = False) -> Taken:
        """`is_sent`: what comes has gone ahead and has its number, wherever its writer belongs by
        now."""
        if self._rest is not None:
            columns, self._rest = divide(self._rest, most)
            return _packed(columns, has_more=True)
        taken = samples.take(self.reader.ref, most)
        if taken is None:
            return _NOTHING
        self._lone_writer = None
        if (
            isinstance(taken, Plain)
            and not self._translator.has_memory
            and (is_sent or all(map(self._is_accepted, taken.writer_handles())))
        ):
            packed, has_more = taken.packed, taken.packed.count >= most
            if packed.count == 1 and isinstance(taken.writers, int):
                self._lone_writer = taken.writers
            self._room.fit(len(packed.payload) // packed.count, is_empty=not has_more)
            return Taken(packed, taken.instance_handles() if self._with_instances else (), has_more)
        entries, has_more = self._with_rest(taken, most)
        size = sum(len(sample) for sample, _ in entries)
        self._room.fit(size // len(entries), is_empty=not has_more)
        columns, self._rest = divide(self._translator.translate(entries), most)
        return _packed(columns, has_more or self._rest is not None)

    def close(self) -> None:
        self._rest = None
        self.aim.close()
        # To delete a full reader takes DDS some ten seconds.
        while samples.take(self.reader.ref, _DRAIN_SAMPLES) is not None:
            continue
        self._close_reader(self.reader)

    def _with_rest(self, taken: Plain | list[Entry], most: int) -> tuple[list[Entry], bool]:
        """Sample by sample: something lived or died, or belongs elsewhere."""
        entries = _entries(taken)
        has_more = len(entries) >= most
        is_alive = all(info.instance_state == native.INSTANCE_ALIVE for _, info in entries)
        while has_more and not is_alive:
            # The state of a dead instance belongs to its last sample: have all of them.
            more = _entries(samples.take(self.reader.ref, most) or [])
            has_more = len(more) >= most
            entries += more
        return entries, has_more

    def _key_sample(self, sample: bytes) -> bytes:
        return native.key_sample(self.reader.topic, sample)


class ReplaySource:
    """What a history cache kept, once."""

    def __init__(self, kept: list[Kept]) -> None:
        self._kept = kept
        self._at = 0

    def take(self, most: int, *, is_sent: bool = False) -> Taken:
        part = self._kept[self._at : self._at + most]
        self._at += len(part)
        packed = pack(
            [kept.timestamp for kept in part],
            [kept.sample for kept in part],
            bytes(kept.kind for kept in part),
        )
        return Taken(packed, (), self._at < len(self._kept))

    @property
    def is_exhausted(self) -> bool:
        return self._at >= len(self._kept)


def _packed(columns: Columns, has_more: bool) -> Taken:
    packed = pack(columns.timestamps, columns.samples, columns.kinds)
    return Taken(packed, columns.instances, has_more)


def _entries(taken: Plain | list[Entry]) -> list[Entry]:
    return taken.entries() if isinstance(taken, Plain) else taken


_NOTHING = Taken(NOTHING, (), False)
