"""What a receiving edge tells senders about their paths: it counts what came from each life of an
edge over each link.
"""

from __future__ import annotations

from typing import cast

import pytest

from edge_broker.arrivals import Arrivals
from edge_broker.links import Link
from gateway.tunnel import messages
from gateway.tunnel.frames import Peer

ME, EARLIER, NOW = Peer("b", 1), Peer("a", 1), Peer("a", 2)
LINK = cast(Link, object())


def totals(arrivals: Arrivals) -> list[int]:
    """Of the reports that are due."""
    told = [messages.decode_message(frame) for frame in arrivals.reports().get(LINK, [])]
    return [message.total for message in told if isinstance(message, messages.Arrivals)]


@pytest.fixture
def arrivals() -> Arrivals:
    return Arrivals(ME, bool)


def test_what_comes_before_its_stream_is_known_came(arrivals: Arrivals) -> None:
    arrivals.note(NOW, "r1", LINK, 10, 20, is_current=False)
    assert totals(arrivals) == [1]
    arrivals.note(NOW, "r1", LINK, 11, 21)
    arrivals.note(NOW, "r2", LINK, 11, 22)
    arrivals.note(NOW, "r1", LINK, 12, 22, is_current=False)
    assert totals(arrivals) == [3, 1]
    assert totals(arrivals) == []


def test_what_an_earlier_life_left_behind_is_no_news_of_the_later_one(arrivals: Arrivals) -> None:
    arrivals.note(EARLIER, "r1", LINK, 10, 20)
    arrivals.note(NOW, "r1", LINK, 11, 21)
    assert totals(arrivals) == [1]
    arrivals.note(EARLIER, "r1", LINK, 10, 22, is_current=False)
    arrivals.note(EARLIER, "r2", LINK, 10, 23, is_current=False)
    assert totals(arrivals) == []
    arrivals.note(NOW, "r1", LINK, 12, 24)
    assert totals(arrivals) == [2]


def test_strangers_are_forgotten(arrivals: Arrivals) -> None:
    """However many there are, what is known of them stays small; a life is as good as the first."""
    for number in range(20_000):
        arrivals.note(Peer(f"x{number}", number), "r1", LINK, 5, 10, is_current=False)
    assert len(totals(arrivals)) <= 5_000
    arrivals.note(NOW, "r1", LINK, 11, 21)
    arrivals.note(NOW, "r1", LINK, 12, 22)
    assert totals(arrivals) == [2]
