"""Topics with strict deadlines: their second path, by itself and only for them; the first copy
wins, whatever dies; what is learned of paths and clocks, and what is counted.

All of it over TCP; datagrams beside it have test_datagrams.py. One fabric for the whole file. LANs
a and b have a direct link, slower one way than the other; so have a and c, but c does not listen;
b and c have only the routers.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.e2e.conftest import watched
from tests.e2e.traffic import (
    Record,
    assert_same_order,
    assert_same_samples,
    indices,
    leave,
    of,
    publish,
    subscribe,
)
from tests.lab.fabric import EDGE_METRICS, ZOOKEEPER, Fabric
from tests.lab.machine import stolen_s
from tests.lab.namespaces import Lab
from tests.lab.process import wait_until
from tests.lab.wan import Wan

SETTINGS = {
    **EDGE_METRICS,
    "DDSWAN_ZOOKEEPER_SESSION_TIMEOUT_S": "4",
    "DDSWAN_EXPRESS_MODES": "apart*=single,together*=adaptive,*0=duplicate,*1=single",
    "DDSWAN_EXPRESS_TOPICS": "named*",
    "DDSWAN_EXPRESS_DATAGRAMS": "false",
}
DUPLICATE, SINGLE, ADAPTIVE = range(3)
"""Numbers of topics by what `SETTINGS` make of them."""
THERE_MS, BACK_MS, UPLINK_MS = 5, 15, 10
CLOCK_ERROR_MS = (THERE_MS + BACK_MS) / 2 + 3.0
"""Half the smallest round trip, and a little for drift and a busy machine."""
DEADLINE_MS = 200
DEADLINE = f"--deadline-ms={DEADLINE_MS}"
LEFT = {"routed", "standby"}
"""What there is without a direct way."""
FLOW = ("--topics=3", DEADLINE, "--rate=40", "--count=1000000", "--stay-s=-1")


@pytest.fixture(scope="module")
def fabric() -> Iterator[Fabric]:
    lans = ["a", "b", "c"]
    with Lab(*lans, wan=Wan(direct=[("a", "b"), ("a", "c")])) as lab:
        for lan in lans:
            lab.wan[lan, "cloud"].set(delay_ms=UPLINK_MS)
        restore_direct_link(lab)
        made = Fabric(lab, lans, routers=2, settings=SETTINGS, express_lans=["a", "b"])
        with watched(made) as running:
            yield running


def restore_direct_link(lab: Lab) -> None:
    lab.wan["a", "b"].set(direction="there", delay_ms=THERE_MS, cut=False)
    lab.wan["a", "b"].set(direction="back", delay_ms=BACK_MS, cut=False)


# ---------------------------------------------------------------- what edges say


def express_edges(fabric: Fabric, lan: str) -> dict[str, bool]:
    """The edges this LAN's edge has or wants a direct link with, and whether it is up."""
    return {row["edge"]: row["up"] for row in fabric.edge_status(lan)["express"]}


def choice(fabric: Fabric, lan: str, topic: str, to: str) -> Record:
    """What the edge of a LAN says of a deadline topic towards another."""
    for outflow in fabric.edge_status(lan)["outflows"]:
        for row in outflow["deadline"]:
            if outflow["topic"] == topic and row["edge"] == f"e-{to}":
                found: Record = row
                return found
    raise AssertionError(f"{lan} has no deadline topic {topic} towards {to}")


def taken_by(fabric: Fabric, place: tuple[str, str, str]) -> list[str]:
    """The paths a topic (name, from, to) takes."""
    topic, lan, to = place
    taken: list[str] = choice(fabric, lan, topic, to)["taken"]
    return taken


def wait_for_taken(
    fabric: Fabric, topics: list[tuple[str, str, str]], taken: list[str], within_s: float
) -> None:
    """Each of these topics (name, from, to) takes just these paths."""

    def is_so() -> bool:
        found = [choice(fabric, lan, topic, to) for topic, lan, to in topics]
        rows[:] = found
        return all(row["taken"] == taken for row in found)

    rows: list[Record] = []
    try:
        wait_until(is_so, within_s, f"{topics} take {taken}")
    except AssertionError as error:
        raise AssertionError(f"{error}; said last: {rows}") from None


def counts(fabric: Fabric, lan: str, name: str, **wanted: str) -> dict[str, float]:
    """Series of a counter of a LAN's edge by their path."""
    found: dict[str, float] = {}
    text = fabric.ask(lan, "/metrics").decode()
    for labels, value in re.findall(rf"^{name}_total\{{(.*)\}} (\S+)$", text, re.MULTILINE):
        pairs = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if wanted.items() <= pairs.items():
            found[pairs.get("path", "")] = float(value)
    return found


# ---------------------------------------------------------------- links


def test_links_come_by_themselves_for_deadline_topics_only(fabric: Fabric) -> None:
    """And one for all topics of two edges, though only one of them listens."""
    for topic, deadline in (("plain", ()), ("slack", ("--deadline-ms=5000",))):
        subscriber = subscribe(fabric, "b", topic, *deadline, "--count=20")
        publisher = publish(fabric, "a", topic, *deadline, "--count=20", "--stay-s=1")
        publisher.wait_for_success(20.0)
        subscriber.wait_for_success(20.0)
    assert express_edges(fabric, "a") == {}
    assert express_edges(fabric, "b") == {}
    named = ("--topics=3",)
    subscriber = subscribe(fabric, "c", "named", *named)
    publisher = publish(fabric, "a", "named", *named, "--count=100000", "--rate=20", "--stay-s=-1")
    for lan, peer in (("a", "c"), ("c", "a")):
        wait_until(
            lambda lan=lan, peer=peer: express_edges(fabric, lan) == {f"e-{peer}": True},  # type: ignore[misc]
            15.0,
            f"{lan} and {peer} have one link",
        )
    (link,) = fabric.edge_status("c")["express"]
    assert link["dialled"] is True
    wait_until(
        lambda: all(
            counts(fabric, "c", "ddswan_samples_out", topic=f"named{number}").get("", 0) > 10
            for number in range(3)
        ),
        15.0,
        "samples arrive",
    )
    for number, mode in enumerate(["duplicate", "single", "adaptive"]):
        row = choice(fabric, "a", f"named{number}", "c")
        assert (row["mode"], row["deadline_ms"]) == (mode, 1000.0)
        assert "express" in row["taken"], row
    for each in (publisher, subscriber):
        each.terminate()


# ---------------------------------------------------------------- the first copy wins


class Flow:
    """Three topics, one of each mode, from one LAN to another for as long as the test lasts."""

    def __init__(self, fabric: Fabric, name: str, source: str, target: str, *options: str) -> None:
        self.name, self.source, self.target = name, source, target
        self.is_reliable = "--best-effort" not in options
        self.subscriber = subscribe(fabric, target, name, "--topics=3", DEADLINE, *options)
        self.publisher = publish(fabric, source, name, *FLOW, *options)

    def topic(self, number: int) -> str:
        return f"{self.name}{number}"

    def place(self, number: int) -> tuple[str, str, str]:
        return self.topic(number), self.source, self.target

    def received(self, number: int) -> int:
        return len(indices(self.subscriber, self.topic(number)))

    def wait_for_more(self, count: int, within_s: float) -> None:
        """Of every topic."""
        aims = [self.received(number) + count for number in range(3)]
        wait_until(
            lambda: all(self.received(number) >= aim for number, aim in enumerate(aims)),
            within_s,
            f"{self.name} flows",
        )

    def stop(self) -> None:
        self.publisher.terminate()
        wait_until(lambda: not self._lacks_end(), 15.0, f"the end of {self.name} arrives")
        self.subscriber.terminate()

    def _lacks_end(self) -> bool:
        last = [of(self.publisher, "written", self.topic(number))[-1] for number in range(3)]
        if not self.is_reliable:
            return False
        return any(
            indices(self.subscriber, record["topic"])[-1] != record["index"] for record in last
        )

    def check(self) -> None:
        for number in range(3):
            topic = self.topic(number)
            sent = [record["index"] for record in of(self.publisher, "written", topic)]
            got = indices(self.subscriber, topic)
            if self.is_reliable:
                assert_same_order(sent, got)
            else:
                assert got == sorted(set(got)), f"{topic} has repetitions or disorder"
                # Of a topic sent twice only what was on its way when both ways changed at once.
                most = 20 if number == DUPLICATE else 400
                assert len(sent) - len(got) <= most, (topic, len(sent), len(got))

    def late(self, number: int) -> int:
        """Samples that took longer than the deadline, or as good as that: edges know each other's
        clocks as well as `check_clocks` asks."""
        least_ns = (DEADLINE_MS - CLOCK_ERROR_MS) * 1_000_000
        return sum(
            record["received"] - record["timestamp"] > least_ns
            for record in of(self.subscriber, "sample", self.topic(number))
        )

    def longest_gap_s(self, number: int, since: int) -> float:
        """Between two samples, from the last but one of so many on."""
        times = [record["received"] for record in of(self.subscriber, "sample", self.topic(number))]
        gaps_ns: list[int] = [two - one for one, two in pairwise(times[since - 2 :])]
        return max(gaps_ns) / 1e9


@pytest.fixture
def flows(fabric: Fabric) -> Iterator[list[Flow]]:
    made = [
        Flow(fabric, f"{name}.{source}{target}", source, target, *options)
        for name, options in (("reliable", ()), ("best", ("--best-effort",)))
        for source, target in (("a", "b"), ("b", "a"))
    ]
    yield made
    for flow in made:
        for process in (flow.publisher, flow.subscriber):
            process.kill()


def test_the_first_copy_wins_whatever_dies(fabric: Fabric, flows: list[Flow]) -> None:
    """Both ways, reliable and best-effort, in every mode, while ways die, return and get slow."""
    lab = fabric.lab
    adaptive = [flow.place(ADAPTIVE) for flow in flows]
    single = [flow.place(SINGLE) for flow in flows]
    duplicate = [flow.place(DUPLICATE) for flow in flows]
    for flow in flows:
        flow.subscriber.wait_for_line('"index": 10,', 30.0)
    wait_for_taken(fabric, adaptive, ["express"], 20.0)
    check_modes(fabric, flows)
    check_clocks(fabric)
    check_offered_deadline(fabric, flows[0])

    # The direct way vanishes, and nobody is told.
    since_both = [(flow.received(ADAPTIVE), flow.received(SINGLE)) for flow in flows]
    stolen_before_s = stolen_s()
    lab.wan["a", "b"].set(cut=True)
    # Single paths are left as well, before the link is given up.
    wait_for_taken(fabric, single, ["routed"], 3.0)
    wait_until(lambda: express_edges(fabric, "a")["e-b"] is False, 10.0, "the link is given up")
    wait_for_taken(fabric, single, ["routed"], 3.0)
    wait_until(
        lambda: all({"routed"} <= set(taken_by(fabric, each)) <= LEFT for each in adaptive),
        3.0,
        "adaptive topics have left the direct way",
    )
    # A moment in which this machine stood still makes both paths late: then copies go over both.
    wait_for_taken(fabric, adaptive, ["routed"], 8.0)
    for flow, (at, single_at) in zip(flows, since_both, strict=True):
        missed_s = stolen_s() - stolen_before_s
        assert flow.longest_gap_s(ADAPTIVE, at) < 1.0 + missed_s, flow.name
        assert flow.longest_gap_s(SINGLE, single_at) < 2.0 + missed_s, flow.name
    restore_direct_link(lab)
    wait_for_taken(fabric, single, ["express"], 8.0)
    wait_for_taken(fabric, duplicate, ["express", "routed"], 1.0)

    # Its connection is reset.
    lab.lan("a").run(["ss", "-K", "state", "established", "( sport = :7500 or dport = :7500 )"])
    for flow in flows:
        flow.wait_for_more(40, 5.0)

    # It gets too slow for the deadline, and fast again.
    lab.wan["a", "b"].set(delay_ms=300)
    wait_for_taken(fabric, adaptive, ["routed"], 8.0)
    restore_direct_link(lab)
    # The routed way would do, but this one is better.
    wait_for_taken(fabric, adaptive, ["express"], 20.0)

    # The other way vanishes: the uplink of a LAN is cut.
    since = [flow.received(ADAPTIVE) for flow in flows]
    stolen_before_s = stolen_s()
    lab.cut("b")
    wait_for_taken(fabric, adaptive, ["express"], 8.0)
    for flow, at in zip(flows, since, strict=True):
        flow.wait_for_more(80, 5.0)
        missed_s = stolen_s() - stolen_before_s
        assert flow.longest_gap_s(ADAPTIVE, at) < 1.0 + missed_s, flow.name
    lab.heal("b")

    # A router dies.
    primary = primary_of(fabric, flows[0].topic(DUPLICATE))
    fabric.brokers[primary].kill()
    for flow in flows:
        flow.wait_for_more(40, 5.0)
    fabric.start_router(primary)
    fabric.wait_until_registered()
    wait_for_taken(fabric, duplicate, ["express", "routed"], 10.0)

    for flow in flows:
        flow.stop()
    for flow in flows:
        flow.check()


def check_modes(fabric: Fabric, flows: list[Flow]) -> None:
    """Each topic has its mode and says why; one link serves all; copies are dropped."""
    for flow in flows:
        for number, (mode, taken) in enumerate(
            [
                ("duplicate", ["express", "routed"]),
                ("single", ["express"]),
                ("adaptive", ["express"]),
            ]
        ):
            row = choice(fabric, flow.source, flow.topic(number), flow.target)
            assert (row["mode"], row["taken"], row["deadline_ms"]) == (mode, taken, DEADLINE_MS), (
                row
            )
            assert row["why"].startswith("all paths" if mode == "duplicate" else "express alone")
    for lan, peer in (("a", "b"), ("b", "a")):
        assert express_edges(fabric, lan)[f"e-{peer}"] is True
    for flow in flows:
        topic = flow.topic(DUPLICATE)
        sent = counts(fabric, flow.source, "ddswan_batches_sent", topic=topic)
        assert sent["express"] > 0
        assert sent["routed"] > 0
        dropped = counts(fabric, flow.target, "ddswan_samples_duplicate", topic=topic)[""]
        assert dropped > 0.5 * min(sent["express"], sent["routed"])
        # The direct way is faster.
        labels = {"topic": topic, "peer_lan": flow.source}
        came = counts(fabric, flow.target, "ddswan_deadline_samples", **labels)
        assert came["express"] > 0.8 * sum(came.values())
        missed = counts(fabric, flow.target, "ddswan_deadline_misses", **labels)
        # None but those that were late: a machine that stood still may have made them so.
        wait_until(
            lambda: sum(missed.values()) <= flow.late(DUPLICATE),  # noqa: B023
            10.0,
            f"the subscriber of {topic} has seen {missed} late samples",
        )


def check_clocks(fabric: Fabric) -> None:
    """Both ends run on one clock, and the way there is shorter than the way back."""
    for lan, peer in (("a", "b"), ("b", "a")):
        (pair,) = [row for row in fabric.edge_status(lan)["pairs"] if row["edge"] == f"e-{peer}"]
        error_ms = pair["clock_error_ms"]
        assert abs(pair["clock_offset_ms"]) <= error_ms
        assert error_ms < CLOCK_ERROR_MS
        (direct,) = [path for path in pair["paths"] if path["via"] == "express"]
        delay_ms = THERE_MS if lan == "a" else BACK_MS
        assert abs(direct["level_ms"] - delay_ms) <= error_ms + 1.0


def check_offered_deadline(fabric: Fabric, flow: Flow) -> None:
    """A mirror offers its origin's deadline: who asks for a shorter one is told so by DDS."""
    strict = subscribe(fabric, flow.target, flow.topic(SINGLE), "--deadline-ms=100")
    strict.wait_for_line(r'"incompatible", .*"total": [1-9]', 10.0)
    strict.terminate()


def primary_of(fabric: Fabric, topic: str) -> str:
    found: str = json.loads(fabric.tree()[f"topics/{topic}"])["primary"]
    return found


# ---------------------------------------------------------------- paths that lose packets


def test_samples_travel_together_while_a_long_path_loses_packets(fabric: Fabric) -> None:
    """Fewer packets, fewer losses; with a mode that does not adapt each goes at once."""
    direct = fabric.lab.wan["a", "b"]
    uplink = fabric.lab.wan["b", "cloud"]
    uplink.set(delay_ms=100)
    direct.set(delay_ms=100, loss=0.05)
    try:
        apart = packets_per_sample(fabric, "apart", waits=False)
        together = packets_per_sample(fabric, "together", waits=True)
    finally:
        uplink.set(delay_ms=UPLINK_MS)
        direct.set(loss=0.0)
        restore_direct_link(fabric.lab)
    assert together < 0.6 * apart


def packets_per_sample(fabric: Fabric, name: str, *, waits: bool) -> float:
    """On the direct link, that way; of topics no path serves in time."""
    topics = ("--topics=5", "--deadline-ms=60")
    direct = fabric.lab.wan["a", "b"]
    subscriber = subscribe(fabric, "b", name, *topics)
    publisher = publish(fabric, "a", name, *topics, "--rate=40", "--count=100000", "--stay-s=-1")
    subscriber.wait_for_line(f'"{name}0", "index": 0,', 30.0)
    wait_until(
        lambda: (choice(fabric, "a", f"{name}0", "b")["wait_ms"] > 0) is waits,
        60.0,
        f"samples wait: {waits}",
    )
    samples, packets = len(indices(subscriber)), direct.counters().there.packets
    wait_until(lambda: len(indices(subscriber)) >= samples + 600, 60.0, "600 samples came")
    packets = direct.counters().there.packets - packets
    samples = len(indices(subscriber)) - samples
    assert taken_by(fabric, (f"{name}0", "a", "b")) == ["express"]
    leave(publisher)
    for number in range(5):
        topic = f"{name}{number}"
        count = len(of(publisher, "written", topic))
        wait_until(lambda: len(indices(subscriber, topic)) >= count, 30.0, "all came")  # noqa: B023
    subscriber.terminate()
    for number in range(5):
        assert_same_samples(publisher, subscriber, f"{name}{number}")
    return packets / samples


# ---------------------------------------------------------------- without a direct way


def test_without_a_direct_way_the_second_path_is_the_standby(fabric: Fabric) -> None:
    """And what is late on it is counted by LAN and path."""
    late = ("--topics=3", "--deadline-ms=8")
    subscriber = subscribe(fabric, "c", "far", *late)
    publisher = publish(fabric, "b", "far", *late, "--count=80", "--rate=40", "--stay-s=-1")
    for number in range(3):
        subscriber.wait_for_line(f'"far{number}", "index": 79,', 30.0)
    status = fabric.edge_status("b")
    (link,) = [row for row in status["express"] if row["edge"] == "e-c"]
    assert link["up"] is False
    check_status_command(fabric)
    assert choice(fabric, "b", "far0", "c")["taken"] == ["routed", "standby"]
    assert choice(fabric, "b", "far1", "c")["taken"] == ["routed"]
    hopeless = choice(fabric, "b", "far2", "c")
    assert hopeless["paths"].keys() == {"routed", "standby"}
    sent = counts(fabric, "b", "ddswan_batches_sent", topic="far0")
    assert sent["express"] == 0
    assert min(sent["routed"], sent["standby"]) > 70
    for number in range(3):
        labels = {"topic": f"far{number}", "peer_lan": "b"}
        came = counts(fabric, "c", "ddswan_deadline_samples", **labels)
        missed = counts(fabric, "c", "ddswan_deadline_misses", **labels)
        assert came == missed
        assert sum(came.values()) == 80
        assert "express" not in came
    publisher.terminate()
    subscriber.terminate()
    for number in range(3):
        assert_same_order(list(range(80)), indices(subscriber, f"far{number}"))


def check_status_command(fabric: Fabric) -> None:
    """What it says of a topic and of links, though asked in the cloud."""
    status = ("-m", "gateway.cli", "status", f"--zookeeper={ZOOKEEPER}")
    text = fabric.lab.cloud.run([sys.executable, *status, "--topic=far0"])
    for said in (
        "topic far0 of fabric default: routed",
        "publishers   b:1",
        "FROM e-b (b) TO e-c (c)",
        "deadline 8 ms, mode duplicate: takes routed and standby",
        "why: all paths: mode duplicate",
        "the clock of e-c is ",
    ):
        assert said in text, text
    found = json.loads(fabric.lab.cloud.run([sys.executable, *status, "--topic=far0", "--json"]))
    assert found["topic"]["publishers"] == {"b": 1}
    (flow,) = found["flows"]
    assert flow["taken"] == ["routed", "standby"]
    assert [path["path"] for path in flow["paths"]] == ["routed", "standby"]
    for path in flow["paths"]:
        assert abs(path["level_ms"] - 2 * UPLINK_MS) <= flow["clock_error_ms"] + 2.0, path
    assert abs(flow["clock_offset_ms"]) <= flow["clock_error_ms"]
    links = {frozenset(link["edges"]): link for link in fabric.status()["express_links"]}
    assert links[frozenset(("e-b", "e-c"))]["is_up"] is False


def test_links_nobody_needs_go(fabric: Fabric) -> None:
    """Those of the first test, long unused, and of the others soon: ten heartbeats after the last
    stream is over, for which a subscriber's edge may wait half a minute if it missed the end."""
    wait_until(
        lambda: not any(express_edges(fabric, lan) for lan in ("a", "b", "c")),
        60.0,
        "no edge has a direct link",
    )
