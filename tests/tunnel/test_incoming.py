"""What a subscribing edge writes: in order, once each, whatever the wire does."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tunnel.frames import StreamKey
from gateway.tunnel.incoming import Delivery, IncomingStream

KEY = StreamKey("a", 7, 1)
Span = tuple[int, int]


def incoming(
    *, reliable: bool = True, first: int = 1, hold_bytes: int = 10_000
) -> IncomingStream[Span]:
    return IncomingStream(KEY, reliable=reliable, first=first, hold_bytes=hold_bytes)


def offer(stream: IncomingStream[Span], first: int, last: int) -> list[Delivery[Span]]:
    return stream.offer(first, last - first + 1, (first, last), last - first + 1)


def numbers(deliveries: list[Delivery[Span]]) -> list[int]:
    """The sample numbers written, checking that skip, first and count agree with the batch."""
    written = []
    for each in deliveries:
        first, last = each.item
        samples = list(range(first, last + 1))[each.skip :]
        assert samples == list(range(each.first, each.first + each.count))
        assert samples
        written += samples
    return written


def test_in_order_passes_straight_through() -> None:
    stream = incoming()
    assert numbers(offer(stream, 1, 3)) == [1, 2, 3]
    assert numbers(offer(stream, 4, 4)) == [4]
    assert stream.acknowledgement() == (0, ((1, 4),))
    stream.written(2)
    assert stream.acknowledgement() == (2, ((3, 4),))
    stream.written(4)
    assert stream.acknowledgement() == (4, ())


def test_early_batch_waits_for_the_gap() -> None:
    stream = incoming()
    assert offer(stream, 4, 6) == []
    assert stream.has_gap
    assert stream.acknowledgement() == (0, ((4, 6),))
    assert numbers(offer(stream, 1, 3)) == [1, 2, 3, 4, 5, 6]
    assert not stream.has_gap
    assert stream.held_bytes == 0


def test_one_batch_may_cover_several_held_ones_and_their_gaps() -> None:
    stream = incoming()
    offer(stream, 3, 4)
    offer(stream, 6, 7)
    assert numbers(offer(stream, 1, 9)) == list(range(1, 10))
    assert stream.held_bytes == 0
    assert stream.next_number == 10


def test_overlap_is_skipped() -> None:
    stream = incoming()
    offer(stream, 1, 5)
    assert numbers(offer(stream, 3, 8)) == [6, 7, 8]
    assert stream.duplicates == 3


def test_full_hold_refuses_but_keeps_what_it_acknowledged() -> None:
    stream = incoming(hold_bytes=4)
    offer(stream, 3, 6)
    offer(stream, 8, 8)
    assert stream.refused == 1
    assert stream.acknowledgement() == (0, ((3, 6),))
    assert numbers(offer(stream, 1, 2)) == [1, 2, 3, 4, 5, 6]
    offer(stream, 8, 8)
    assert numbers(offer(stream, 7, 7)) == [7, 8]


def test_partial_write_of_a_batch_is_acknowledged_partially() -> None:
    stream = incoming(first=11)
    offer(stream, 11, 20)
    stream.written(15)
    stream.written(13)
    assert stream.acknowledgement() == (15, ((16, 20),))
    with pytest.raises(ValueError, match="21 was never handed out"):
        stream.written(21)


def test_best_effort_skips_gaps_and_drops_what_is_late() -> None:
    stream = incoming(reliable=False)
    assert numbers(offer(stream, 4, 5)) == [4, 5]
    assert stream.lost == 3
    assert offer(stream, 1, 3) == []
    assert numbers(offer(stream, 5, 6)) == [6]
    assert stream.duplicates == 4


def test_reopened_further_on_gives_up_the_gap_but_not_what_is_held() -> None:
    stream = incoming()
    offer(stream, 1, 2)
    offer(stream, 4, 5)
    offer(stream, 12, 13)
    assert stream.advance(2) == []
    assert numbers(stream.advance(10)) == [4, 5]
    assert stream.lost == 1 + 4
    assert stream.acknowledgement() == (0, ((1, 9), (12, 13)))
    stream.written(2)
    assert stream.cumulative == 3
    stream.written(5)
    assert stream.cumulative == 9
    assert numbers(offer(stream, 10, 11)) == [10, 11, 12, 13]


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 9)), max_size=60), st.integers(0, 30))
def test_reliable_writes_each_number_once_in_order(
    batches: list[tuple[int, int]], hold_bytes: int
) -> None:
    """Arbitrary batching, repetition and order; what never comes stays a gap."""
    stream = incoming(hold_bytes=hold_bytes)
    written: list[int] = []
    acknowledged: set[int] = set()
    for first, count in batches:
        written += numbers(offer(stream, first, first + count - 1))
        assert written == list(range(1, len(written) + 1))
        assert stream.held_bytes <= hold_bytes
        stream.written(random.Random(first).randint(0, len(written)))
        cumulative, ranges = stream.acknowledgement()
        now = set(range(1, cumulative + 1)).union(*(range(a, b + 1) for a, b in ranges))
        assert acknowledged <= now, "an acknowledgement was taken back"
        acknowledged = now
    last = 70
    for first in range(1, last + 1):
        written += numbers(offer(stream, first, first))
    assert written == list(range(1, last + 1))
    assert not stream.has_gap


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 9)), max_size=60))
def test_best_effort_never_goes_back(batches: list[tuple[int, int]]) -> None:
    stream = incoming(reliable=False)
    written: list[int] = []
    for first, count in batches:
        written += numbers(offer(stream, first, first + count - 1))
    assert written == sorted(set(written))
    if written:
        assert stream.lost == written[-1] - len(written)
    assert stream.held_bytes == 0
