"""What a subscriber in another LAN sees of quality of service: what it would see in its own."""

from __future__ import annotations

import time

import pytest

from tests.e2e.traffic import (
    Record,
    assert_contiguous,
    assert_same_samples,
    finish,
    indices,
    leave,
    of,
    publish,
    subscribe,
)
from tests.lab.fabric import Fabric
from tests.lab.process import wait_until

RELIABILITY = "reliability"


def test_a_late_joiner_gets_the_history_of_a_transient_local_topic(fabric: Fabric) -> None:
    options = ["--durability=transient_local"]
    publisher = publish(fabric, "a", "late/all", *options, "--count=20", "--stay-s=-1", readers=0)
    publisher.wait_for_line('"done"', 20.0)
    late = subscribe(fabric, "b", "late/all", *options, "--count=20")
    late.wait_for_success(20.0)
    assert_same_samples(publisher, late)
    # And one that joins a LAN the topic has already reached, after more has been written.
    later = subscribe(fabric, "b", "late/all", *options, "--count=20")
    later.wait_for_success(20.0)
    assert_same_samples(publisher, later)
    publisher.terminate()


def test_a_late_joiner_gets_as_much_history_as_the_writer_keeps(fabric: Fabric) -> None:
    options = ["--durability=transient_local", "--history=3", "--type=keyed"]
    publisher = publish(
        fabric, "a", "late/3", *options, "--count=20", "--keys=2", "--stay-s=-1", readers=0
    )
    publisher.wait_for_line('"done"', 20.0)
    late = subscribe(
        fabric, "b", "late/3", "--durability=transient_local", "--type=keyed", "--count=6"
    )
    late.wait_for_success(20.0)
    # The last three of each key; a take groups by key.
    assert sorted(indices(late)) == list(range(14, 20))
    publisher.terminate()


def test_history_and_what_follows_join_without_a_gap(fabric: Fabric) -> None:
    options = ["--durability=transient_local"]
    publisher = publish(
        fabric,
        *("a", "late/joined"),
        *options,
        *("--count=600", "--rate=200", "--stay-s=-1"),
        readers=0,
    )
    publisher.wait_for_line('"index": 100', 20.0)
    late = subscribe(fabric, "c", "late/joined", *options, "--count=600")
    finish(publisher, late)
    assert_same_samples(publisher, late)


@pytest.mark.parametrize(
    ("name", "offered", "requested"),
    [
        ("same", ["left"], ["left"]),
        ("wildcard reader", ["site.left"], ["site.*"]),
        ("wildcard writer", ["site.*"], ["site.right"]),
        ("one of several", ["x", "y"], ["y", "z"]),
    ],
)
def test_partitions_that_meet(
    fabric: Fabric, name: str, offered: list[str], requested: list[str]
) -> None:
    topic = "partitions/" + name.replace(" ", "_")
    subscriber = subscribe(
        fabric, "b", topic, *(f"--partition={one}" for one in requested), "--count=5"
    )
    publisher = publish(
        fabric, "a", topic, *(f"--partition={one}" for one in offered), "--count=5", "--stay-s=-1"
    )
    finish(publisher, subscriber)
    assert_same_samples(publisher, subscriber)


def test_partitions_that_do_not_meet(fabric: Fabric) -> None:
    apart = subscribe(fabric, "b", "partitions/apart", "--partition=right")
    default = subscribe(fabric, "b", "partitions/apart")
    meets = subscribe(fabric, "b", "partitions/apart", "--partition=left", "--count=5")
    publisher = publish(
        fabric, "a", "partitions/apart", "--partition=left", "--count=5", "--stay-s=1"
    )
    publisher.wait_for_success(40.0)
    meets.wait_for_success(10.0)
    for other in (apart, default):
        other.terminate()
        assert indices(other) == []


def test_best_effort(fabric: Fabric) -> None:
    subscriber = subscribe(fabric, "b", "best_effort", "--best-effort")
    reliable = subscribe(fabric, "b", "best_effort")
    publisher = publish(
        fabric, "a", "best_effort", "--best-effort", "--count=200", "--rate=200", "--stay-s=1"
    )
    publisher.wait_for_success(40.0)
    subscriber.terminate()
    reliable.terminate()
    got = indices(subscriber)
    assert len(got) > 150
    assert got == sorted(set(got))
    assert indices(reliable) == []


def test_a_best_effort_reader_of_a_reliable_writer(fabric: Fabric) -> None:
    subscriber = subscribe(fabric, "b", "mixed_reliability", "--best-effort")
    publisher = publish(
        fabric, "a", "mixed_reliability", "--count=600", "--rate=200", "--stay-s=-1"
    )
    publisher.wait_for_line('"done"', 40.0)
    wait_until(lambda: len(indices(subscriber)) > 450, 10.0, "most of it arrives")
    leave(publisher)
    subscriber.terminate()


def test_an_incompatible_pair_gets_nothing_and_is_told_why(fabric: Fabric) -> None:
    subscriber = subscribe(fabric, "b", "incompatible")
    publisher = publish(
        fabric,
        *("a", "incompatible", "--best-effort", "--count=100", "--rate=50", "--stay-s=-1"),
        readers=0,
    )
    publisher.wait_for_line('"done"', 20.0)
    if fabric.brokers:
        found = wait_until(lambda: incompatible(fabric), 10.0, "status shows the pair")
        assert found["publishers"] == {"a": 1}
        assert found["subscribers"] == {"b": 1}
        assert any(RELIABILITY in policy for p in found["problems"] for policy in p["policies"])
    subscriber.terminate()
    publisher.terminate()
    assert indices(subscriber) == []


def incompatible(fabric: Fabric) -> Record | None:
    for topic in fabric.status()["topics"]:
        if topic["topic"] == "incompatible" and topic["state"] == "incompatible":
            found: Record = topic
            return found
    return None


def test_the_stronger_owner_wins_across_lans(fabric: Fabric) -> None:
    subscriber = subscribe(fabric, "c", "owned", "--type=keyed", "--exclusive")
    weak = publish(
        fabric,
        *("a", "owned", "--type=keyed", "--strength=1", "--count=100000", "--rate=50"),
        *("--start=1000", "--stay-s=-1"),
    )
    subscriber.wait_for_line('"index": 10', 20.0)
    strong = publish(
        fabric,
        *("b", "owned", "--type=keyed", "--strength=5", "--count=50", "--rate=50"),
        *("--keep-instances", "--stay-s=-1"),
    )
    subscriber.wait_for_line('"index": 49,', 20.0)
    strong.terminate()
    # With its owner gone, the weak one is heard again.
    from_strong = len([index for index in indices(subscriber) if index < 1000])
    wait_until(lambda: indices(subscriber)[-1] >= 1000, 10.0, "the weak writer is heard again")
    weak.terminate()
    subscriber.terminate()
    assert from_strong >= 40
    got = indices(subscriber)
    while_owned = got[got.index(next(i for i in got if i < 1000)) : got.index(49)]
    assert [index for index in while_owned if index >= 1000] == []


def test_a_missed_deadline_is_told_to_the_subscriber(fabric: Fabric) -> None:
    subscriber = subscribe(fabric, "b", "deadline", "--deadline-ms=300")
    publisher = publish(
        fabric,
        *("a", "deadline", "--deadline-ms=100", "--count=30", "--rate=50", "--stay-s=-1"),
    )
    publisher.wait_for_line('"done"', 30.0)
    subscriber.wait_for_line('"deadline_missed"', 5.0)
    publisher.terminate()
    subscriber.terminate()
    assert len(indices(subscriber)) == 30


def test_an_expired_sample_is_not_delivered(fabric: Fabric) -> None:
    options = ["--durability=transient_local"]
    publisher = publish(
        fabric,
        *("a", "lifespan", "--lifespan-ms=200", "--count=5", "--stay-s=-1"),
        *options,
        readers=0,
    )
    publisher.wait_for_line('"done"', 20.0)
    written = of(publisher, "written")[-1]["timestamp"]
    wait_until(lambda: time.time_ns() > written + 700_000_000, 5.0, "the samples are too old")
    subscriber = subscribe(fabric, "b", "lifespan", *options, "--seconds=3")
    subscriber.wait_for_success(10.0)
    publisher.terminate()
    assert indices(subscriber) == []


def test_two_publishers_of_one_lan_are_both_heard(fabric: Fabric) -> None:
    subscriber = subscribe(fabric, "b", "two_publishers", "--type=keyed", "--count=200")
    publishers = [
        publish(
            fabric,
            *("a", "two_publishers", "--type=keyed", "--count=100", "--rate=100"),
            *(f"--start={start}", "--keep-instances", "--stay-s=-1"),
        )
        for start in (0, 1000)
    ]
    for publisher in publishers:
        finish(publisher, subscriber)
    got = indices(subscriber)
    assert [index for index in got if index < 1000] == list(range(100))
    assert [index for index in got if index >= 1000] == list(range(1000, 1100))


def test_two_subscribers_of_one_lan_each_get_everything(fabric: Fabric) -> None:
    subscribers = [subscribe(fabric, "b", "two_subscribers", "--count=50") for _ in range(2)]
    publisher = publish(fabric, "a", "two_subscribers", "--count=50", "--stay-s=-1")
    finish(publisher, *subscribers)
    for subscriber in subscribers:
        assert of(subscriber, "sample")[-1]["index"] == 49
        assert_contiguous(subscriber, 49, first_at_most=0)
