"""The shortcut of lone samples between DDS and direct links (outward.c, inward.c), as the edge sees
it: it aims, and is told at the beginning of the next turn of the loop what has been done. Called by
outflows, by egress, by the reader of wires and by the edge; where the loops were not compiled
there is none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

from edge_broker.dds.samples import IS_COMPILED
from gateway.shared_loop import SharedLoop
from gateway.tunnel.wire_reader import Ahead, CompiledAhead

if IS_COMPILED:
    from edge_broker.dds import bulk


class GoneAhead(NamedTuple):
    """A sample that was taken ahead; the reader gives it next."""

    sent_ns: int
    ways: int
    """It went, a bit for each; none: it was only taken, perhaps with another one."""


class OutgoingAim:
    """Of one reader: what to do with its next samples, if they come alone. That may happen at any
    moment, also during a turn, until the aim is lowered."""

    def __init__(self, reader: int) -> None:
        self._reader = reader
        self._is_set = False
        self._is_taken = False

    def set(
        self,
        ways: tuple[tuple[int, bytes], ...],
        writer: int,
        stream: bytes,
        first: int,
        end: int,
        until_s: float,
        *,
        overdue_s: float,
        is_all: bool,
        is_timed: bool,
    ) -> None:
        """Those that are this writer's and come until then are sent at once, as number `first` and
        so on, up to `end`, unless one that was sent is not accounted for after `overdue_s`. `ways`:
        the wires they go over, one or two, with what frames for each begin with. `is_all`: and
        nowhere else; the next turn is soon enough to account for them. `is_timed`: they say when.
        """
        if IS_COMPILED:
            self._is_set = bulk.aim_out(
                self._reader,
                ways,
                writer,
                stream,
                first,
                end,
                int(until_s * 1e9),
                int(overdue_s * 1e9),
                is_all,
                is_timed,
            )

    def keep(self, end: int, until_s: float) -> bool:
        """Whether they still are; then up to this number and until then."""
        return self._is_set and bulk.keep_aim(self._reader, end, int(until_s * 1e9))

    def lower(self) -> bool:
        """Nothing is taken ahead any more. Whether something was: the reader gives that next, one
        by one, and `gone` is to be asked before each."""
        if self._is_set or self._is_taken:
            self._is_set = False
            self._is_taken = bulk.lower_out(self._reader)
        return self._is_taken

    def gone(self) -> GoneAhead | None:
        """What was taken ahead and the reader gives next."""
        found = bulk.sent(self._reader) if self._is_set or self._is_taken else None
        self._is_taken = found is not None
        return None if found is None else GoneAhead(*found)

    def close(self) -> None:
        """The reader is about to be deleted."""
        if IS_COMPILED:
            bulk.forget(self._reader)


class IncomingAim:
    """Of one stream: what to do with its next batches, as long as they are lone samples. That may
    happen at any moment, also during a turn, until the aim is lowered."""

    def __init__(self, stream: bytes) -> None:
        self._stream = stream
        self.is_set = False

    def set(self, writer: int, following: int) -> None:
        """Those that come with this number and the ones behind it are written at once."""
        if IS_COMPILED:
            self.is_set = bulk.aim_in(self._stream, writer, following)

    def lower(self) -> bool:
        """Nothing is written ahead any more. Whether something was that is not accounted for."""
        self.is_set = False
        return IS_COMPILED and bulk.lower_in(self._stream)

    def close(self) -> None:
        """The stream is over, whatever was written of it."""
        self.is_set = False
        if IS_COMPILED:
            bulk.end_in(self._stream)


def wake_by(condition: int) -> None:
    """A guard condition of the waitset DDS is waited with."""
    if IS_COMPILED:
        bulk.wake_by(condition)


def expect(wire: int, at_ns: int) -> None:
    """By then there is to be an answer to what went over this wire: nothing that says when it was
    sent goes ahead over it afterwards."""
    if IS_COMPILED:
        bulk.expect(wire, at_ns)


def lower_all() -> None:
    """Paths may have changed."""
    if IS_COMPILED:
        bulk.lower(0)


def taken() -> list[int] | None:
    """Readers something was taken from ahead since the last call, first things first."""
    return bulk.taken() if IS_COMPILED else None


def written_at_ns() -> int:
    """When the batch DDS was given last had been written ahead; 0: it was not. Told once."""
    return bulk.written_at() if IS_COMPILED else 0


def wires_ahead() -> Ahead | None:
    """What the reader of wires and the wires ask."""
    return CompiledAhead(bulk) if IS_COMPILED else None


class Accounts:
    """What has been read ahead, on its way through the edge."""

    def __init__(
        self,
        on_read: Callable[[int, bytes], None],
        answering: Callable[[int], AbstractContextManager[object]],
        loop: SharedLoop,
    ) -> None:
        """`on_read` gets what was read from a wire, within `answering`, which is told when the
        first of it was."""
        self.read_at_ns = 0
        """When what is being accounted for was read; 0: nothing is."""
        self._chunks: deque[tuple[int, bytes, int]] = deque()
        self._on_read = on_read
        self._answering = answering
        self._loop = loop

    def settle(self) -> bool:
        """Accounts for what has been read so far; whether there was anything. May be called within
        itself, where something must not go on before: first things come first all the same."""
        if IS_COMPILED:
            self._chunks.extend(bulk.read())
        if not self._chunks:
            return False
        outer_ns = self.read_at_ns
        try:
            with self._answering(self._chunks[0][2]):
                while self._chunks:
                    wire, chunk, self.read_at_ns = self._chunks.popleft()
                    self._on_read(wire, chunk)
                    self._loop.give_way()
        finally:
            self.read_at_ns = outer_ns
        self._loop.begin_leisure()
        return True


def serve(loop: SharedLoop, on_taken: Callable[[list[int]], None]) -> None:
    """From now on what was taken is accounted for before anything else in each turn of the loop,
    which is having one: `on_taken` gets the readers, which give it when asked."""
    if not IS_COMPILED:
        return

    def begin() -> None:
        if bulk.has_news():
            loop.give_way()  # what somebody waited for is done
            for reader in bulk.taken() or ():
                on_taken([reader])
                loop.give_way()

    loop.begin_turns_with(begin)
