"""Deadlines and attempts on a machine whose processors are taken away for a while."""

from __future__ import annotations

import time

import pytest

from tests.lab import machine
from tests.lab.machine import Deadline, is_about_precise_times, stolen_s


@pytest.fixture
def stolen(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the kernel says; change it."""
    found = [100.0]
    monkeypatch.setattr(machine, "stolen_s", lambda: found[0])
    return found


def test_the_kernel_counts_what_is_stolen() -> None:
    assert 0 <= stolen_s() <= stolen_s()


def test_stolen_time_does_not_count(stolen: list[float]) -> None:
    deadline = Deadline(0.0)
    while not deadline.has_passed:
        time.sleep(0.001)
    stolen[0] += 3600
    assert not deadline.has_passed
    assert Deadline(-1.0).has_passed


def test_what_is_not_disturbed_has_one_attempt(stolen: list[float]) -> None:
    attempts = []

    @is_about_precise_times
    def fails() -> None:
        attempts.append(1)
        raise AssertionError

    with pytest.raises(AssertionError):
        fails()
    assert len(attempts) == 1


@pytest.mark.parametrize("good", [2, 5, 6])
def test_what_is_disturbed_is_done_again_so_often(stolen: list[float], good: int) -> None:
    attempts = []

    @is_about_precise_times
    def disturbed(expected: int) -> None:
        attempts.append(1)
        stolen[0] += 10
        assert len(attempts) == expected

    if good <= 5:
        disturbed(expected=good)
        assert len(attempts) == good
    else:
        with pytest.raises(AssertionError):
            disturbed(expected=good)
        assert len(attempts) == 5
