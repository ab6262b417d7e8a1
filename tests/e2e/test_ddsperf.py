"""ddsperf, which nobody here wrote, publishes in one LAN and subscribes in others."""

from __future__ import annotations

import pytest

from tests.e2e.traffic import ddsperf_totals
from tests.lab.fabric import Fabric


def test_two_other_lans_get_everything_once_and_in_order(fabric: Fabric) -> None:
    subscribers = [fabric.lab.lan(lan).spawn(["ddsperf", "-D7", "sub"]) for lan in ("b", "c")]
    publisher = fabric.lab.lan("a").spawn(["ddsperf", "-D5", "pub", "5kHz", "size", "64"])
    publisher.wait_for_success(15.0)
    for subscriber in subscribers:
        # Its exit code is 1 when a reliable sample is missing, repeated or out of order.
        subscriber.wait_for_success(15.0)
        total, lost = ddsperf_totals(subscriber)
        assert lost == 0
        assert total > 15_000


@pytest.mark.parametrize("size", ["64", "16k"])
def test_a_publisher_at_full_speed_is_slowed_and_loses_nothing(fabric: Fabric, size: str) -> None:
    subscriber = fabric.lab.lan("b").spawn(["ddsperf", "-D5", "sub"])
    publisher = fabric.lab.lan("a").spawn(["ddsperf", "-D3", "pub", "size", size])
    publisher.wait_for_success(15.0)
    subscriber.wait_for_success(15.0)
    total, lost = ddsperf_totals(subscriber)
    assert lost == 0
    assert total > 1000


def test_best_effort_arrives(fabric: Fabric) -> None:
    subscriber = fabric.lab.lan("b").spawn(["ddsperf", "-u", "-D5", "sub"])
    publisher = fabric.lab.lan("a").spawn(["ddsperf", "-u", "-D3", "pub", "1kHz", "size", "100"])
    publisher.wait_for_success(15.0)
    subscriber.wait_for_success(15.0)
    total, _ = ddsperf_totals(subscriber)
    assert total > 1000
