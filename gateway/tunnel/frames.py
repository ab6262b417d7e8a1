"""How bytes on the wire are laid out: frames and the columns of a batch (proto/tunnel.proto). Pure;
called by both brokers and by messages.py. Garbage raises FrameError, never anything else. What
the other messages say stays out.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from google.protobuf.message import DecodeError

from gateway.errors import FrameError, FrameVersionError
from gateway.tunnel.columns import UNREGISTER, Packed, divide, pick, unpack_sizes, unpack_times
from gateway.tunnel.tunnel_pb2 import Envelope as Envelope
from gateway.tunnel.tunnel_pb2 import StreamId

PROTOCOL_VERSION = 1
MAX_FRAME_BYTES = 64 * 1024 * 1024
MAX_BATCH_SAMPLES = 1 << 20

MAX_BUNDLE_BYTES = 512 * 1024
MAX_MEMBER_BYTES = 256 * 1024
"""Frames up to this size share one message with others that wait, up to MAX_BUNDLE_BYTES."""

_HEADER = struct.Struct("<BBHI")
HEADER_BYTES = _HEADER.size
MAX_NUMBER = (1 << 63) - 1


class Peer(NamedTuple):
    """One life of one edge."""

    edge: str
    incarnation: int


class StreamKey(NamedTuple):
    """Names one stream everywhere; usable as a dictionary key."""

    edge: str
    incarnation: int
    number: int


class BatchTrace(NamedTuple):
    """When a traced batch was where; 0: not told."""

    share: float
    ingress_ns: int
    sent_ns: int
    copies: Mapping[str, int]
    """How many paths it was sent on to these edges; to others it was one."""
    router_clock_offset_ns: int = 0
    router_clock_error_ns: int = 0
    """0: the offset is not known."""
    router_in_ns: int = 0
    router_out_ns: int = 0


@dataclass(slots=True)  # not frozen: to be so would cost a call for each field
class Batch:
    """Samples first … first+count-1 of a stream. `sizes` is None when every sample has
    `uniform_size` bytes; `kinds` is empty when every sample is a WRITE."""

    stream: StreamKey
    first: int
    count: int
    timestamps: array[int]
    sizes: array[int] | None
    uniform_size: int
    kinds: bytes
    payload: memoryview
    sent_ns: int = 0
    """When its edge sent it, by the clock there; 0: nobody asks."""
    trace: BatchTrace | None = None

    @property
    def last(self) -> int:
        return self.first + self.count - 1

    def samples(self) -> Sequence[bytes | memoryview]:
        return divide(self.payload, self.sizes, self.uniform_size, self.count)

    def size_of(self, start: int, end: int) -> int:
        """Bytes of the samples start … end-1."""
        if end - start == self.count:
            return len(self.payload)
        return (
            (end - start) * self.uniform_size if self.sizes is None else sum(self.sizes[start:end])
        )

    def only(self, places: Sequence[int]) -> Batch:
        """These samples of it; their numbers are not told."""
        kept = pick(self.timestamps, self.samples(), self.kinds, places)
        return Batch(
            self.stream,
            self.first,
            kept.count,
            kept.times(),
            unpack_sizes(kept.sizes) if kept.sizes else None,
            kept.uniform_size,
            kept.kinds,
            memoryview(kept.payload),
        )


class Frame(NamedTuple):
    """A frame taken apart but not yet read."""

    envelope: Envelope
    payload: memoryview
    raw: bytes


# ---------------------------------------------------------------- frames


def encode(envelope: Envelope, payload: Sequence[bytes | memoryview] = ()) -> bytes:
    head = envelope.SerializeToString()
    return b"".join((_HEADER.pack(PROTOCOL_VERSION, 0, 0, len(head)), head, *payload))


def decode(frame: bytes) -> Frame:
    """Take a frame apart; raises FrameError, FrameVersionError when it is of another protocol."""
    payload_at = _payload_at(frame, 0, len(frame))
    envelope = _parse(frame, HEADER_BYTES, payload_at)
    return Frame(envelope, memoryview(frame)[payload_at:], frame)


def decode_envelope(message: bytes, start: int, end: int) -> Envelope:
    """The envelope of the frame at these `bounds`; raises as decode does."""
    return _parse(message, start + HEADER_BYTES, _payload_at(message, start, end))


def _parse(message: bytes, start: int, end: int) -> Envelope:
    try:
        return Envelope.FromString(message[start:end])
    except DecodeError as error:
        raise FrameError("frame dropped: its envelope is not protobuf") from error


def _payload_at(message: bytes, start: int, end: int) -> int:
    length = end - start
    if length < HEADER_BYTES:
        raise FrameError(f"frame dropped: {length} bytes are too few for a header")
    version, kind, reserved, head_length = _HEADER.unpack_from(message, start)
    if version != PROTOCOL_VERSION or kind or reserved:
        raise _broken_header(version)
    if length > MAX_FRAME_BYTES:
        raise FrameError(f"frame dropped: {length} bytes are more than {MAX_FRAME_BYTES}")
    payload_at: int = start + HEADER_BYTES + head_length
    if payload_at > end:
        raise FrameError(f"frame dropped: envelope of {head_length} bytes is truncated")
    return payload_at


def _broken_header(version: int) -> FrameError:
    if version != PROTOCOL_VERSION:
        return FrameVersionError(
            f"protocol version {version} is not {PROTOCOL_VERSION}: "
            "run the same ddswan version on all brokers"
        )
    return FrameError("frame dropped: its reserved bytes are not zero")


def readdress(frame: bytes, to: Sequence[str], sent_ns: int = 0) -> bytes:
    """The same frame for other edges: for resending to one of them. How long a batch took is asked
    of the first sending on a path only (`sent_ns`), and a trace tells when the very first was."""
    envelope, payload, _ = decode(frame)
    if envelope.HasField("batch"):
        envelope.batch.sent_ns = sent_ns
    if envelope.HasField("trace"):
        envelope.trace.ClearField("copies")
        envelope.trace.ClearField("router_clock_error_ns")
    del envelope.to[:]
    envelope.to.extend(to)
    return encode(envelope, (payload,))


def extended(frame: bytes, more: bytes) -> bytes:
    """The frame with more in its envelope, which is appended because protobuf merges it."""
    payload_at = _payload_at(frame, 0, len(frame))
    header = _HEADER.pack(PROTOCOL_VERSION, 0, 0, payload_at - HEADER_BYTES + len(more))
    view = memoryview(frame)
    return b"".join((header, view[HEADER_BYTES:payload_at], more, view[payload_at:]))


# ---------------------------------------------------------------- bundles

_BUNDLE_HEADER = _HEADER.pack(PROTOCOL_VERSION, 1, 0, 0)
_LENGTH = struct.Struct("<I")


def bundle(frames: Sequence[bytes]) -> bytes:
    """Several frames as one message: a message costs much more than its bytes."""
    parts = [_BUNDLE_HEADER]
    for frame in frames:
        parts += (_LENGTH.pack(len(frame)), frame)
    return b"".join(parts)


def is_bundle(message: bytes) -> bool:
    return message[1:2] == b"\x01"


def bounds(message: bytes) -> list[tuple[int, int]]:
    """Where each frame of a message starts and ends; raises FrameError."""
    if not is_bundle(message):
        return [(0, len(message))]
    if not message.startswith(_BUNDLE_HEADER):
        raise _broken_header(message[0])
    found = []
    at = HEADER_BYTES
    size = len(message)
    while at < size:
        start = at + 4
        at = start + _LENGTH.unpack_from(message, at)[0] if start <= size else start
        if at > size:
            raise FrameError("bundle dropped: it is truncated")
        found.append((start, at))
    return found


def unbundle(message: bytes) -> list[bytes]:
    """The frames of a message, itself when it is no bundle; raises FrameError."""
    if not is_bundle(message):
        return [message]
    return [message[start:end] for start, end in bounds(message)]


# ---------------------------------------------------------------- batches


def encode_batch(
    stream: StreamKey, to: Sequence[str], first: int, packed: Packed, sent_ns: int = 0
) -> bytes:
    """The caller keeps the whole below MAX_FRAME_BYTES."""
    envelope = Envelope(to=to)
    batch = envelope.batch
    write_stream(batch.stream, stream)
    batch.first = first
    batch.count = packed.count
    batch.timestamps = packed.timestamps
    if packed.sizes:
        batch.sizes = packed.sizes
    else:
        batch.uniform_size = packed.uniform_size
    if packed.kinds:
        batch.kinds = packed.kinds
    if sent_ns:
        batch.sent_ns = sent_ns
    return encode(envelope, (packed.payload,))


def head_bytes(frame: bytes) -> int:
    """The size of all that comes before the payload."""
    return HEADER_BYTES + int(_HEADER.unpack_from(frame)[3])


def lone_batch_head(to: Sequence[str]) -> bytes:
    """What comes before a batch for these edges."""
    return Envelope(to=to).SerializeToString()


def stream_id(stream: StreamKey) -> bytes:
    """How a batch says which stream it is of."""
    message = StreamId()
    write_stream(message, stream)
    return message.SerializeToString()


def read_stream_id(octets: bytes) -> StreamKey:
    """Of octets that came in a frame: they may say nonsense, which is a stream nobody has."""
    try:
        return read_stream(StreamId.FromString(octets))
    except DecodeError:
        return StreamKey("", 0, 0)


def decode_batch(frame: bytes) -> Batch:
    """Raises FrameError when it is not a batch or its columns contradict each other."""
    envelope, payload, _ = decode(frame)
    if not envelope.HasField("batch"):
        raise FrameError("frame dropped: it is not a batch")
    return read_batch(envelope, payload)


def read_batch(envelope: Envelope, payload: memoryview) -> Batch:
    batch = envelope.batch
    count = batch.count
    first = batch.first
    if not 1 <= count <= MAX_BATCH_SAMPLES or not 1 <= first <= MAX_NUMBER - count:
        raise FrameError(f"batch dropped: numbers {first}+{count} are out of range")
    packed_times = batch.timestamps
    if len(packed_times) != 8 * count:
        raise FrameError(f"batch dropped: {len(packed_times)} bytes of times, {count} samples")
    packed_sizes = batch.sizes
    sizes: array[int] | None = None
    if packed_sizes:
        if len(packed_sizes) != 4 * count:
            raise FrameError(f"batch dropped: {len(packed_sizes)} bytes of sizes, {count} samples")
        sizes = unpack_sizes(packed_sizes)
        total = sum(sizes)
    else:
        total = batch.uniform_size * count
    if total != len(payload):
        raise FrameError(f"batch dropped: sizes promise {total} bytes, {len(payload)} came")
    kinds = batch.kinds
    if kinds and (len(kinds) != count or max(kinds) > UNREGISTER):
        raise FrameError("batch dropped: its kinds make no sense")
    return Batch(
        read_stream(batch.stream),
        first,
        count,
        unpack_times(packed_times),
        sizes,
        batch.uniform_size,
        kinds,
        payload,
        batch.sent_ns,
        _read_trace(envelope) if envelope.HasField("trace") else None,
    )


def _read_trace(envelope: Envelope) -> BatchTrace:
    trace = envelope.trace
    return BatchTrace(
        trace.share,
        trace.ingress_ns,
        trace.sent_ns,
        dict(trace.copies),
        trace.router_clock_offset_ns,
        trace.router_clock_error_ns,
        trace.router_in_ns,
        trace.router_out_ns,
    )


def write_stream(message: StreamId, stream: StreamKey) -> None:
    origin = message.origin
    origin.edge = stream.edge
    origin.incarnation = stream.incarnation
    message.number = stream.number


def read_stream(message: StreamId) -> StreamKey:
    origin = message.origin
    return StreamKey(origin.edge, origin.incarnation, message.number)
