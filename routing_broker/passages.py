"""The passage of frames through the router ahead of its turns (passage.c), as the relay sees it: it
says where edges are, reads what was not passed on, and collects what was. Where that was not
compiled there is none, and the relay does all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gateway.tunnel.frames import StreamKey, read_stream_id
from gateway.tunnel.wire_reader import CompiledAhead

try:
    from routing_broker import passage
except ImportError:  # installed without a compiler: slower
    IS_COMPILED = False
else:
    IS_COMPILED = True


class Passed(NamedTuple):
    """What was passed on since it was collected last."""

    frames: list[tuple[int, int, int]]
    """By the descriptor they came over: how many, and their bytes."""
    streams: list[tuple[StreamKey, int]]
    """Bytes of batches, once for each edge they went to."""


class Passages(CompiledAhead):
    """Reads wires for the relay and writes on them, at any time."""

    def __init__(self) -> None:
        super().__init__(passage)

    def route(self, edges: Mapping[str, int]) -> None:
        """These edges have these descriptors; others are not reached."""
        passage.route(dict(edges))

    def open(self, descriptor: int) -> None:
        """What comes for its edge may be written on it: nothing waits."""
        passage.open(descriptor)

    def stuck(self) -> list[int]:
        """Descriptors that took a part of a record: the rest is to be queued. Told once."""
        return passage.take_stuck()

    def left(self) -> tuple[int, bytes] | None:
        """What was read and not passed on, and from where. Told once, before more is read."""
        return passage.read()

    def collect(self) -> Passed:
        frames, streams = passage.collect()
        return Passed(frames, [(read_stream_id(name), size) for name, size in streams])


def passages() -> Passages | None:
    """Of a relay that begins: what an earlier one of this process left is forgotten."""
    if not IS_COMPILED:
        return None
    passage.lower(0)
    passage.collect()
    return Passages()
