"""Who is hurried rests as long as that brings topics together; a trickle never does. Floods."""

from __future__ import annotations

from edge_broker.pace import REST_S, Flood, Pace


def rests(pace: Pace, rate: float, *, seconds: float, start_s: float = 0.0) -> list[bool]:
    """Single samples of many topics at this rate, each a turn, or together after a rest."""
    answers: list[bool] = []
    now_s = start_s
    waiting = 1.0
    while now_s < start_s + seconds:
        answers.append(pace.should_rest(now_s, int(waiting)))
        passed_s = REST_S if answers[-1] else 1 / rate
        now_s += passed_s
        waiting = max(1.0, passed_s * rate)
    return answers


def test_a_trickle_never_rests() -> None:
    assert not any(rests(Pace(), 2000, seconds=5))


def test_many_trickles_do_and_stop_when_it_is_not_worth_it() -> None:
    pace = Pace()
    hurried = rests(pace, 5000, seconds=2)
    assert all(hurried[-1000:])
    calm = rests(pace, 1000, seconds=2, start_s=2.0)
    assert not any(calm[1:])
    assert all(rests(pace, 20_000, seconds=2, start_s=4.0)[-1000:])


def test_a_burst_alone_does_not_rest() -> None:
    """Ten topics written one after the other twenty times a second."""
    pace = Pace()
    for burst in range(100):
        assert not any(pace.should_rest(burst * 0.05 + at * 0.0001, 1) for at in range(10))


def test_what_comes_beside_a_flood_does_not_rest() -> None:
    pace = Pace()
    assert all(rests(pace, 5000, seconds=2)[-1000:])
    for at in range(1000):
        if at % 20 == 0:
            pace.forget()
        assert not pace.should_rest(2.0 + at * 0.0001, 1)


def test_much_at_once_is_a_flood_and_what_dwindles_is_none() -> None:
    flood = Flood()
    assert flood.has(1.0, 64, 64)
    assert flood.has(2.0, 8, 512 * 1024)
    assert not flood.has(3.0, 63, 63 * 1024)


def test_little_at_once_is_a_flood_when_it_lasts() -> None:
    """Stages that wait for one another's processor find little each time, and never more."""
    flood = Flood()
    answers = [flood.has(1.0 + turn * 0.0015, 30, 30 * 1024) for turn in range(40)]
    assert not any(answers[:16])
    assert all(answers[17:])
    # What is let come together and is little all the same is not worth the wait.
    assert not flood.has(1.1, 30, 30 * 1024)


def test_bursts_are_no_flood() -> None:
    """Thirty samples every ten milliseconds, or eight every one."""
    flood = Flood()
    assert not any(flood.has(1.0 + turn * 0.01, 30, 3000) for turn in range(100))
    assert not any(flood.has(3.0 + turn * 0.001, 8, 800) for turn in range(1000))
