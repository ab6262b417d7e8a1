"""Where the samples of an outflow come from: a DDS reader, or what a history cache kept. Made by
ingress, taken from by outflows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from edge_broker.dds import native
from edge_broker.dds.domain import Port
from edge_broker.history import Kept
from edge_broker.lifecycle import Columns, Translator, divide

_DRAIN_SAMPLES = 1024

Entry = tuple[bytes, native.SampleInfo]
"""One taken sample."""


class Source(Protocol):
    """Where the samples of an outflow come from."""

    def take(self, most: int) -> tuple[Columns, bool]:
        """Up to about `most` samples, and whether there may be more right now."""
        ...


class ReaderSource:
    """Samples of the LAN, from an ingress reader it owns from now on."""

    def __init__(
        self,
        reader: Port,
        close_reader: Callable[[Port], None],
        is_accepted: Callable[[int], bool],
        *,
        with_instances: bool = False,
    ) -> None:
        """`with_instances` fills that column also where nothing here needs it."""
        self.reader = reader
        self._close_reader = close_reader
        self._is_accepted = is_accepted
        self._with_instances = with_instances
        self._translator = Translator(is_accepted, self._key_sample)
        self._rest: Columns | None = None
        """Taken together because they had to be, and still to be handed out."""

    def take(self, most: int) -> tuple[Columns, bool]:
        if self._rest is not None:
            columns, self._rest = divide(self._rest, most)
            return columns, True
        taken = native.take(self.reader.ref, most)
        if taken is None:
            return Columns((), (), b"", ()), False
        if taken.is_plain and not self._translator.has_memory:
            plain = self._plain(taken)
            if plain is not None:
                return plain, len(taken.samples) == most
        entries, has_more = self._with_rest(taken, most)
        columns, self._rest = divide(self._translator.translate(entries), most)
        return columns, has_more or self._rest is not None

    def close(self) -> None:
        self._rest = None
        # To delete a full reader takes DDS some ten seconds.
        while native.take(self.reader.ref, _DRAIN_SAMPLES) is not None:
            continue
        self._close_reader(self.reader)

    def _plain(self, taken: native.Taken) -> Columns | None:
        """The common case, column by column: writes only, in the order they go out."""
        handles = taken.handles()
        if not all(map(self._is_accepted, handles)):
            return None
        timestamps = taken.timestamps()
        # DDS hands out instance by instance; one writer's own order is that of its clock.
        if (
            len(taken.samples) > 1
            and len(handles) == 1
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

    def _key_sample(self, sample: bytes) -> bytes:
        return native.key_sample(self.reader.topic, sample)


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
