"""What is known of one path: honest about few delays, quick about changes, bounded in memory."""

from __future__ import annotations

from math import inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.plan.path_quality import PathQuality


def fed(
    delays: list[float], *, start_s: float = 0.0, interval_s: float = 0.01, name: str = "p"
) -> tuple[PathQuality, float]:
    quality, now_s = PathQuality(name), start_s
    for delay_s in delays:
        now_s += interval_s
        quality.observe(delay_s, now_s)
    return quality, now_s


def test_an_unknown_path_is_an_even_chance_and_one_that_is_down_is_none() -> None:
    quality = PathQuality("express")
    assert quality.miss_probability(0.1, 0.0) == 0.5
    assert quality.miss_bound(0.1, 0.0) == 1.0
    assert quality.quantile(0.5) is None
    quality.mark_down(1.0)
    assert quality.miss_probability(0.1, 1.0) == 1.0
    assert quality.rescue_probability(0.1, 1.0) == 0.0


def test_confidence_grows_with_the_number_of_delays() -> None:
    quality, now_s = fed([0.03] * 100)
    assert 1 / 250 < quality.miss_probability(0.1, now_s) < 1 / 150
    assert 3 / 100 < quality.miss_bound(0.1, now_s) < 5 / 100
    quality, now_s = fed([0.03] * 1000)
    assert quality.miss_probability(0.1, now_s) < 1 / 1500
    assert 3 / 1000 < quality.miss_bound(0.1, now_s) < 5 / 1000


def test_a_flood_of_delays_is_not_much_news() -> None:
    quality, now_s = fed([0.03] * 10_000, interval_s=1e-5)
    assert quality.miss_probability(0.1, now_s) > 0.01


def test_the_share_of_late_delays_is_learned() -> None:
    random = Random(1)
    quality, now_s = fed([0.03 + 0.2 * (random.random() < 0.01) for _ in range(20_000)])
    assert 0.005 < quality.miss_probability(0.1, now_s + 3) < 0.03
    assert quality.miss_probability(0.02, now_s) > 0.99
    assert quality.miss_probability(0.5, now_s) < 0.001


def test_delays_taken_with_a_wrong_clock_are_corrected() -> None:
    random = Random(2)
    delays = [0.03 + 0.2 * (random.random() < 0.05) for _ in range(3000)]
    right, now_s = fed(delays)
    wrong, _ = fed([delay_s - 0.5 for delay_s in delays])
    wrong.correct_clock(0.5)
    assert wrong.level_s == pytest.approx(right.level_s)
    for budget_s in (0.01, 0.04, 0.3):
        assert wrong.miss_probability(budget_s, now_s) == pytest.approx(
            right.miss_probability(budget_s, now_s)
        )


def test_what_is_too_far_is_no_rescue_however_little_is_known() -> None:
    quality, now_s = fed([0.28] * 10)
    assert quality.rescue_probability(0.1, now_s) == 0.0
    assert quality.rescue_probability(0.27, now_s) > 0.01


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    st.floats(0.001, 0.5),
    st.floats(0.0001, 0.05),
    st.sampled_from([0.5, 0.9, 0.99, 0.999]),
    st.integers(0, 1000),
)
def test_quantiles_are_those_of_the_delays(
    base_s: float, jitter_s: float, share: float, seed: int
) -> None:
    random = Random(seed)
    delays = [base_s + random.expovariate(1 / jitter_s) for _ in range(1000)]
    quality, now_s = fed(delays)
    found_s = quality.quantile(share)
    exact_s = sorted(delays)[int(share * 1000)]
    assert found_s is not None
    # The level wanders with the jitter; the excess is remembered within an eighth.
    assert abs(found_s - exact_s) < 0.0005 + jitter_s * 0.3 + 0.15 * (exact_s - base_s)
    assert quality.miss_probability(found_s + jitter_s, now_s) <= 1 - share + 0.1


def test_a_path_that_gets_slow_is_known_at_once_and_its_recovery_within_seconds() -> None:
    quality, now_s = fed([0.03] * 2000)
    assert quality.miss_probability(0.05, now_s) < 0.001
    quality.observe(0.08, now_s + 0.01)
    assert quality.miss_probability(0.05, now_s + 0.01) > 0.001
    for i in range(1000):
        quality.observe(0.08, now_s + 0.02 + 0.01 * i)
    now_s += 11
    assert quality.level_s == pytest.approx(0.08)
    assert quality.miss_probability(0.05, now_s) == 1.0
    # That it became slow by surprise is remembered for longer.
    assert 0.001 < quality.miss_probability(0.1, now_s) < 0.1
    for i in range(300):
        quality.observe(0.03, now_s + 0.01 * i)
    assert quality.level_s == pytest.approx(0.03)
    assert quality.miss_probability(0.05, now_s + 3) < 0.15


def test_losses_that_stopped_are_forgotten_within_seconds_and_rare_ones_are_not() -> None:
    random = Random(2)
    quality, now_s = fed([0.03 + 0.3 * (random.random() < 0.05) for _ in range(3000)])
    assert quality.miss_probability(0.1, now_s) > 0.02
    for i in range(800):
        quality.observe(0.03, now_s + 0.01 * i)
    assert quality.miss_probability(0.1, now_s + 8) < 0.001
    rare, now_s = fed([0.03 + 0.3 * (i % 500 == 0) for i in range(3000)])
    for i in range(499):
        rare.observe(0.03, now_s + 0.01 * i)
    assert rare.miss_probability(0.1, now_s + 5) > 0.001


def test_a_stall_does_not_make_a_slow_path_look_able_of_less_than_it_ever_took() -> None:
    stalls = ([0.25] * 50 + [0.75] * 250) * 10
    quality, now_s = fed(stalls)
    assert quality.rescue_probability(0.2, now_s) < 0.001


def test_a_path_that_comes_back_has_to_show_itself_and_its_failure_is_remembered() -> None:
    quality, now_s = fed([0.03] * 1000)
    quality.mark_down(now_s)
    quality.mark_down(now_s)
    quality.mark_up(now_s + 5)
    assert quality.version == 2
    now_s += 5
    assert quality.miss_probability(0.1, now_s) == 0.5
    for _ in range(20):
        now_s += 0.01
        quality.observe(0.03, now_s)
    assert 0.001 < quality.miss_probability(0.1, now_s) < 0.01


def test_lost_batches_are_late_for_every_budget() -> None:
    quality, now_s = fed([0.03] * 900)
    quality.observe_loss(100, now_s)
    assert quality.lost == 100
    assert quality.miss_probability(1e6, now_s) > 0.09
    assert quality.quantile(0.95) == inf
    lost = PathQuality("p")
    lost.observe_loss(2_000_000, 1.0)
    assert lost.miss_probability(1.0, 1.0) > 0.5
    assert lost.quantile(0.5) is None


def test_knowledge_fades_without_news() -> None:
    quality, now_s = fed([0.03] * 2000)
    assert quality.miss_probability(0.1, now_s + 20) < 0.001
    assert quality.miss_probability(0.1, now_s + 600) > 0.4


def test_batches_are_overdue_a_little_beyond_the_usual() -> None:
    quality = PathQuality("express")
    assert quality.overdue_s == 1.0
    quality.observe(0.03, 0.0)
    for i in range(500):
        quality.observe_confirmation(0.06 + 0.0001 * (i % 10), 0.01 * i)
    assert quality.is_confirming
    assert 0.07 < quality.overdue_s < 0.1
    for i in range(500):
        quality.observe_confirmation(0.5, 5 + 0.01 * i)
    assert 0.5 < quality.overdue_s < 1.5


def test_idle_paths_are_probed_seldom_and_surprising_ones_sooner() -> None:
    def probes(quality: PathQuality, start_s: float, delays: list[float], rate: float) -> int:
        count = 0
        for tick in range(1000):
            now_s = start_s + tick * 0.1
            if quality.is_probe_due(now_s, rate):
                quality.probed(now_s)
                quality.observe(delays[count % len(delays)], now_s + 0.05)
                count += 1
        return count

    assert 85 < probes(fed([0.03] * 100)[0], 1.0, [0.03], 100.0) <= 100
    assert probes(fed([0.03] * 100)[0], 1.0, [0.03], 1.0) <= 10
    assert 250 < probes(fed([0.03] * 100)[0], 1.0, [0.03, 0.2], 100.0) <= 500
    assert probes(fed([0.03] * 100)[0], 1.0, [0.03, 0.2], 20.0) <= 100
    down = PathQuality("p")
    down.mark_down(0.0)
    assert not down.is_probe_due(100.0, 100.0)
    busy, now_s = fed([0.03] * 100)
    assert not busy.is_probe_due(now_s + 0.5, 100.0)
    assert busy.is_probe_due(now_s + 0.5, 100.0, soon=True)


def test_the_summary_says_what_is_known() -> None:
    summary = PathQuality("express").summary(1.0)
    assert (summary.level_s, summary.p99_s, summary.age_s) == (None, None, None)
    quality, now_s = fed([0.03] * 99 + [0.2], name="express")
    summary = quality.summary(now_s + 1)
    assert summary.name == "express" and summary.is_up and summary.observations == 100
    assert summary.level_s == pytest.approx(0.03)
    assert summary.median_s == pytest.approx(0.03, abs=0.0005)
    assert summary.p999_s == pytest.approx(0.2, rel=0.12)
    assert summary.age_s == pytest.approx(1.0)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["observe", "confirm", "loss", "down", "up", "clock", "step", "wait"]),
            st.floats(-1.0, 100.0) | st.just(inf),
        ),
        max_size=60,
    ),
    st.floats(-1.0, 10.0) | st.just(inf),
)
def test_whatever_is_observed_the_answers_are_probabilities(
    events: list[tuple[str, float]], budget_s: float
) -> None:
    quality, now_s = PathQuality("p"), 0.0
    for kind, value in events:
        if kind == "observe":
            quality.observe(value, now_s)
        elif kind == "confirm":
            quality.observe_confirmation(value, now_s)
        elif kind == "loss":
            quality.observe_loss(3, now_s)
        elif kind == "down":
            quality.mark_down(now_s)
        elif kind == "up":
            quality.mark_up(now_s)
        elif kind == "clock":
            quality.correct_clock(min(1.0, value))
        elif kind == "step":
            quality.note_clock_step()
        else:
            now_s += min(100.0, abs(value))
        for answer in (
            quality.miss_probability(budget_s, now_s),
            quality.rescue_probability(budget_s, now_s),
            quality.miss_bound(budget_s, now_s),
        ):
            assert 0.0 <= answer <= 1.0
        if now_s < inf and quality.observations:
            assert quality.miss_probability(0.01, now_s) >= quality.miss_probability(5.0, now_s)
        assert quality.overdue_s > 0
        quality.summary(now_s)
