"""The model of an emulated link in virtual time: nothing is lost unasked, nothing comes too early,
rates and loss are those asked for, and a seed says it all.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.wan_model import NEVER_NS, Drop, Impairments, Line, LinkModel

MS = 1_000_000
S = 1_000 * MS
ALL = 1 << 30

probabilities = st.sampled_from([0.0, 0.01, 0.2, 0.7, 1.0])
impairments = st.builds(
    Impairments,
    delay_ms=st.sampled_from([0.0, 0.5, 30.0, 250.0]),
    jitter_ms=st.sampled_from([0.0, 3.0, 60.0]),
    loss=probabilities,
    burst_start=probabilities,
    burst_end=probabilities,
    burst_loss=probabilities,
    rate_mbit=st.sampled_from([0.0, 0.1, 10.0, 1000.0]),
    queue_bytes=st.sampled_from([0.0, 3_000.0, 256_000.0]),
    reorder=probabilities,
    reorder_ms=st.sampled_from([0.0, 5.0]),
)
packets = st.lists(st.tuples(st.integers(0, 20 * MS), st.integers(20, 1500)), max_size=80)
"""Time since the one before, and size."""


def fates(seed: str, asked: Impairments, count: int, gap_ns: int = MS) -> list[int | Drop]:
    """What becomes of equal packets at equal distances: time on the way, or how they are lost."""
    model = LinkModel(seed, asked)
    found: list[int | Drop] = []
    for number in range(count):
        fate = model.fate(number * gap_ns, 1000)
        found.append(fate if isinstance(fate, Drop) else fate - number * gap_ns)
    return found


def lost(found: list[int | Drop]) -> list[int]:
    return [number for number, fate in enumerate(found) if fate is Drop.LOST]


@given(impairments, packets, st.integers(0, 80))
def test_packets_arrive_once_in_time_and_in_order_or_are_counted(
    asked: Impairments, sent: list[tuple[int, int]], cut_at: int
) -> None:
    line = Line("seed")
    line.change(0, asked)
    arrivals: list[tuple[int, int]] = []
    sent_ns: list[int] = []

    def let_arrive(until_ns: int) -> None:
        while line.due_ns <= until_ns:
            due_ns = line.due_ns
            (packet,) = line.take_due(due_ns, 1)
            arrivals.append((due_ns, int.from_bytes(packet[:4], "big")))

    now_ns = 0
    for number, (gap_ns, size) in enumerate(sent):
        now_ns += gap_ns
        let_arrive(now_ns)
        if number == cut_at:
            line.change(now_ns, replace(asked, cut=True))
            assert line.due_ns == NEVER_NS
        line.send(now_ns, number.to_bytes(4, "big") + bytes(size - 4))
        sent_ns.append(now_ns)
    let_arrive(NEVER_NS - 1)

    counters = line.counters
    assert counters.packets == len(sent)
    assert counters.bytes == sum(size for _, size in sent)
    assert counters.delivered_packets == len(arrivals)
    assert counters.packets - counters.dropped == len(arrivals)
    numbers = [number for _, number in arrivals]
    assert len(set(numbers)) == len(numbers)
    if not asked.reorder:
        assert numbers == sorted(numbers)
    queue_ns = max(asked.queue_bytes, 1500.0) * 8_000 / asked.rate_mbit if asked.rate_mbit else 0.0
    least_ns = max(0.0, asked.delay_ms - asked.jitter_ms) * MS
    most_ns = (asked.delay_ms + asked.jitter_ms + asked.reorder_ms) * MS + queue_ns + 1500 * 80_000
    for arrived_ns, number in arrivals:
        assert least_ns - 1 <= arrived_ns - sent_ns[number] <= most_ns
    if cut_at < len(sent):
        assert all(arrived_ns <= sent_ns[cut_at] for arrived_ns, _ in arrivals)


@given(impairments, st.integers(0, 1000))
def test_a_seed_says_it_all(asked: Impairments, seed: int) -> None:
    assert fates(str(seed), asked, 100) == fates(str(seed), asked, 100)


def test_seeds_differ() -> None:
    asked = Impairments(loss=0.5, jitter_ms=5, delay_ms=5)
    assert fates("1", asked, 100) != fates("2", asked, 100)


@given(impairments, impairments, st.integers(0, 1000))
def test_what_was_set_before_does_not_change_which_packets_are_lost(
    before: Impairments, after: Impairments, seed: int
) -> None:
    after = replace(after, rate_mbit=0.0, burst_start=0.0, burst_end=1.0)
    changed = LinkModel(str(seed), before)
    for number in range(50):
        changed.fate(number * MS, 1000)
    changed.change(50 * MS, after)
    # One packet leaves whatever burst there was.
    found = [changed.fate(number * MS, 1000) for number in range(50, 100)]
    assert (
        lost(found)[-20:] == [n - 50 for n in lost(fates(str(seed), after, 100)) if n >= 50][-20:]
    )


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.integers(0, 1000))
def test_more_loss_loses_what_less_loss_loses_and_more(a: float, b: float, seed: int) -> None:
    less, more = (
        set(lost(fates(str(seed), Impairments(loss=loss), 200))) for loss in sorted((a, b))
    )
    assert less <= more


@pytest.mark.parametrize("loss", [0.001, 0.01, 0.3])
def test_independent_loss_has_its_rate_and_no_memory(loss: float) -> None:
    count = 200_000
    numbers = lost(fates("seed", Impairments(loss=loss), count))
    deviation = (count * loss * (1 - loss)) ** 0.5
    assert abs(len(numbers) - count * loss) < 4 * deviation
    pairs = sum(b - a == 1 for a, b in pairwise(numbers))
    assert abs(pairs - count * loss**2) < 4 * (count * loss**2) ** 0.5 + 1


def test_gilbert_bursts_have_their_share_and_length() -> None:
    count = 200_000
    asked = Impairments(burst_start=0.01, burst_end=0.2)
    numbers = lost(fates("seed", asked, count))
    bursts = 1 + sum(b - a > 1 for a, b in pairwise(numbers))
    assert len(numbers) / count == pytest.approx(0.01 / 0.21, rel=0.05)
    assert len(numbers) / bursts == pytest.approx(1 / 0.2, rel=0.05)
    half = lost(fates("seed", replace(asked, burst_loss=0.5), count))
    assert set(half) < set(numbers)
    assert len(half) / len(numbers) == pytest.approx(0.5, rel=0.05)


def test_jitter_is_uniform_around_the_delay() -> None:
    asked = Impairments(delay_ms=30, jitter_ms=10)
    ways = sorted(way for way in fates("seed", asked, 20_000, 50 * MS) if isinstance(way, int))
    for share in (0.0, 0.25, 0.5, 0.75, 0.9999):
        assert ways[int(share * len(ways))] / MS == pytest.approx(20 + 20 * share, abs=0.4)


def test_rate_and_queue() -> None:
    """10 Mbit/s: 0.8 ms for 1000 bytes; the queue takes ten of a flood, its tail is dropped."""
    model = LinkModel("seed", Impairments(delay_ms=5, rate_mbit=10, queue_bytes=10_000))
    found = [model.fate(0, 1000) for _ in range(15)]
    assert found[:10] == [5 * MS + (n + 1) * 800_000 for n in range(10)]
    assert found[10:] == [Drop.OVERFLOWED] * 5
    assert model.fate(800_000, 1000) == 5 * MS + 11 * 800_000
    # Twice as fast: the ten that wait take 4 ms from here.
    model.change(800_000, Impairments(rate_mbit=20, queue_bytes=20_000))
    assert model.fate(800_000, 1000) == 800_000 + 11 * 400_000
    model.change(800_000, Impairments())
    assert model.fate(800_000, 1000) == 800_000


def test_what_is_held_back_is_overtaken() -> None:
    found = fates("seed", Impairments(delay_ms=30, reorder=0.1, reorder_ms=5), 10_000)
    late = [n for n, way in enumerate(found) if way == 35 * MS]
    assert len(late) / len(found) == pytest.approx(0.1, rel=0.1)
    assert all(way == 30 * MS for n, way in enumerate(found) if n not in set(late))


def test_a_shorter_way_is_taken_at_once() -> None:
    line = Line("seed")
    line.change(0, Impairments(delay_ms=250))
    line.send(0, b"old way")
    line.change(MS, Impairments(delay_ms=30))
    line.send(MS, b"new way")
    assert line.take_due(31 * MS, ALL) == [b"new way"]
    assert line.take_due(250 * MS, ALL) == [b"old way"]


def test_a_link_holds_no_more_than_its_bound() -> None:
    line = Line("seed")
    line.change(0, Impairments(delay_ms=1e9))
    packet = bytes(65_535)
    for _ in range(3000):
        line.send(0, packet)
    held = line.counters.packets - line.counters.overflowed
    assert held == (128 << 20) // 65_535
    line.change(S, Impairments(cut=True))
    assert line.counters.cut == held


@pytest.mark.parametrize("wrong", [{"loss": 1.5}, {"delay_ms": -1.0}, {"burst_end": -0.1}])
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Impairments(**wrong)  # type: ignore[arg-type]
