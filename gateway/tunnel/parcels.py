"""Frames as what one datagram holds: small ones together, their heads compressed, because those of
one pair of edges are nearly the same; a large one in parts. Payloads are left as they are. Pure;
called by datagrams.py. Little endian.

A parcel begins with a byte:

  FRAMES   the size of the compressed heads (2 bytes), those (raw deflate, with the dictionary of
           this direction), the payloads. Of each frame the heads have the size of its head (2
           bytes), that of its payload (2 bytes), and the head: all up to the payload.
  PART     the frame's number (4 bytes), which part (1 byte), of how many (1 byte), the part
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from gateway.errors import FrameError
from gateway.tunnel import messages
from gateway.tunnel.columns import Packed
from gateway.tunnel.frames import Peer, StreamKey, encode_batch, head_bytes
from gateway.tunnel.repair import MOST_BODY_BYTES

FRAMES = 1
PART = 2

MOST_FRAME_BYTES = 16 * 1024
"""A larger one has so many parts that losing one of them is likely."""
_FRAMES_HEAD = struct.Struct("<BH")
_SIZES = struct.Struct("<HH")
_PART_HEAD = struct.Struct("<BIBB")
_SLACK = 64
"""By so much what cannot be compressed may grow."""
MOST_TOGETHER_BYTES = MOST_BODY_BYTES - _FRAMES_HEAD.size - _SLACK
"""Of frames in one parcel, each with `EACH_BYTES` more."""
EACH_BYTES = _SIZES.size
_MOST_HEADS_BYTES = 64 * 1024
_MOST_PARTIAL = 64
"""Frames of which parts are missing."""
_WINDOW = -10
_LEVEL = 9
_MEMORY = 1
"""Small: what is to be compressed is, and beginning with less takes a tenth of the time."""


class Packer:
    """Of one direction of a link."""

    def __init__(self, sender: Peer, receiver: Peer) -> None:
        self._fresh = zlib.compressobj(
            _LEVEL,
            zlib.DEFLATED,
            _WINDOW,
            _MEMORY,
            zlib.Z_DEFAULT_STRATEGY,
            dictionary(sender, receiver),
        )
        self._number = 0

    def together(self, frames: Sequence[bytes]) -> bytes:
        """One parcel; they are no larger than that allows."""
        heads = []
        payloads = []
        for frame in frames:
            size = head_bytes(frame)
            heads += [_SIZES.pack(size, len(frame) - size), frame[:size]]
            payloads.append(frame[size:])
        deflate = self._fresh.copy()
        deflated = deflate.compress(b"".join(heads)) + deflate.flush()
        return b"".join([_FRAMES_HEAD.pack(FRAMES, len(deflated)), deflated, *payloads])

    def parts(self, frame: bytes) -> list[bytes]:
        """Parcels that are nothing without each other."""
        self._number = (self._number + 1) & 0xFFFFFFFF
        most = MOST_BODY_BYTES - _PART_HEAD.size
        pieces = [frame[at : at + most] for at in range(0, len(frame), most)]
        return [
            _PART_HEAD.pack(PART, self._number, at, len(pieces)) + piece
            for at, piece in enumerate(pieces)
        ]


class Unpacker:
    """Of one direction of a link. Garbage raises FrameError."""

    def __init__(self, sender: Peer, receiver: Peer) -> None:
        self._fresh = zlib.decompressobj(_WINDOW, dictionary(sender, receiver))
        self._partial: dict[int, dict[int, bytes]] = {}

    def frames(self, parcel: bytes) -> list[bytes]:
        """Those that are whole now."""
        if not parcel:
            return []
        if parcel[0] == FRAMES:
            return self._together(parcel)
        if parcel[0] == PART:
            frame = self._join(parcel)
            return [] if frame is None else [frame]
        raise FrameError(f"a datagram holds something of kind {parcel[0]}")

    def _together(self, parcel: bytes) -> list[bytes]:
        heads, at = self._heads(parcel)
        frames = []
        place = 0
        while place < len(heads):
            if place + _SIZES.size > len(heads):
                raise FrameError("a datagram ends within a frame")
            head_size, size = _SIZES.unpack_from(heads, place)
            place += _SIZES.size
            if place + head_size > len(heads) or at + size > len(parcel):
                raise FrameError("a datagram ends within a frame")
            frames.append(heads[place : place + head_size] + parcel[at : at + size])
            place += head_size
            at += size
        return frames

    def _heads(self, parcel: bytes) -> tuple[bytes, int]:
        """And where the payloads begin."""
        if len(parcel) < _FRAMES_HEAD.size:
            raise FrameError("a datagram ends within a frame")
        _, size = _FRAMES_HEAD.unpack_from(parcel)
        end = _FRAMES_HEAD.size + size
        inflate = self._fresh.copy()
        try:
            heads = inflate.decompress(parcel[_FRAMES_HEAD.size : end], _MOST_HEADS_BYTES)
        except zlib.error as error:
            raise FrameError(f"a datagram cannot be read: {error}") from error
        if not inflate.eof:
            raise FrameError("a datagram ends within a frame")
        return heads, end

    def _join(self, parcel: bytes) -> bytes | None:
        if len(parcel) < _PART_HEAD.size:
            raise FrameError("a datagram ends within a part of a frame")
        _, number, place, places = _PART_HEAD.unpack_from(parcel)
        if place >= places:
            raise FrameError("a datagram holds a part of a frame that has no such part")
        pieces = self._partial.setdefault(number, {})
        pieces[place] = parcel[_PART_HEAD.size :]
        if len(pieces) < places:
            if len(self._partial) > _MOST_PARTIAL:
                del self._partial[next(iter(self._partial))]
            return None
        del self._partial[number]
        return b"".join(pieces[each] for each in sorted(pieces))


def dictionary(sender: Peer, receiver: Peer) -> bytes:
    """What heads of frames from one to the other look like. Both ends must make the same of it: to
    change it changes repair.VERSION."""
    to = receiver.edge
    theirs = StreamKey(receiver.edge, receiver.incarnation, 1)
    own = StreamKey(sender.edge, sender.incarnation, 1)
    sample = Packed(1, struct.pack("<q", _SOME_NS), b"", 64, b"", b"")
    return (
        messages.arrivals(to, sender, _SOME_NS, 1000, (1, 2))
        + messages.ack(to, sender, theirs, 1000)
        + encode_batch(own, (to,), 1000, sample, _SOME_NS)
    )


_SOME_NS = 0x18B1_0000_0000_0000
"""The first octets of times now and for some years."""
