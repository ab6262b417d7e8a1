"""The shortcut of lone samples between DDS and direct links (outward.c, inward.c), as the edge sees
it: it aims, and is told at the beginning of the next turn of the loop what has been done. Called by
outflows, by egress, by the reader of wires and by the edge; where the loops were not compiled
there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from edge_broker.dds.samples import IS_COMPILED
from gateway.shared_loop import SharedLoop
from gateway.tunnel.wire_reader import Ahead, CompiledAhead

if IS_COMPILED:
    from edge_broker.dds import bulk


class OutgoingAim:
    """Of one reader: what to do with its next sample, if it comes alone. That may happen at any
    moment, also during a turn, until the aim is lowered."""

    def __init__(self, reader: int) -> None:
        self._reader = reader
        self._is_set = False
        self._is_taken = False

    def set(
        self,
        wire: int,
        writer: int,
        to: bytes,
        stream: bytes,
        first: int,
        until_s: float,
        *,
        is_all: bool,
        is_timed: bool,
    ) -> None:
        """If it is this writer's and comes until then it is sent at once as number `first`.
        `is_all`: and nowhere else. `is_timed`: it says when."""
        if IS_COMPILED:
            self._is_set = bulk.aim_out(
                self._reader, wire, writer, to, stream, first, int(until_s * 1e9), is_all, is_timed
            )

    def lower(self) -> bool:
        """Nothing is taken ahead any more. Whether something was: the reader gives it next, and
        `sent_ns` is to be asked before it does."""
        if self._is_set:
            self._is_set = False
            self._is_taken = bulk.lower_out(self._reader)
        return self._is_taken

    def sent_ns(self) -> int | None:
        """When what was taken ahead was sent; None: it was not."""
        self._is_taken = False
        return bulk.sent(self._reader)

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
        give_way: Callable[[], object],
    ) -> None:
        """`on_read` gets what was read from a wire, within `answering`, which is told when the
        first of it was."""
        self.read_at_ns = 0
        """When what is being accounted for was read; 0: nothing is."""
        self._on_read = on_read
        self._answering = answering
        self._give_way = give_way

    def settle(self) -> bool:
        """Accounts for what has been read so far; whether there was anything."""
        chunks = bulk.read() if IS_COMPILED else ()
        if not chunks:
            return False
        try:
            with self._answering(chunks[0][2]):
                for wire, chunk, self.read_at_ns in chunks:
                    self._on_read(wire, chunk)
                    self._give_way()
        finally:
            self.read_at_ns = 0
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
