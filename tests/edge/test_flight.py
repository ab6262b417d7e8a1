"""How writers at work share what may be under way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge_broker.flight import Flight


def shares(flight: Flight, writers: int, from_s: float, until_s: float) -> list[int | None]:
    """Each writes once a millisecond; what each was granted last."""
    granted: list[int | None] = []
    for step in range(int((until_s - from_s) * 1000)):
        granted = [flight.share(each, from_s + step / 1000) for each in range(writers)]
    return granted


def test_a_lone_writer_is_not_held() -> None:
    assert shares(Flight(), 1, 0.0, 1.0) == [None]


def test_many_share_what_one_socket_holds() -> None:
    granted = shares(Flight(), 32, 0.0, 1.0)
    assert len(set(granted)) == 1
    assert granted[0] is not None
    assert 500_000 < 32 * granted[0] <= 1_000_000


def test_from_the_second_on_they_share_at_once() -> None:
    flight = Flight()
    assert flight.share("one", 0.0) is None
    first = flight.share("two", 0.001)
    assert first is not None
    assert flight.share("one", 0.002) == first


def test_those_that_stopped_leave_their_share() -> None:
    flight = Flight()
    shares(flight, 32, 0.0, 1.0)
    assert shares(flight, 1, 1.0, 1.2) == [None]


def test_after_a_pause_nobody_is_remembered() -> None:
    flight = Flight()
    shares(flight, 32, 0.0, 1.0)
    assert flight.share("one", 10.0) is None


@given(st.integers(1, 2000))
def test_bounds(writers: int) -> None:
    flight = Flight()
    granted = [flight.share(each, 0.0) for each in range(writers)][-1]
    assert granted is None or granted >= 16_000
    assert 0.001 <= flight.patience_s <= 0.008
    assert flight.is_crowded == (writers > 4)
