"""What fails while samples flow: routers, edges, links, ZooKeeper. Nothing of a reliable stream is
lost, repeated or reordered.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from itertools import pairwise

import pytest

from tests.e2e.traffic import (
    assert_same_order,
    assert_same_samples,
    finish,
    indices,
    leave,
    of,
    publish,
    subscribe,
)
from tests.lab.fabric import EDGE_METRICS, ZOOKEEPER, Fabric, edge_of
from tests.lab.namespaces import CLOUD_ADDRESS, Lab
from tests.lab.process import Process, wait_until

FLOW = ("--rate=200", "--size=200", "--stay-s=-1")
FAST_FLOW = ("--rate=400", *FLOW[1:])
ENDLESS = "--count=1000000"
BEGUN = r'"index": [1-9]\d\d,'
"""It has been going for a while. Of two subscribers one may have missed the first hundred."""
SHORT_LEASE = {
    "CYCLONEDDS_URI": "<Discovery><LeaseDuration>3s</LeaseDuration></Discovery>",
}
"""So long a reliable writer is held up by the reader of an edge that was killed."""


both_ways = pytest.mark.parametrize(
    "own_fabric",
    [{}, {"DDSWAN_ROUTER_EXPRESS_LISTEN": "none"}],
    ids=["express", "gRPC alone"],
    indirect=True,
)


def flow(
    fabric: Fabric, topic: str, options: Sequence[str] = (ENDLESS, *FLOW)
) -> tuple[Process, Process]:
    """A reliable KEEP_ALL stream from LAN a to LAN b that has begun."""
    subscriber = subscribe(fabric, "b", topic)
    publisher = publish(fabric, "a", topic, *options)
    subscriber.wait_for_line(BEGUN, 30.0)
    return publisher, subscriber


def assert_still_flows(publisher: Process, subscriber: Process, deadline_s: float) -> None:
    """What is written from now on arrives."""
    written = of(publisher, "written")[-1]["index"]
    subscriber.wait_for_line(f'"index": {written + 100},', deadline_s)


def assert_all_arrives(publisher: Process, subscriber: Process, deadline_s: float) -> None:
    """Also what is written from now on; then the publisher leaves."""
    assert_still_flows(publisher, subscriber, deadline_s)
    leave(publisher)
    last = of(publisher, "written")[-1]["index"]
    subscriber.wait_for_line(f'"index": {last},', deadline_s)
    subscriber.terminate()
    assert_same_samples(publisher, subscriber)


def primary_of(fabric: Fabric, topic: str) -> str:
    found: str = json.loads(fabric.tree()[f"topics/{topic}"])["primary"]
    return found


@both_ways
def test_the_primary_router_is_killed_and_comes_back(own_fabric: Fabric) -> None:
    fabric = own_fabric
    publisher, subscriber = flow(fabric, "router_killed")
    primary = primary_of(fabric, "router_killed")
    fabric.brokers[primary].kill()
    seen = len(indices(subscriber))
    wait_until(
        lambda: len(indices(subscriber)) > seen + 200, 3.0, "the standby carries the topic at once"
    )
    # Past the session timeout another router is primary; then the killed one returns.
    wait_until(
        lambda: primary_of(fabric, "router_killed") != primary, 15.0, "the topic moves for good"
    )
    fabric.start_router(primary)
    fabric.wait_until_registered()
    assert_all_arrives(publisher, subscriber, 30.0)


@both_ways
def test_the_link_of_a_lan_is_cut_and_healed(own_fabric: Fabric) -> None:
    fabric = own_fabric
    publisher, subscriber = flow(fabric, "cut")
    for lan in ("b", "a"):
        fabric.lab.cut(lan)
        seen = len(indices(subscriber))
        publisher.wait_for_line(f'"index": {seen + 300},', 20.0)
        fabric.lab.heal(lan)
        wait_until(
            lambda n=seen: len(indices(subscriber)) > n + 300,  # type: ignore[misc]
            30.0,
            f"samples flow again after {lan} was cut off",
        )
    assert_all_arrives(publisher, subscriber, 60.0)


def test_an_outage_longer_than_the_window_stops_nobody_else() -> None:
    """Neither the other subscribers of the topic nor other topics. A full DDS reader would stop all
    reception of its LAN's edge: an outage is bridged in memory before it comes to that."""
    settings = {"DDSWAN_STREAM_WINDOW_BYTES": "65536", "DDSWAN_INGRESS_READER_SAMPLES": "64"}
    with Lab("a", "b", "c") as lab, Fabric(lab, ["a", "b", "c"], settings=settings) as fabric:
        same = subscribe(fabric, "c", "outage", "--count=2000")
        other = subscribe(fabric, "c", "other", "--count=2000")
        publisher, subscriber = flow(fabric, "outage", ("--count=2000", *FAST_FLOW))
        other_publisher = publish(fabric, "a", "other", "--count=2000", *FAST_FLOW)
        for reachable in (same, other):
            reachable.wait_for_line(BEGUN, 30.0)
        lab.cut("b")
        seen = len(indices(subscriber))
        # Far beyond the window and the reader together.
        publisher.wait_for_line(f'"index": {seen + 1000},', 20.0)
        for reachable in (same, other):
            at = len(indices(reachable))
            wait_until(
                lambda r=reachable, at=at: len(indices(r)) > at + 200,  # type: ignore[misc]
                5.0,
                "samples flow to the LAN that can be reached",
            )
        lab.heal("b")
        # Whoever is the first to join lets the publisher begin; the other may miss its first words.
        for complete in (subscriber, same, other):
            complete.wait_for_line('"index": 1999,', 60.0)
            found = indices(complete)
            assert_same_order(list(range(found[0], 2000)), found)
            assert found[0] < 1000
            complete.terminate()
        for each in (publisher, other_publisher):
            each.terminate()


def test_zookeeper_is_killed_while_samples_flow(own_fabric: Fabric) -> None:
    fabric = own_fabric
    publisher, subscriber = flow(fabric, "zookeeper_killed")
    fabric.brokers["zookeeper"].kill()
    seen = len(indices(subscriber))
    # Longer than the session timeout: everybody keeps forwarding on the last known view.
    wait_until(lambda: len(indices(subscriber)) > seen + 800, 15.0, "samples keep flowing")
    fabric.start_zookeeper()
    fabric.wait_until_registered()
    assert_all_arrives(publisher, subscriber, 30.0)
    # And what is new is carried too.
    later = subscribe(fabric, "b", "after_zookeeper", "--count=5")
    finish(publish(fabric, "a", "after_zookeeper", "--count=5", "--stay-s=-1"), later)


def losses(fabric: Fabric, lan: str) -> bytes:
    """Of sessions, as the LAN's edge counts them; without labels."""
    text = re.sub(rb"\{[^}]*\}", b"", fabric.ask(lan, "/metrics"))
    assert b"ddswan_session_losses_total" in text
    return text


@pytest.mark.parametrize("own_fabric", [EDGE_METRICS], ids=["watched"], indirect=True)
def test_zookeeper_comes_back_empty_and_all_sessions_are_over(own_fabric: Fabric) -> None:
    """Everybody registers anew and finds the others gone at first: no path that works ends."""
    fabric = own_fabric
    publisher, subscriber = flow(fabric, "emptied")
    before = json.loads(fabric.tree()["edges/e-a"])
    fabric.brokers["zookeeper"].kill()
    shutil.rmtree(fabric.lab.directory / "zookeeper")
    seen = len(indices(subscriber))
    wait_until(lambda: len(indices(subscriber)) > seen + 200, 15.0, "samples keep flowing")
    fabric.start_zookeeper()
    for lan in "ab":
        wait_until(
            lambda at=lan: b"ddswan_session_losses_total 0" not in losses(fabric, at),  # type: ignore[misc]
            20.0,
            f"the session of the edge in {lan} is over",
        )
    fabric.wait_until_registered()
    assert json.loads(fabric.tree()["edges/e-a"]) == before
    assert_still_flows(publisher, subscriber, 60.0)
    # Applications have not noticed: their writer was there all the time.
    counts = [record["count"] for record in of(subscriber, "writers")]
    assert 0 not in counts[counts.index(1) :], counts
    assert_all_arrives(publisher, subscriber, 60.0)
    # And a LAN that has never seen the type gets it.
    later = subscribe(fabric, "b", "after_emptied", "--count=5")
    finish(publish(fabric, "a", "after_emptied", "--count=5", "--stay-s=-1"), later)


def test_the_subscribing_edge_is_killed_and_comes_back(own_fabric: Fabric) -> None:
    """The samples of a transient-local topic are all in the LAN again afterwards."""
    fabric = own_fabric
    options = ["--durability=transient_local"]
    subscriber = subscribe(fabric, "b", "edge_killed", *options)
    publisher = publish(fabric, "a", "edge_killed", "--count=1200", *FLOW, *options)
    subscriber.wait_for_line('"index": 100,', 30.0)
    fabric.edge("b").kill()
    fabric.start_edge("b")
    fabric.wait_until_registered()
    publisher.wait_for_line('"done"', 30.0)
    subscriber.wait_for_line('"index": 1199,', 40.0)
    late = subscribe(fabric, "b", "edge_killed", *options, "--count=1200")
    late.wait_for_success(30.0)
    assert_same_samples(publisher, late)
    subscriber.terminate()
    # The subscriber that was there before missed nothing. The new mirror is another writer to it,
    # so that history it already had comes again, as from any writer that is restarted.
    assert set(indices(subscriber)) == set(range(1200))


@pytest.mark.parametrize("own_fabric", [SHORT_LEASE], ids=["short lease"], indirect=True)
def test_the_publishing_edge_is_killed_and_comes_back(own_fabric: Fabric) -> None:
    fabric = own_fabric
    publisher, subscriber = flow(fabric, "publishing_edge_killed", ("--count=1200", *FLOW))
    fabric.edge("a").kill()
    fabric.start_edge("a")
    fabric.wait_until_registered()
    publisher.wait_for_line('"done"', 30.0)
    subscriber.wait_for_line('"index": 1199,', 40.0)
    publisher.terminate()
    subscriber.terminate()
    got = indices(subscriber)
    # What was in the killed edge's memory only is gone (the topic is volatile); before and after
    # there is neither a gap nor a repetition nor disorder.
    assert got == sorted(set(got))
    gaps = [(one, two) for one, two in pairwise(got) if two != one + 1]
    assert len(gaps) <= 1, gaps


def test_a_lan_whose_edge_starts_late_gets_the_history(own_fabric: Fabric) -> None:
    fabric = own_fabric
    options = ["--durability=transient_local"]
    assert fabric.edge("b").terminate() == 0
    publisher = publish(fabric, "a", "late_lan", "--count=50", "--stay-s=-1", *options, readers=0)
    subscriber = subscribe(fabric, "b", "late_lan", "--count=50", *options)
    publisher.wait_for_line('"done"', 20.0)
    fabric.start_edge("b")
    subscriber.wait_for_success(40.0)
    publisher.terminate()
    assert_same_samples(publisher, subscriber)


def test_sigterm_ends_every_broker_in_time_and_leaves_nothing(own_fabric: Fabric) -> None:
    fabric = own_fabric
    publisher, subscriber = flow(fabric, "stopping")
    for lan in ("a", "b"):
        assert fabric.edge(lan).terminate(10.0) == 0
    tree = fabric.tree()
    edges = (edge_of("a"), edge_of("b"))
    left = [path for path in tree if any(f"/{edge}" in path for edge in edges)]
    assert left == []
    # Its mirror was deleted, not left to expire.
    subscriber.wait_for_line('"writers", "topic": "stopping", "count": 0', 2.0)
    for router in ("r1", "r2"):
        assert fabric.brokers[router].terminate(10.0) == 0
    left = [path for path in fabric.tree() if path.startswith(("routers/", "leader/"))]
    assert left == []
    assert fabric.brokers["zookeeper"].terminate(10.0) == 0
    publisher.kill()
    subscriber.kill()
    wait_until(lambda: not fabric.lab.pids(), 5.0, "no process is left")


def test_garbage_in_the_tree_disturbs_nobody(own_fabric: Fabric) -> None:
    fabric = own_fabric
    publisher, subscriber = flow(fabric, "garbage")
    garbage = ["", "not json", "{}", '{"version": 999}', "[1, 2]", '{"version": 1, "edge": 7}']
    fabric.put(
        {
            path: text
            for number, text in enumerate(garbage)
            for path in (
                f"edges/garbage{number}",
                f"routers/garbage{number}",
                f"topics/garbage/pub/ghost{number}~0000",
                f"topics/ghost{number}",
            )
        }
        | {"topics/%zz/sub/no-tilde": "x", "types/0000": "not a type"}
    )
    new = subscribe(fabric, "b", "after_garbage", "--count=5")
    finish(publish(fabric, "a", "after_garbage", "--count=5", "--stay-s=-1"), new)
    assert_all_arrives(publisher, subscriber, 30.0)
    assert fabric.status()["unreadable_records"]
    fabric.check_running()


def test_one_of_two_edges_of_a_lan_loses_zookeeper_alone(own_fabric: Fabric) -> None:
    """It goes on as it was, the other takes over: nobody gets anything twice for long."""
    fabric = own_fabric
    door = fabric.lab.cloud.python("tests.lab.passage", f"2182:{ZOOKEEPER}")
    door.wait_for_line("passing", 10.0)
    fabric.start_edge("a", "e-a2", f"{CLOUD_ADDRESS}:2182")
    fabric.wait_until_registered()
    topics = ("--topics=6", "--rate=50")
    endless = ("--count=100000", "--stay-s=-1")
    flows = []
    for name, source, target in (("out", "a", "b"), ("in", "b", "a")):
        subscriber = subscribe(fabric, target, name, topics[0])
        publisher = publish(fabric, source, name, *topics, *endless)
        flows += [(subscriber, publisher, f"{name}{number}") for number in range(6)]
    for subscriber, _, topic in flows:
        subscriber.wait_for_line(f'"{topic}", "index": 50,', 30.0)
    tree = fabric.tree()
    for direction, name in (("pub", "out"), ("sub", "in")):
        of_both = [
            path
            for path in tree
            if path.startswith(f"topics/{name}") and f"/{direction}/e-a" in path
        ]
        assert {"e-a2" in path for path in of_both} == {True, False}, of_both
    door.kill()
    fabric.wait_for_tree(lambda tree: "edges/e-a2" not in tree, 20.0, "its session is over")

    def are_single() -> bool:
        """The last samples of every topic came once each."""
        return all(
            len(last) == 50 and len(set(last)) == 50
            for last in (indices(subscriber, topic)[-50:] for subscriber, _, topic in flows)
        )

    at = {topic: len(indices(subscriber, topic)) for subscriber, _, topic in flows}
    for subscriber, _, topic in flows:
        wait_until(
            lambda s=subscriber, t=topic: len(indices(s, t)) > at[t] + 150,  # type: ignore[misc]
            30.0,
            f"{topic} flows",
        )
    wait_until(are_single, 20.0, "nothing comes twice")
    for subscriber, publisher, _ in flows[::6]:
        publisher.terminate()
        subscriber.terminate()
