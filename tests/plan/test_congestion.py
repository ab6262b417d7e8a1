"""Which congestion control suits: thin, steady flows that lose nothing go without pauses, all
others as the machine wants it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.plan.congestion import (
    CLEAN_AGAIN_S,
    CLEAN_FIRST_S,
    GENTLE,
    CongestionChoice,
    Sent,
)

_FULL_BYTES = 1448
_SECONDS = st.lists(st.tuples(st.integers(0, 5000), st.integers(1, _FULL_BYTES), st.integers(0, 2)))


@dataclass
class Connection:
    """Looked at once a second."""

    usual: str = "bbr"
    now_s: float = 100.0
    sent: Sent = field(init=False)
    choice: CongestionChoice = field(init=False)

    def __post_init__(self) -> None:
        self.sent = Sent(0, 0, 0, _FULL_BYTES, 0.06)
        self.choice = CongestionChoice(self.usual, self.now_s)

    def second(self, packets: int = 200, each_bytes: int = 120, repeats: int = 0) -> str:
        self.now_s += 1.0
        self.sent = Sent(
            self.sent.packets + packets,
            self.sent.repeats + repeats,
            self.sent.size_bytes + packets * each_bytes,
            _FULL_BYTES,
            self.sent.rtt_s,
        )
        return self.choice.choose(self.sent, self.now_s)

    def seconds(self, count: float, packets: int = 200, each_bytes: int = 120) -> list[str]:
        return [self.second(packets, each_bytes) for _ in range(round(count))]


def test_a_thin_flow_that_loses_nothing_does_without_pauses_before_the_first() -> None:
    seconds = Connection().seconds(12)
    assert seconds[: int(CLEAN_FIRST_S) - 1] == ["bbr"] * (int(CLEAN_FIRST_S) - 1)
    assert set(seconds[int(CLEAN_FIRST_S) :]) == {GENTLE}


def test_its_first_loss_ends_that_for_a_minute() -> None:
    connection = Connection()
    assert connection.seconds(10)[-1] == GENTLE
    assert connection.second(repeats=1) == "bbr"
    assert set(connection.seconds(CLEAN_AGAIN_S - 1)) == {"bbr"}
    assert connection.second() == GENTLE


def test_what_was_lost_before_it_was_looked_at_counts() -> None:
    connection = Connection()
    assert connection.second(repeats=3) == "bbr"
    assert set(connection.seconds(CLEAN_AGAIN_S - 1)) == {"bbr"}


@pytest.mark.parametrize(
    ("packets", "each_bytes"),
    [
        pytest.param(2000, 120, id="more on its way than a path may hold"),
        pytest.param(200, _FULL_BYTES, id="what is large and comes at once"),
    ],
)
def test_a_flow_that_may_fill_the_path_is_left_as_it_is(packets: int, each_bytes: int) -> None:
    connection = Connection()
    assert set(connection.seconds(30, packets, each_bytes)) == {"bbr"}
    assert set(connection.seconds(CLEAN_AGAIN_S - 1)) == {"bbr"}
    assert connection.second() == GENTLE
    assert connection.second(packets, each_bytes) == "bbr"


def test_what_is_large_and_rare_is_left_as_it_is() -> None:
    """Heartbeats in between are no thin flow."""
    connection = Connection()
    for _ in range(20):
        assert connection.second(700, _FULL_BYTES) == "bbr"
        assert set(connection.seconds(90, packets=2, each_bytes=30)) == {"bbr"}


def test_a_flow_that_pauses_would_not_delay_is_left_as_it_is() -> None:
    assert set(Connection().seconds(30, packets=50)) == {"bbr"}
    connection = Connection()
    assert connection.seconds(10)[-1] == GENTLE
    assert connection.second(packets=50) == GENTLE
    assert connection.second(packets=30) == "bbr"


def test_a_greeting_is_no_flood() -> None:
    connection = Connection()
    greeted = Sent(3, 0, 300, _FULL_BYTES, 0.06)
    assert connection.choice.choose(greeted, connection.now_s + 0.001) == "bbr"
    assert connection.seconds(CLEAN_FIRST_S)[-1] == GENTLE


@given(st.sampled_from(["cubic", "reno", "dctcp", ""]), _SECONDS)
def test_what_does_not_pause_is_never_touched(
    usual: str, seconds: list[tuple[int, int, int]]
) -> None:
    connection = Connection(usual)
    assert all(connection.second(*each) == usual for each in seconds)


@given(_SECONDS)
def test_with_a_loss_in_the_last_second_it_is_never_gentle(
    seconds: list[tuple[int, int, int]],
) -> None:
    connection = Connection()
    for packets, each_bytes, repeats in seconds:
        used = connection.second(packets, each_bytes, repeats)
        assert not (repeats and used == GENTLE)
