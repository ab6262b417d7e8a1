"""When a path that was left is tried again."""

from __future__ import annotations

from gateway.plan.path_quality import PathQuality
from gateway.plan.path_return import CALM_S, RETURN_MOST_S, PathReturn


def waited_s(back: PathReturn, quality: PathQuality, now_s: float) -> float:
    """Until it is tried, when all that is seen of it is fine from now on."""
    begun_s = now_s
    while not back.is_trying:
        back.consider(quality, 0.1, now_s, 0.001, is_fine=True)
        now_s += 1.0
    back.rest()
    return now_s - 1.0 - begun_s


def known_good() -> PathQuality:
    quality = PathQuality("routed")
    for number in range(2000):
        quality.observe(0.03, number / 100.0)
    return quality


def test_each_time_it_had_to_be_left_it_is_waited_for_twice_as_long() -> None:
    back, quality = PathReturn(), known_good()
    waits = []
    for _ in range(4):
        back.leave(100.0)
        waits.append(waited_s(back, quality, 100.0))
    assert waits == [1.0, 2.0, 4.0, 8.0]


def test_that_has_an_end_however_often_it_had_to_be_left() -> None:
    """A path that loses packets is left every few seconds, for weeks."""
    back, quality = PathReturn(), known_good()
    for number in range(20_000):
        back.leave(100.0 + number * CALM_S / 2.0)
    assert waited_s(back, quality, 4e6) == RETURN_MOST_S


def test_after_a_calm_time_it_is_forgotten() -> None:
    back, quality = PathReturn(), known_good()
    for _ in range(8):
        back.leave(100.0)
    back.leave(101.0 + CALM_S)
    assert waited_s(back, quality, 101.0 + CALM_S) == 1.0
