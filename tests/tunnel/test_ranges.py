"""NearPrefix against a plain set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.tunnel.ranges import NearPrefix

spans = st.tuples(st.integers(1, 40), st.integers(0, 6)).map(lambda each: (each[0], sum(each)))


@given(st.integers(0, 5), st.lists(spans, max_size=30), spans)
def test_holds_what_a_set_would_hold(
    floor: int, added: list[tuple[int, int]], asked: tuple[int, int]
) -> None:
    numbers = NearPrefix(floor)
    model = set(range(1, floor + 1))
    for first, last in added:
        new = set(range(first, last + 1))
        assert numbers.add(first, last) is bool(new - model)
        model |= new
        assert numbers.highest == max(model, default=0)
    held = set(range(1, numbers.floor + 1))
    for first, last in numbers.beyond:
        held |= set(range(first, last + 1))
    assert held == model
    edges = [numbers.floor, *(each for span in numbers.beyond for each in span)]
    assert all(later > earlier + 1 for earlier, later in zip(edges[::2], edges[1::2], strict=False))
    assert numbers.covers(*asked) is (set(range(asked[0], asked[1] + 1)) <= model)


@given(st.lists(spans, max_size=10), st.integers(0, 50))
def test_raising_the_floor_swallows_ranges(added: list[tuple[int, int]], floor: int) -> None:
    numbers = NearPrefix(0)
    for first, last in added:
        numbers.add(first, last)
    before = numbers.floor
    assert numbers.raise_floor(floor) is (floor > before)
    assert numbers.floor >= max(before, floor)
    assert all(first > numbers.floor + 1 for first, _ in numbers.beyond)
