"""Columns say what was put into them, whole or in parts."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gateway.tunnel.columns import Packed, pack

rows = st.lists(
    st.tuples(st.integers(-(1 << 63), (1 << 63) - 1), st.binary(max_size=50), st.integers(0, 3)),
    min_size=1,
    max_size=60,
)
alike = st.lists(
    st.tuples(st.integers(0, 100), st.binary(min_size=9, max_size=9), st.just(0)),
    min_size=1,
    max_size=60,
)
Row = tuple[int, bytes, int]


def packed_of(rows: list[Row]) -> Packed:
    times, samples, kinds = zip(*rows, strict=True)
    return pack(times, samples, bytes(kinds))


def rows_of(packed: Packed) -> list[Row]:
    samples = map(bytes, packed.samples())
    kinds = packed.kinds or bytes(packed.count)
    return list(zip(packed.times(), samples, kinds, strict=True))


@given(rows | alike)
def test_what_is_packed_is_read_back(rows: list[Row]) -> None:
    packed = packed_of(rows)
    assert rows_of(packed) == rows
    assert packed.count == len(rows)
    assert packed.first_ns == rows[0][0]
    assert packed.oldest_ns == min(time for time, _, _ in rows)
    assert packed.largest == max(len(sample) for _, sample, _ in rows)
    assert (packed.kinds == b"") == (not any(kind for _, _, kind in rows))


@given(rows | alike, st.integers(0, 50))
def test_some_of_them(rows: list[Row], most_bytes: int) -> None:
    packed = packed_of(rows)
    places = packed.fitting(most_bytes)
    assert rows_of(packed.only(places)) == [row for row in rows if len(row[1]) <= most_bytes]


@given(rows | alike, st.integers(1, 20), st.integers(1, 200))
def test_parts_cover_everything_within_bounds(
    rows: list[Row], most_samples: int, most_bytes: int
) -> None:
    parts = packed_of(rows).parts(most_samples, most_bytes)
    assert [row for part in parts for row in rows_of(part)] == rows
    for part in parts:
        assert 1 <= part.count <= most_samples
        assert len(part.payload) <= most_bytes or part.count == 1
        assert (part.kinds == b"") == (not any(part.kinds))
    # No two neighbours would have fitted into one.
    for part, following in pairwise(parts):
        first_of_next = len(following.samples()[0])
        assert part.count == most_samples or len(part.payload) + first_of_next > most_bytes
