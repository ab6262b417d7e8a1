"""The shortcut of lone samples between DDS and direct links (shortcut.c), as the edge sees it: it
aims, and is told at the beginning of the next turn of the loop what has been done. Called by
outflows, by egress, by the reader of wires and by the edge; where the loops were not compiled
there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from edge_broker.dds.samples import IS_COMPILED
from gateway.shared_loop import SharedLoop
from gateway.tunnel.wire_reader import Ahead

if IS_COMPILED:
    from edge_broker.dds import bulk


class Sent(NamedTuple):
    """What went ahead: when, and how many bytes of its record the wire took."""

    at_ns: int
    bytes: int


class OutgoingAim:
    """Of one reader: what to do with its next sample, if it comes alone."""

    def __init__(self, reader: int) -> None:
        self._reader = reader
        self._is_set = False

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

    def lower(self) -> Sent | None:
        """Nothing is sent ahead any more. What was: when the sample taken last is that one."""
        if not self._is_set:
            return None
        self._is_set = False
        sent = bulk.sent(self._reader)
        return None if sent is None else Sent(*sent)

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
    """What the reader of wires asks."""

    def wait(self, epoll: int, timeout_ms: int) -> list[int]:
        return bulk.await_wires(epoll, timeout_ms)

    def watch(self, descriptor: int, is_at_boundary: bool) -> None:
        bulk.watch(descriptor, is_at_boundary)

    def lower(self, descriptor: int) -> None:
        bulk.lower(descriptor)


def wake_by(condition: int) -> None:
    """A guard condition of the waitset DDS is waited with."""
    if IS_COMPILED:
        bulk.wake_by(condition)


def lower_all() -> None:
    """Paths may have changed."""
    if IS_COMPILED:
        bulk.lower(0)


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
        if bulk.close_gate():
            readers, chunks = bulk.news()
            if readers:
                on_taken(readers)
            for wire, chunk in chunks:
                on_read(wire, chunk)

    loop.guard_turns(begin, bulk.open_gate)
