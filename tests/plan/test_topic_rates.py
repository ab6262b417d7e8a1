"""Smoothed rates: what the leader believes a topic carries."""

from __future__ import annotations

import pytest

from gateway.model import Assignment
from gateway.plan.strategies import TopicRates, expected_rates, fan_out
from tests.plan.fabric import fabric, router, topic


def test_a_listed_topic_is_known_at_once_and_smoothed_afterwards() -> None:
    rates = TopicRates(smoothing_s=10.0)
    t = topic("t", Assignment("r1", None, 1))
    rates.observe(fabric([router("r1", bytes_per_s=100.0, topics=(("t", 100.0),))], [t]), 0.0)
    assert rates.known == {"t": 100.0}
    rates.observe(fabric([router("r1", bytes_per_s=0.0, topics=(("t", 0.0),))], [t]), 5.0)
    assert 55 < rates.known["t"] < 65
    rates.observe(fabric([router("r1", bytes_per_s=0.0, topics=(("t", 0.0),))], [t]), 100.0)
    assert rates.known["t"] < 0.01


def test_a_silent_topic_is_known_after_a_while_and_shares_what_is_not_listed() -> None:
    rates = TopicRates(settle_s=15.0)
    routers = [router("r1", bytes_per_s=130.0, topics=(("t", 100.0),))]
    view = fabric(
        routers,
        [topic(n, Assignment("r1", None, 1)) for n in "tuvw"] + [topic("x")],
    )
    rates.observe(view, 0.0)
    rates.observe(view, 14.0)
    assert set(rates.known) == {"t"}
    rates.observe(view, 15.0)
    assert rates.known["u"] == pytest.approx(10.0)
    assert "x" not in rates.known


def test_a_topic_carried_by_two_routers_counts_both_parts() -> None:
    rates = TopicRates()
    parts = [router(name, bytes_per_s=40.0, topics=(("t", 40.0),)) for name in ("r1", "r2")]
    view = fabric(parts, [topic("t")])
    rates.observe(view, 0.0)
    assert rates.known == {"t": 80.0}


def test_topics_that_are_gone_are_forgotten() -> None:
    rates = TopicRates()
    routers = [router("r1", bytes_per_s=1.0, topics=(("t", 1.0),))]
    rates.observe(fabric(routers, [topic("t")]), 0.0)
    rates.observe(fabric(routers, []), 1.0)
    assert rates.known == {}


def test_the_guess_for_a_new_topic_follows_its_fan_out() -> None:
    wide = topic("wide", sub_lans="bcd")
    view = fabric([], [topic("known"), wide, topic("local", sub_lans="a")])
    assert fan_out(wide) == 3
    assert expected_rates(view, {"known": 50.0}) == {"known": 50.0, "wide": 150.0, "local": 50.0}
    assert expected_rates(view, {}) == {"known": 1.0, "wide": 3.0, "local": 1.0}
