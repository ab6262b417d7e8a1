"""When samples wait for company: only where it spares them being held up, and never for long."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.plan.path_patience import WAIT_SHARE, patience_s
from gateway.plan.path_quality import PathQuality

MOST_S = 0.025


def path(level_s: float, *, held_up: float = 0.3, count: int = 2000) -> tuple[PathQuality, float]:
    random = Random(1)
    quality, now_s = PathQuality("express"), 0.0
    for _ in range(count):
        now_s += 0.01
        quality.observe(level_s * (3.0 if random.random() < held_up else 1.0), now_s)
    return quality, now_s


def test_a_long_path_that_holds_up_samples_is_worth_a_wait() -> None:
    quality, now_s = path(0.25)
    assert patience_s([quality], 0.6, 200.0, now_s, most_s=MOST_S) == pytest.approx(
        WAIT_SHARE * 0.25
    )


def test_a_path_that_loses_nothing_is_not() -> None:
    quality, now_s = path(0.25, held_up=0.0)
    assert patience_s([quality], 0.6, 200.0, now_s, most_s=MOST_S) == 0.0
    rarely, now_s = path(0.25, held_up=0.01)
    assert patience_s([rarely], 0.6, 200.0, now_s, most_s=MOST_S) == 0.0


def test_one_of_two_paths_that_holds_up_samples_is_enough() -> None:
    lossy, now_s = path(0.25)
    sound, _ = path(0.28, held_up=0.0)
    assert patience_s([sound, lossy], 0.6, 200.0, now_s, most_s=MOST_S) > 0.0


def test_only_half_of_what_is_left_until_the_deadline_is_spent_on_any_path() -> None:
    fast, now_s = path(0.25)
    slow, _ = path(0.28)
    assert patience_s([fast], 0.29, 200.0, now_s, most_s=MOST_S) == pytest.approx(0.02)
    assert patience_s([fast], 0.27, 200.0, now_s, most_s=MOST_S) == pytest.approx(0.01)
    assert patience_s([fast, slow], 0.3, 200.0, now_s, most_s=MOST_S) == pytest.approx(0.01)


def test_what_is_late_anyway_may_wait_as_well() -> None:
    quality, now_s = path(0.25)
    assert patience_s([quality], 0.05, 200.0, now_s, most_s=MOST_S) == pytest.approx(
        WAIT_SHARE * 0.25
    )


def test_nobody_waits_longer_than_was_asked_for() -> None:
    quality, now_s = path(0.25)
    assert patience_s([quality], 0.6, 200.0, now_s, most_s=0.015) == 0.015
    assert patience_s([quality], 0.6, 200.0, now_s, most_s=0.0) == 0.0


@pytest.mark.parametrize("is_exponential", [True, False])
def test_a_path_that_is_merely_unsteady_is_not_worth_a_wait(is_exponential: bool) -> None:
    random = Random(3)
    quality, now_s = PathQuality("express"), 0.0
    for _ in range(4000):
        now_s += 0.01
        jitter_s = random.expovariate(1 / 0.015) if is_exponential else random.uniform(0.0, 0.03)
        quality.observe((0.06 if is_exponential else 0.04) + jitter_s, now_s)
    for deadline_s in (0.01, 0.075, 0.1, 0.12, 0.5):
        assert patience_s([quality], deadline_s, 4000.0, now_s, most_s=MOST_S) == 0.0


def test_nobody_waits_where_the_wait_itself_would_make_samples_late() -> None:
    random = Random(4)
    quality, now_s = PathQuality("express"), 0.0
    for _ in range(4000):
        now_s += 0.01
        held_up_s = 0.5 if random.random() < 0.1 else 0.0
        quality.observe(0.2 + random.uniform(0.0, 0.03) + held_up_s, now_s)
    assert patience_s([quality], 0.235, 4000.0, now_s, most_s=MOST_S) == 0.0
    assert patience_s([quality], 0.235, 4000.0, now_s, most_s=MOST_S, target=0.5) > 0.0
    assert patience_s([quality], 0.3, 4000.0, now_s, most_s=MOST_S) > 0.0


def test_nobody_waits_on_a_path_that_has_hardly_been_seen_nor_for_less_than_timers_can() -> None:
    new, now_s = path(0.25, count=20)
    assert patience_s([new], 0.6, 200.0, now_s, most_s=MOST_S) == 0.0
    short, now_s = path(0.01)
    assert patience_s([short], 0.6, 1e5, now_s, most_s=MOST_S) == 0.0


def test_nobody_waits_where_nobody_else_comes() -> None:
    quality, now_s = path(0.25)
    assert patience_s([quality], 0.6, 10.0, now_s, most_s=MOST_S) == 0.0


def test_nobody_waits_for_paths_nothing_is_known_of() -> None:
    quality, now_s = path(0.25)
    assert patience_s([], 0.6, 200.0, now_s, most_s=MOST_S) == 0.0
    assert patience_s([quality, PathQuality("routed")], 0.6, 200.0, now_s, most_s=MOST_S) == 0.0


@given(
    st.lists(st.floats(-0.01, 1.0), min_size=1, max_size=2),
    st.floats(0.001, 2.0),
    st.floats(0.0, 1e5),
)
def test_no_wait_makes_a_sample_late_or_is_noticed(
    levels: list[float], deadline_s: float, samples_per_s: float
) -> None:
    paths = [path(level_s, count=100) for level_s in levels]
    found_s = patience_s(
        [quality for quality, _ in paths], deadline_s, samples_per_s, paths[0][1], most_s=MOST_S
    )
    assert 0.0 <= found_s <= MOST_S
    for level_s in levels:
        assert found_s <= max(0.0, WAIT_SHARE * level_s) + 1e-9
        if level_s < deadline_s:
            assert level_s + found_s <= deadline_s + 1e-9
