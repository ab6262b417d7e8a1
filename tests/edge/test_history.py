"""What is kept for late joiners: as much as the origin keeps, and never more bytes than allowed."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_broker.history import INSTANCE_BYTES, SAMPLE_BYTES, HistoryCache
from edge_broker.lifecycle import Columns
from edge_broker.source import ReplaySource
from gateway.model import DurabilityService, History, HistoryKind
from gateway.tunnel.columns import DISPOSE, UNREGISTER, WRITE, WRITE_DISPOSE

PLENTY = 1 << 30

Sample = tuple[int, int, int]
"""Instance, kind, size."""

samples = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from([WRITE, WRITE, WRITE, DISPOSE, WRITE_DISPOSE, UNREGISTER]),
        st.integers(0, 40),
    ),
    max_size=80,
)
batch_sizes = st.integers(1, 7)
services = st.builds(
    DurabilityService,
    history=st.builds(History, st.sampled_from(HistoryKind), st.integers(1, 5)),
    max_samples_per_instance=st.sampled_from([-1, 1, 3]),
)


def columns(first: int, part: list[Sample]) -> Columns:
    """Samples whose time is their number and whose content is their length."""
    kinds = bytes(kind for _, kind, _ in part)
    return Columns(
        [first + index for index in range(len(part))],
        [bytes(size) for _, _, size in part],
        kinds if any(kinds) else b"",
        [instance for instance, _, _ in part],
    )


def fill(cache: HistoryCache, written: list[Sample], batch: int) -> None:
    for start in range(0, len(written), batch):
        cache.add(columns(start, written[start : start + batch]))


def depth_of(service: DurabilityService) -> int:
    limit = service.max_samples_per_instance
    bounds = [limit] if limit > 0 else []
    if service.history.kind is HistoryKind.KEEP_LAST:
        bounds.append(service.history.depth)
    return min(bounds, default=PLENTY)


def kept(service: DurabilityService, written: list[Sample]) -> list[tuple[int, int, int]]:
    """The model: number, kind and size of what a late joiner gets."""
    instances: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for number, (instance, kind, size) in enumerate(written):
        if kind != UNREGISTER:
            instances[instance].append((number, kind, size))
        elif service.history.kind is HistoryKind.KEEP_LAST:
            instances.pop(instance, None)
    last = (each[-depth_of(service) :] for each in instances.values())
    return sorted(sample for each in last for sample in each)


@given(services, samples, batch_sizes)
def test_the_last_of_each_instance_in_the_order_written(
    service: DurabilityService, written: list[Sample], batch: int
) -> None:
    cache = HistoryCache(service, PLENTY)
    fill(cache, written, batch)
    expected = kept(service, written)
    assert [(k.timestamp, k.kind, len(k.sample)) for k in cache.replay()] == expected
    assert len(cache) == len(expected)
    assert cache.bytes == cost([(written[number][0], size) for number, _, size in expected])
    assert cache.evicted == 0


def cost(found: list[tuple[int, int]]) -> int:
    """Of these instances and sizes."""
    instances = {instance for instance, _ in found}
    return sum(size + SAMPLE_BYTES for _, size in found) + INSTANCE_BYTES * len(instances)


@given(services, samples, batch_sizes, st.integers(0, 30_000))
def test_bytes_are_bounded_and_the_oldest_goes_first(
    service: DurabilityService, written: list[Sample], batch: int, most_bytes: int
) -> None:
    cache = HistoryCache(service, most_bytes)
    fill(cache, written, batch)
    found = [(written[k.timestamp][0], len(k.sample)) for k in cache.replay()]
    assert cache.bytes == cost(found) <= most_bytes
    assert len(cache) == len(cache.replay())
    # What is left of each instance is the end of what it would be without the bound.
    unbounded = kept(service, written)
    left = [(k.timestamp, k.kind, len(k.sample)) for k in cache.replay()]
    assert set(left) <= set(unbounded)
    for instance in range(4):
        here = [s for s in unbounded if written[s[0]][0] == instance]
        there = [s for s in left if written[s[0]][0] == instance]
        assert there == here[len(here) - len(there) :]
    if cache.evicted == 0:
        assert left == unbounded


def test_the_newest_samples_survive_the_byte_bound() -> None:
    room = 3 * INSTANCE_BYTES + 10 * (10 + SAMPLE_BYTES)
    cache = HistoryCache(DurabilityService(history=History(HistoryKind.KEEP_ALL)), room)
    fill(cache, [(number % 3, WRITE, 10) for number in range(50)], 5)
    assert [k.timestamp for k in cache.replay()] == list(range(40, 50))
    assert cache.evicted == 40


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (HistoryKind.KEEP_ALL, [(0, WRITE), (1, DISPOSE), (2, WRITE)]),
        (HistoryKind.KEEP_LAST, [(1, DISPOSE)]),
    ],
)
def test_a_dispose_is_kept_and_an_unregister_is_not(
    kind: HistoryKind, expected: list[tuple[int, int]]
) -> None:
    """As in Cyclone, whose history of the last samples forgets an instance nobody writes."""
    cache = HistoryCache(DurabilityService(history=History(kind, 1)), PLENTY)
    cache.add(columns(0, [(1, WRITE, 1), (1, DISPOSE, 1), (2, WRITE, 1), (2, UNREGISTER, 1)]))
    assert [(k.timestamp, k.kind) for k in cache.replay()] == expected


def test_instances_that_come_and_go_cost_no_memory() -> None:
    cache = HistoryCache(DurabilityService(history=History(HistoryKind.KEEP_LAST, 1)), PLENTY)
    for instance in range(5_000):
        cache.add(columns(0, [(instance, kind, 8) for kind in (WRITE, DISPOSE, UNREGISTER)]))
    assert cache.bytes == len(cache) == 0
    assert len(cache._ages) <= 1025


def test_bookkeeping_stays_small_over_a_long_life() -> None:
    cache = HistoryCache(DurabilityService(history=History(HistoryKind.KEEP_LAST, 2)), PLENTY)
    for number in range(5_000):
        cache.add(columns(number, [(number % 5, WRITE, 8)]))
    assert len(cache) == 10
    assert len(cache._ages) <= 2 * len(cache) + 1025


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_a_replay_hands_out_everything_once(most: int) -> None:
    cache = HistoryCache(DurabilityService(history=History(HistoryKind.KEEP_ALL)), PLENTY)
    cache.add(columns(0, [(1, WRITE, 1), (2, WRITE, 2), (1, WRITE_DISPOSE, 3), (3, WRITE, 4)]))
    source = ReplaySource(cache.replay())
    cache.add(columns(4, [(4, WRITE, 5)]))  # comes with the stream, not with the replay
    got: list[tuple[int, int]] = []
    has_more = True
    while has_more:
        part, _, has_more = source.take(most)
        got += zip(part.times(), part.kinds or bytes(part.count), strict=True)
    assert got == [(0, WRITE), (1, WRITE), (2, WRITE_DISPOSE), (3, WRITE)]
    assert source.is_exhausted
    assert source.take(most).packed.count == 0
