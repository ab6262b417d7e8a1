"""The shortcut of lone samples between DDS and direct links (outward.c, inward.c), as the edge sees
it: it aims, and is told at the beginning of the next turn of the loop what has been done. Called by
outflows, by egress, by the reader of wires and by the edge; where the loops were not compiled
there is none.
"""

from __future__ import annotations

from collections.abc import Callable

from edge_broker.dds.samples import IS_COMPILED
from gateway.shared_loop import SharedLoop
from gateway.tunnel.wire_reader import Ahead

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
    ) -> None:
        """If it is this writer's and comes until then it is sent at once as number `first`.
        `is_all`: and nowhere else."""
        if IS_COMPILED:
            self._is_set = bulk.aim_out(
                self._reader, wire, writer, to, stream, first, int(until_s * 1e9), is_all
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
    """Of one stream: what to do with its next batch, if that is a lone sample."""

    def __init__(self, stream: bytes) -> None:
        self._stream = stream
        self._is_set = False

    def set(self, writer: int, following: int) -> None:
        """If it has this number it is written at once."""
        if IS_COMPILED:
            self._is_set = bulk.aim_in(self._stream, writer, following)

    def lower(self) -> None:
        if self._is_set:
            self._is_set = False
            bulk.aim_in(self._stream, 0, 0)

    def close(self) -> None:
        """The stream is over, whatever was written of it."""
        if IS_COMPILED:
            bulk.end_in(self._stream)


class WiresAhead(Ahead):
    """What the reader of wires and the wires ask."""

    def wait(self, epoll: int, timeout_ms: int) -> list[int]:
        return bulk.await_wires(epoll, timeout_ms)

    def watch(self, descriptor: int, is_at_boundary: bool) -> None:
        bulk.watch(descriptor, is_at_boundary)

    def lower(self, descriptor: int) -> None:
        bulk.lower(descriptor)

    def send(self, descriptor: int, record: bytes | memoryview) -> int:
        return bulk.send(descriptor, record)

    def rest(self, descriptor: int) -> bytes:
        return bulk.rest(descriptor)


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
    return WiresAhead() if IS_COMPILED else None


def serve(
    loop: SharedLoop,
    on_taken: Callable[[list[int]], None],
    on_read: Callable[[int, bytes], None],
) -> None:
    """From now on, between two turns of the loop, which is having one: what was done is accounted
    for before anything else happens. `on_taken` gets readers a sample was taken from, which they
    give when asked; `on_read` what was read from a wire."""
    if not IS_COMPILED:
        return

    def begin() -> None:
        has_read = bulk.close_gate()
        if readers := bulk.taken():
            on_taken(readers)
        if has_read:
            for wire, chunk in bulk.read():
                on_read(wire, chunk)

    loop.guard_turns(begin, bulk.open_gate)
