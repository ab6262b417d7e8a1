"""Samples column by column, as they travel: packing them, looking at them, taking them apart. Pure;
called by the edge broker on both ways and by frames.py, which puts columns into messages.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

WRITE, DISPOSE, WRITE_DISPOSE, UNREGISTER = range(4)
"""Kinds of samples, one byte each in the column `kinds`."""

_TIME = struct.Struct("<q")
_SIZE_BYTES = 4
_COPIED_BYTES = 1024
_IS_BIG_ENDIAN = sys.byteorder == "big"
assert array("I").itemsize == _SIZE_BYTES


@dataclass(slots=True)  # not frozen: to be so would cost a call for each field
class Packed:
    """Samples on their way out. Numbers are little endian; `sizes` is empty when every sample has
    `uniform_size` bytes, `kinds` when every one is a WRITE."""

    count: int
    timestamps: bytes
    sizes: bytes
    uniform_size: int
    kinds: bytes
    payload: bytes | memoryview

    @property
    def first_ns(self) -> int:
        """The time of the first sample."""
        time: int = _TIME.unpack_from(self.timestamps)[0]
        return time

    @property
    def oldest_ns(self) -> int:
        return self.first_ns if self.count == 1 else min(self.times())

    @property
    def largest(self) -> int:
        """Bytes of the largest sample."""
        return max(unpack_sizes(self.sizes)) if self.sizes else self.uniform_size

    def times(self) -> array[int]:
        return unpack_times(self.timestamps)

    def samples(self) -> Sequence[bytes | memoryview]:
        sizes = unpack_sizes(self.sizes) if self.sizes else None
        return divide(self.payload, sizes, self.uniform_size, self.count)

    def fitting(self, most_bytes: int) -> list[int]:
        """Places of those that are not larger."""
        return [at for at, sample in enumerate(self.samples()) if len(sample) <= most_bytes]

    def only(self, places: Sequence[int]) -> Packed:
        """These of them."""
        return pick(self.times(), self.samples(), self.kinds, places)

    def parts(self, most_samples: int, most_bytes: int) -> list[Packed]:
        """Itself in parts that make batches within the bounds; a larger sample makes a batch of its
        own."""
        if self.count <= most_samples and len(self.payload) <= most_bytes:
            return [self]
        if not self.sizes:
            step = min(most_samples, max(1, most_bytes // max(self.uniform_size, 1)))
            bounds = [*range(0, self.count, step), self.count]
            places = [at * self.uniform_size for at in bounds]
        else:
            bounds, places = _bounds(unpack_sizes(self.sizes), most_samples, most_bytes)
        payload = memoryview(self.payload)
        parts = []
        for at, (start, end) in enumerate(pairwise(bounds)):
            kinds = self.kinds[start:end]
            parts.append(
                Packed(
                    end - start,
                    self.timestamps[start * _TIME.size : end * _TIME.size],
                    self.sizes[start * _SIZE_BYTES : end * _SIZE_BYTES],
                    self.uniform_size,
                    kinds if any(kinds) else b"",
                    payload[places[at] : places[at + 1]],
                )
            )
        return parts


NOTHING = Packed(0, b"", b"", 0, b"", b"")


def _bounds(
    sizes: Iterable[int], most_samples: int, most_bytes: int
) -> tuple[list[int], list[int]]:
    """Where parts begin and end, by samples and by bytes."""
    bounds, places = [0], [0]
    at = place = 0
    for size in sizes:
        if at > bounds[-1] and (
            at - bounds[-1] >= most_samples or place + size - places[-1] > most_bytes
        ):
            bounds.append(at)
            places.append(place)
        at += 1
        place += size
    return [*bounds, at], [*places, place]


def pack(
    timestamps: Sequence[int], samples: Sequence[bytes | memoryview], kinds: bytes = b""
) -> Packed:
    """`kinds` may be left out when every sample is a WRITE."""
    sizes = list(map(len, samples))
    is_uniform = not sizes or sizes.count(sizes[0]) == len(sizes)
    return Packed(
        len(samples),
        _packed(array("q", timestamps)),
        b"" if is_uniform else _packed(array("I", sizes)),
        sizes[0] if is_uniform and sizes else 0,
        kinds if any(kinds) else b"",
        b"".join(samples),
    )


def pick(
    timestamps: Sequence[int],
    samples: Sequence[bytes | memoryview],
    kinds: bytes,
    places: Sequence[int],
) -> Packed:
    """Some of these samples."""
    return pack(
        [timestamps[at] for at in places],
        [samples[at] for at in places],
        bytes(kinds[at] for at in places) if kinds else b"",
    )


def divide(
    payload: bytes | memoryview, sizes: Sequence[int] | None, uniform_size: int, count: int
) -> Sequence[bytes | memoryview]:
    """Each sample: small ones copied, which is cheaper than a view."""
    if sizes is None:
        if uniform_size == 0:
            return [payload] * count
        if uniform_size <= _COPIED_BYTES:
            return struct.unpack_from(f"{uniform_size}s" * count, payload)
        return [payload[at : at + uniform_size] for at in range(0, len(payload), uniform_size)]
    samples = []
    at = 0
    for size in sizes:
        end = at + size
        samples.append(payload[at:end])
        at = end
    return samples


def unpack_times(packed: bytes) -> array[int]:
    return _unpacked("q", packed)


def unpack_sizes(packed: bytes) -> array[int]:
    return _unpacked("I", packed)


def _packed(column: array[int]) -> bytes:
    if _IS_BIG_ENDIAN:
        column.byteswap()
    return column.tobytes()


def _unpacked(typecode: str, packed: bytes) -> array[int]:
    column: array[int] = array(typecode, packed)
    if _IS_BIG_ENDIAN:
        column.byteswap()
    return column
