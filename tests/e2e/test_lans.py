"""Many topics, many LANs, and topics that need no gateway at all."""

from __future__ import annotations

import pytest

from tests.e2e.traffic import (
    assert_contiguous,
    assert_same_samples,
    finish,
    indices,
    leave,
    of,
    publish,
    subscribe,
)
from tests.lab.fabric import Fabric, edge_of
from tests.lab.process import wait_until
from tests.lab.wan import WAN_INTERFACE

LANS = ("a", "b", "c")


def test_every_lan_hears_every_other_once(fabric: Fabric) -> None:
    """One topic, a publisher and a subscriber in each of three LANs, all at once."""
    options = ["--type=keyed", "--keep-instances"]
    subscribers = {lan: subscribe(fabric, lan, "all_to_all", *options) for lan in LANS}
    publishers = {
        lan: publish(
            fabric,
            *(lan, "all_to_all", *options, f"--start={1000 * number}"),
            *("--count=600", "--rate=200", "--stay-s=-1"),
        )
        for number, lan in enumerate(LANS, 1)
    }
    for publisher in publishers.values():
        publisher.wait_for_line('"done"', 40.0)
    for number in range(1, len(LANS) + 1):
        for subscriber in subscribers.values():
            last = 1000 * number + 599
            subscriber.wait_for_line(f'"index": {last},', 10.0)
    for publisher in publishers.values():
        leave(publisher)
    for subscriber in subscribers.values():
        subscriber.terminate()
        for number in range(1, len(LANS) + 1):
            got = [index for index in indices(subscriber) if index // 1000 == number]
            # Remote mirrors take a moment; what has begun is complete, once and in order.
            assert got[0] < 1000 * number + 400, f"{subscriber.name} heard LAN {number} late"
            assert got == list(range(got[0], 1000 * number + 600))


def test_two_hundred_topics_at_once(fabric: Fabric) -> None:
    options = ["--topics=200", "--count=5"]
    subscriber = subscribe(fabric, "b", "many/", "--topics=200", "--count=1000")
    publisher = publish(fabric, "a", "many/", *options, "--wait-s=60", "--stay-s=-1")
    finish(publisher, subscriber, deadline_s=90.0)
    for number in range(200):
        assert_same_samples(publisher, subscriber, f"many/{number}")


def test_a_topic_of_one_lan_sends_nothing(fabric: Fabric) -> None:
    lan = fabric.lab.lan("a")
    subscriber = subscribe(fabric, "a", "local_only", "--count=2000")
    publisher = publish(
        fabric, "a", "local_only", "--count=2000", "--size=1000", "--rate=1000", "--quiet"
    )
    publisher.wait_for_line('"matched"', 20.0)
    before = lan.interface_bytes(WAN_INTERFACE)[1]
    publisher.wait_for_success(20.0)
    subscriber.wait_for_success(10.0)
    sent = lan.interface_bytes(WAN_INTERFACE)[1] - before
    # Two seconds of coordination and heartbeats; the samples are two million bytes.
    assert sent < 100_000, f"{sent} bytes left the LAN"


def test_only_lans_with_subscribers_receive(fabric: Fabric) -> None:
    uninvolved = fabric.lab.lan("c")
    subscriber = subscribe(fabric, "b", "not_for_c", "--count=2000")
    publisher = publish(
        fabric, "a", "not_for_c", "--count=2000", "--size=1000", "--rate=1000", "--quiet"
    )
    publisher.wait_for_line('"matched"', 20.0)
    before = uninvolved.interface_bytes(WAN_INTERFACE)[0]
    publisher.wait_for_success(20.0)
    subscriber.wait_for_success(10.0)
    received = uninvolved.interface_bytes(WAN_INTERFACE)[0] - before
    assert received < 100_000, f"{received} bytes entered LAN c"


def test_the_mirror_leaves_with_its_publisher(fabric: Fabric) -> None:
    subscriber = subscribe(fabric, "b", "leaving")
    publisher = publish(fabric, "a", "leaving", "--count=1", "--stay-s=-1")
    subscriber.wait_for_line('"writers", "topic": "leaving", "count": 1', 20.0)
    publisher.wait_for_line('"done"', 20.0)
    publisher.terminate()
    subscriber.wait_for_line('"writers", "topic": "leaving", "count": 0', 5.0)
    subscriber.terminate()
    if fabric.brokers:
        fabric.wait_for_tree(
            lambda tree: not any("leaving" in path for path in tree), 10.0, "its topic is forgotten"
        )


def test_the_mirror_leaves_after_its_publisher_has_crashed(fabric: Fabric) -> None:
    """DDS notices a crash by the participant's lease; ddswan within a second more."""
    lease_s = 3
    lease = f"<Discovery><LeaseDuration>{lease_s}s</LeaseDuration></Discovery>"
    subscriber = subscribe(fabric, "b", "crashing")
    publisher = publish(fabric, "a", "crashing", "--count=1", "--stay-s=-1", dds=lease)
    subscriber.wait_for_line('"writers", "topic": "crashing", "count": 1', 20.0)
    publisher.wait_for_line('"done"', 20.0)
    publisher.kill()
    subscriber.wait_for_line('"writers", "topic": "crashing", "count": 0', lease_s + 4.0)
    subscriber.terminate()


def test_a_publisher_that_comes_back_is_heard_again(fabric: Fabric) -> None:
    subscriber = subscribe(fabric, "b", "coming_back")
    for start in (0, 100):
        publisher = publish(
            fabric, "a", "coming_back", "--count=20", f"--start={start}", "--stay-s=-1"
        )
        subscriber.wait_for_line(f'"index": {start + 19},', 40.0)
        leave(publisher)
    subscriber.terminate()
    assert indices(subscriber) == [*range(20), *range(100, 120)]


def test_a_subscriber_that_comes_and_goes_leaves_the_others_alone(fabric: Fabric) -> None:
    steady = subscribe(fabric, "b", "coming_and_going")
    publisher = publish(fabric, "a", "coming_and_going", "--count=1000000", "--rate=200")
    publisher.wait_for_line('"index": 50,', 20.0)
    for lan in ("c", "b"):
        passing = subscribe(fabric, lan, "coming_and_going")
        wait_until(lambda p=passing: len(indices(p)) > 20, 10.0, f"{lan} hears it")  # type: ignore[misc]
        passing.terminate()
    leave(publisher)
    last = of(publisher, "written")[-1]["index"]
    steady.wait_for_line(f'"index": {last},', 40.0)
    steady.terminate()
    assert_contiguous(steady, last, first_at_most=0)


@pytest.mark.parametrize("lan", ["b"])
def test_a_pair_inside_one_lan_is_not_heard_twice(fabric: Fabric, lan: str) -> None:
    """A subscriber elsewhere brings the topic into the gateway; at home nothing changes."""
    away = subscribe(fabric, "c", "at_home")
    home = subscribe(fabric, lan, "at_home")
    publisher = publish(fabric, lan, "at_home", "--count=300", "--rate=200", "--stay-s=1")
    publisher.wait_for_success(30.0)
    away.wait_for_line('"index": 299,', 10.0)
    for process in (away, home):
        process.terminate()
    assert indices(home) == list(range(300))
    assert [record["count"] for record in of(home, "writers")][:1] == [1]


def test_no_broker_sees_another_as_an_application(brokered: Fabric) -> None:
    """Mirrors and ingress readers never appear in the tree as endpoints of their LAN."""
    fabric = brokered
    subscriber = subscribe(fabric, "b", "echo")
    publisher = publish(fabric, "a", "echo", "--count=1", "--stay-s=-1")
    subscriber.wait_for_line('"index": 0,', 20.0)
    names = [path for path in fabric.tree() if path.startswith("topics/echo/")]
    publisher.terminate()
    subscriber.terminate()
    pubs = [name for name in names if "/pub/" in name]
    subs = [name for name in names if "/sub/" in name]
    assert len(pubs) == 1
    assert pubs[0].startswith(f"topics/echo/pub/{edge_of('a')}~")
    assert len(subs) == 1
    assert subs[0].startswith(f"topics/echo/sub/{edge_of('b')}~")
