"""Frames together and in parts: what goes in comes out, small, and garbage is refused."""

from __future__ import annotations

import hashlib
import struct
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import FrameError
from gateway.tunnel import messages
from gateway.tunnel.columns import Packed
from gateway.tunnel.frames import Peer, StreamKey, encode_batch
from gateway.tunnel.parcels import (
    EACH_BYTES,
    MOST_FRAME_BYTES,
    MOST_TOGETHER_BYTES,
    Packer,
    Unpacker,
    dictionary,
)
from gateway.tunnel.repair import MOST_BODY_BYTES, VERSION

A, B = Peer("edge-a", 0x0123456789ABCDEF), Peer("edge-b", 0x1DE2AD0BE0EF0123)
NOW_NS = 1_800_000_000_123_456_789


def batch(number: int, size: int, random: Random) -> bytes:
    at_ns = NOW_NS + number * 5_000_000
    packed = Packed(1, struct.pack("<q", at_ns), b"", size, b"", random.randbytes(size))
    return encode_batch(StreamKey(*A, 3 + number % 4), (B.edge,), number, packed, at_ns + 1_200_000)


@given(st.lists(st.integers(0, 1500), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_frames_come_out_as_they_went_in(sizes: list[int], random: Random) -> None:
    packer, unpacker = Packer(A, B), Unpacker(A, B)
    frames = [batch(number, size, random) for number, size in enumerate(sizes)]
    together: list[bytes] = []
    for frame in frames:
        if len(frame) + EACH_BYTES > MOST_TOGETHER_BYTES:
            parts = packer.parts(frame)
            assert max(map(len, parts)) <= MOST_BODY_BYTES
            got = [each for part in parts for each in unpacker.frames(part)]
            assert got == [frame]
        elif sum(map(len, together)) + len(frame) + 12 * EACH_BYTES <= MOST_TOGETHER_BYTES:
            together.append(frame)
    if together:
        parcel = packer.together(together)
        assert len(parcel) <= MOST_BODY_BYTES
        assert unpacker.frames(parcel) == together


def test_heads_take_a_fraction_of_what_they_were_and_payloads_what_they_were() -> None:
    random = Random(1)
    frames = [batch(5000 + number, 76, random) for number in range(4)]
    heads = sum(map(len, frames)) - 4 * 76
    assert len(Packer(A, B).together(frames)) - 4 * 76 < heads / 3
    zeros = [frame[:-76] + bytes(76) for frame in frames]
    assert len(Packer(A, B).together(zeros)) == len(Packer(A, B).together(frames))


def test_acknowledgements_take_a_fraction_of_what_they_were() -> None:
    stream = StreamKey(*A, 7)
    acks = [messages.ack(A.edge, B, stream, 5000 + number) for number in range(5)]
    assert len(Packer(B, A).together(acks)) < sum(map(len, acks)) / 3


def test_parts_come_in_any_order_and_twice() -> None:
    packer, unpacker = Packer(A, B), Unpacker(A, B)
    frame = batch(1, MOST_FRAME_BYTES - 200, Random(1))
    parts = packer.parts(frame)
    other = packer.parts(frame)
    Random(2).shuffle(parts)
    got = [
        x
        for part in [*other[:-1], *parts[:-1], *parts[:-1], parts[-1]]
        for x in unpacker.frames(part)
    ]
    assert got == [frame]
    assert unpacker.frames(other[-1]) == [frame]


def test_frames_of_which_parts_never_come_are_forgotten() -> None:
    packer, unpacker = Packer(A, B), Unpacker(A, B)
    frame = batch(1, 3000, Random(1))
    first, *rest = packer.parts(frame)
    unpacker.frames(first)
    for _ in range(1000):
        unpacker.frames(packer.parts(frame)[0])
    assert [each for part in rest for each in unpacker.frames(part)] == []
    whole = packer.parts(frame)
    assert [each for part in whole for each in unpacker.frames(part)] == [frame]


@given(st.binary(max_size=200), st.sampled_from([b"", b"\1", b"\2", b"\3"]))
def test_garbage_is_refused_or_frames_but_never_anything_else(garbage: bytes, kind: bytes) -> None:
    try:
        Unpacker(A, B).frames(kind + garbage)
    except FrameError:
        return


def test_a_little_that_would_become_very_much_is_refused() -> None:
    empty = struct.pack("<BBHI", 1, 0, 0, 60_000 - 8) + bytes(60_000 - 8)
    packer, unpacker = Packer(A, B), Unpacker(A, B)
    assert unpacker.frames(packer.together([empty])) == [empty]
    bomb = packer.together([empty] * 100)
    assert len(bomb) < MOST_BODY_BYTES * 20
    with pytest.raises(FrameError):
        unpacker.frames(bomb)


def test_both_versions_of_a_pair_make_the_same_dictionary() -> None:
    """Else neither understands the other: a change needs another VERSION."""
    digest = hashlib.sha256(dictionary(A, B)).hexdigest()[:16]
    assert (VERSION, digest) == (0xD1, "41d3c141e77e5939")
