"""Publishers that leave, change or outlive their samples: everything they did reaches the other
LANs, in order, and nothing stays behind.
"""

from __future__ import annotations

import pytest

from tests.e2e.traffic import (
    Record,
    assert_same_order,
    assert_same_samples,
    finish,
    indices,
    leave,
    of,
    publish,
    subscribe,
)
from tests.lab.fabric import Fabric, edge_of
from tests.lab.process import Process, wait_until

IMPATIENT = {"DDSWAN_STREAM_LAGGARD_TIMEOUT_S": "2"}


def states(process: Process) -> list[Record]:
    """Each change of an instance's state, also those that came with a sample."""
    return [r for r in process.records() if r.get("state") in ("disposed", "no_writers")]


def disposed_keys(process: Process) -> set[int]:
    return {record["key"] for record in states(process) if record["state"] == "disposed"}


def test_what_a_publisher_did_before_it_left_arrives(fabric: Fabric) -> None:
    """Its writer disposes its instances as it is deleted: the last thing it does."""
    for attempt in range(8):
        topic = f"leaving/{attempt}"
        subscriber = subscribe(fabric, "b", topic, "--type=keyed")
        publisher = publish(fabric, "a", topic, "--type=keyed", "--keys=5", "--count=40")
        publisher.wait_for_success(40.0)
        subscriber.wait_for_line(f'"writers", "topic": "{topic}", "count": 0', 10.0)
        wait_until(lambda s=subscriber: len(indices(s)) == 40, 5.0, "every sample")  # type: ignore[misc]
        subscriber.terminate()
        assert sorted(indices(subscriber)) == list(range(40))
        assert disposed_keys(subscriber) == set(range(5)), attempt


def test_a_publisher_that_is_there_for_a_moment_only(fabric: Fabric) -> None:
    """One after the other, each writes as soon as it sees a reader, and leaves at once."""
    subscriber = subscribe(fabric, "b", "moments")
    for start in range(0, 100, 10):
        publisher = publish(fabric, "a", "moments", "--count=10", f"--start={start}")
        publisher.wait_for_success(40.0)
    wait_until(lambda: len(indices(subscriber)) >= 100, 5.0, "every sample")
    subscriber.terminate()
    assert_same_order(list(range(100)), indices(subscriber))


def test_a_writer_changes_its_user_data(fabric: Fabric) -> None:
    operations = [f"p{n}" if n % 40 == 20 else "w0" for n in range(400)]
    subscribers = [subscribe(fabric, lan, "changing", "--type=keyed") for lan in ("b", "c")]
    publisher = publish(
        fabric,
        *("a", "changing", "--type=keyed", "--rate=200", "--stay-s=-1", "--keep-instances"),
        f"--script={' '.join(operations)}",
    )
    publisher.wait_for_line('"done"', 40.0)
    written = [r["index"] for r in of(publisher, "written") if r["operation"] == "w0"]
    for subscriber in subscribers:
        subscriber.wait_for_line(f'"index": {written[-1]},', 5.0)
        subscriber.terminate()
        got = indices(subscriber)
        assert_same_order(written[written.index(got[0]) :], got)
        assert got[0] <= 60  # the publisher waits for one LAN only
        # One writer all the time, as in one LAN.
        assert {r["count"] for r in of(subscriber, "writers")} <= {0, 1}
    leave(publisher)


def test_a_writer_changes_its_strength(fabric: Fabric) -> None:
    """Down and up again around another LAN's constant strength."""
    subscriber = subscribe(fabric, "c", "strength", "--type=keyed", "--exclusive")
    steady = publish(
        fabric,
        *("a", "strength", "--type=keyed", "--strength=5", "--rate=100", "--count=3000"),
        *("--start=100000", "--stay-s=-1"),
    )
    subscriber.wait_for_line('"index": 100010', 20.0)
    operations = ["w0"] * 100 + ["s1"] + ["w0"] * 200 + ["s9"] + ["w0"] * 100
    changing = publish(
        fabric,
        *("b", "strength", "--type=keyed", "--strength=9", "--rate=100", "--stay-s=-1"),
        f"--script={' '.join(operations)}",
    )
    changing.wait_for_line('"done"', 40.0)
    subscriber.wait_for_line(f'"index": {len(operations) - 1},', 5.0)
    for process in (steady, changing, subscriber):
        process.terminate()
    got = indices(subscriber)
    own = [index for index in got if index < 100000]
    strong = [index for index in own if index < 100]
    weak = [index for index in own if 150 < index < 300]
    again = [index for index in own if index > 350]
    assert len(strong) > 90
    assert weak == []
    assert again == list(range(351, len(operations)))


def test_a_lan_cut_off_for_longer_than_its_session_misses_nothing(own_fabric: Fabric) -> None:
    """Nor does it get anything twice; whichever of the two LANs it is."""
    fabric = own_fabric
    subscriber = subscribe(fabric, "b", "cut_off")
    publisher = publish(fabric, "a", "cut_off", "--rate=100", "--count=100000", "--stay-s=-1")
    subscriber.wait_for_line('"index": 50,', 30.0)
    for lan in ("b", "a"):
        fabric.lab.cut(lan)
        gone = f"edges/{edge_of(lan)}"
        fabric.wait_for_tree(lambda tree, node=gone: node not in tree, 20.0, "the session is over")  # type: ignore[misc]
        fabric.lab.heal(lan)
        written = of(publisher, "written")[-1]["index"]
        subscriber.wait_for_line(f'"index": {written + 100},', 30.0)
    leave(publisher)
    sent = [record["index"] for record in of(publisher, "written")]
    wait_until(lambda: indices(subscriber)[-1] == sent[-1], 20.0, "all has come")
    subscriber.terminate()
    assert_same_samples(publisher, subscriber)


@pytest.mark.parametrize("own_fabric", [IMPATIENT], indirect=True, ids=["impatient"])
def test_a_lan_the_others_had_given_up_is_served_again(own_fabric: Fabric) -> None:
    """Cut off for longer than anybody waits for it."""
    fabric = own_fabric
    subscriber = subscribe(fabric, "b", "given_up")
    publisher = publish(fabric, "a", "given_up", "--rate=100", "--count=100000", "--stay-s=-1")
    subscriber.wait_for_line('"index": 50,', 30.0)
    fabric.lab.cut("b")
    fabric.edge("a").wait_for_line("subscriber is gone.*topic=given_up", 20.0)
    before = len(subscriber.records())
    fabric.lab.heal("b")
    subscriber.wait_for_records(before + 100, 20.0)
    publisher.terminate()
    subscriber.terminate()
    got = indices(subscriber)
    assert got == sorted(set(got))


def test_expired_samples_are_not_delivered_late(own_fabric: Fabric) -> None:
    """What waited behind a broken link for longer than it lives is dropped, the rest arrives."""
    fabric = own_fabric
    subscriber = subscribe(fabric, "b", "expiring")
    publisher = publish(
        fabric, "a", "expiring", "--lifespan-ms=600", "--rate=100", "--count=600", "--stay-s=-1"
    )
    subscriber.wait_for_line('"index": 100,', 30.0)
    fabric.lab.cut("b")
    publisher.wait_for_line('"index": 300,', 20.0)  # sooner than anybody gives the LAN up
    fabric.lab.heal("b")
    subscriber.wait_for_line('"index": 599,', 30.0)
    publisher.terminate()
    subscriber.terminate()
    got = indices(subscriber)
    assert got == sorted(set(got))
    assert set(range(500, 600)) <= set(got)
    late = [
        record["index"]
        for record in of(subscriber, "sample")
        if record["received"] - record["timestamp"] > 700_000_000
    ]
    assert late == []
    assert len(got) < 550


def test_a_sample_too_large_to_travel_stops_nothing(fabric: Fabric) -> None:
    subscriber = subscribe(fabric, "b", "too_large", "--count=10")
    big = publish(fabric, "a", "too_large", "--size=68000000", "--count=1", "--stay-s=-1")
    fabric.edge("a").wait_for_line("too large to travel", 60.0)
    leave(big)
    small = publish(fabric, "a", "too_large", "--count=10", "--start=10", "--stay-s=-1")
    finish(small, subscriber)
    assert indices(subscriber) == list(range(10, 20))
    told = [line for line in fabric.edge("a").lines() if "too large to travel" in line]
    assert len(told) == 1


def test_a_reader_of_ours_never_holds_a_publisher_that_has_nobody(fabric: Fabric) -> None:
    """With the last subscriber gone the edge's reader goes too."""
    subscriber = subscribe(fabric, "b", "nobody", "--count=5")
    publisher = publish(fabric, "a", "nobody", "--count=5", "--stay-s=-1")
    subscriber.wait_for_success(20.0)
    edge = fabric.edge("a")
    edge.wait_for_line("reads no longer.*topic=nobody", 5.0)
    publisher.terminate()


def test_a_writer_that_no_longer_says_it_lives(fabric: Fabric) -> None:
    """Its subscribers in another LAN lose it, as in its own, and have it again when it writes."""
    options = ["--type=keyed", "--manual-lease-ms=600"]
    near = subscribe(fabric, "a", "alive", *options)
    far = subscribe(fabric, "b", "alive", *options)
    publisher = publish(
        fabric,
        *("a", "alive", *options, "--count=60", "--rate=30", "--pause-s=3", "--pause-at=30"),
        *("--stay-s=-1", "--keep-instances"),
        readers=2,
    )
    publisher.wait_for_line('"done"', 40.0)
    for subscriber in (near, far):
        subscriber.wait_for_line('"index": 59,', 5.0)
        subscriber.wait_for_line('"liveliness", "topic": "alive", "alive": 0', 5.0)
    for process in (near, far, publisher):
        process.terminate()
    for subscriber in (near, far):
        print(subscriber.name, of(subscriber, "liveliness"), states(subscriber))
        assert indices(subscriber) == list(range(60))


def test_an_edge_stops_in_time_when_its_subscribers_were_killed(own_fabric: Fabric) -> None:
    """Each of its many writers has samples nobody will ever confirm."""
    lab = own_fabric.lab
    options = ("--topic=many/", "--topics=40", "--size=64", "--rate=50", "--seconds=30")
    subscriber = lab.lan("b").python("tests.apps.load", "sub", *options)
    subscriber.wait_for_line('"ready"', 20.0)
    publisher = lab.lan("a").python("tests.apps.load", "pub", *options)
    publisher.wait_for_line('"matched"', 20.0)
    edge = own_fabric.edge("b")
    wait_until(lambda: edge.text().count("stream opened") >= 40, 20.0, "every stream")
    subscriber.kill()
    assert edge.terminate(6.0) == 0  # what nobody will confirm is waited for once, not for each
    publisher.kill()


def test_late_joiners_get_the_history_after_a_lan_was_cut_off_for_long(own_fabric: Fabric) -> None:
    """Of a writer that has nothing new to say."""
    fabric = own_fabric
    options = ("--durability=transient_local", "--type=keyed", "--keys=3")
    subscriber = subscribe(fabric, "b", "kept", *options[:2])
    publisher = publish(fabric, "a", "kept", *options, "--count=3", "--stay-s=-1")
    subscriber.wait_for_line('"index": 2,', 30.0)
    for lan in ("b", "a"):
        fabric.lab.cut(lan)
        gone = f"edges/{edge_of(lan)}"
        fabric.wait_for_tree(lambda tree, node=gone: node not in tree, 20.0, "the session is over")  # type: ignore[misc]
        if lan == "a":
            fabric.edge("b").wait_for_line("mirror removed.*topic=kept", 20.0)
        fabric.lab.heal(lan)
        late = subscribe(fabric, "b", "kept", *options[:2])
        wait_until(lambda s=late: sorted(indices(s)) == [0, 1, 2], 30.0, f"after {lan} was away")  # type: ignore[misc]
        late.terminate()
    leave(publisher)
    subscriber.terminate()
