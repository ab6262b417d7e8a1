"""Traced batches on the wire: what their edge and the router they pass add to their envelope. Pure.
Called by the edge's tracing, by the relay and by the pump; which batches are traced stays out.
"""

from __future__ import annotations

import struct

from gateway.tunnel.frames import HEADER_BYTES, BatchTrace, extended
from gateway.tunnel.tunnel_pb2 import Envelope

_HEAD_LENGTH = struct.Struct("<I")
_TIME = struct.Struct("<q")


def with_trace(frame: bytes, trace: BatchTrace) -> bytes:
    """The frame of a batch, traced."""
    envelope = Envelope()
    message = envelope.trace
    message.share = trace.share
    message.ingress_ns = trace.ingress_ns
    message.sent_ns = trace.sent_ns
    message.copies.update(trace.copies)
    message.router_clock_offset_ns = trace.router_clock_offset_ns
    message.router_clock_error_ns = trace.router_clock_error_ns
    return extended(frame, envelope.SerializeToString())


class PassingFrame(bytes):
    """A traced frame inside a router: whoever writes it notes when it leaves."""

    __slots__ = ()

    def left(self, at_ns: int) -> bytes:
        """What goes on the wire, as long as this."""
        end = HEADER_BYTES + _HEAD_LENGTH.unpack_from(self, HEADER_BYTES - _HEAD_LENGTH.size)[0]
        view = memoryview(self)
        return b"".join((view[: end - _TIME.size], _TIME.pack(at_ns), view[end:]))


def passing(frame: bytes, in_ns: int) -> PassingFrame:
    """A traced frame that arrived at a router then. Raises FrameError when it is none."""
    envelope = Envelope()
    envelope.trace.router_in_ns = in_ns
    # The last field, so its eight bytes are the envelope's last ones.
    envelope.trace.router_out_ns = in_ns
    return PassingFrame(extended(frame, envelope.SerializeToString()))
