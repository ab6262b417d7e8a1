"""When a mirror asks for samples: once its readers know of it."""

from __future__ import annotations

import pytest

from edge_broker.dds import native
from edge_broker.dds.domain import Port
from edge_broker.mirror import Mirror
from gateway.model import Profile, Qos
from gateway.observe.metrics import BrokerMetrics
from gateway.plan.demand import MirrorKey, WantedMirror


class Waiting:
    """A new mirror for two readers, of which DDS has matched as many as is said."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.matched = 0
        monkeypatch.setattr(native, "matched_readers", lambda _: self.matched)
        profile = Profile("T", None, False, Qos())
        key = MirrorKey("e-a", 1, "topic", profile.id)
        self.mirror = Mirror(key, WantedMirror(profile, 2, None), BrokerMetrics("edge", "0"))
        self.mirror.set_writer(Port(0, 0, 0, ("t", "", None, "")), 100.0)

    def asks_at(self, *times_s: float) -> float | None:
        """The first of these times it asks at."""
        return next((each for each in times_s if self.mirror.should_ask(each)), None)


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    return Waiting(monkeypatch)


def test_readers_that_are_matched_have_time_to_match_as_well(waiting: Waiting) -> None:
    waiting.matched = 2
    assert waiting.asks_at(100.0, 100.05, 100.09, 100.11) == 100.11


def test_the_time_begins_with_the_last_of_them(waiting: Waiting) -> None:
    waiting.matched = 1
    assert waiting.asks_at(100.0, 100.3, 100.5) is None
    assert waiting.mirror.is_settling
    waiting.matched = 2
    assert waiting.asks_at(100.55, 100.61) == 100.61
    assert not waiting.mirror.is_settling


def test_readers_that_are_never_matched_are_not_waited_for(waiting: Waiting) -> None:
    assert waiting.asks_at(100.0, 100.5, 100.99, 101.0) == 101.0
