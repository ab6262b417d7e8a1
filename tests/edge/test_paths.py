"""What an edge learns of its paths to others and makes of it, over links that are not there: which
topics have deadlines, what pairs know, where batches go, what receivers report.
"""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from edge_broker.arrivals import Arrivals
from edge_broker.deadlines import DeadlinePolicy, _Hedging
from edge_broker.known_path import OpenPath
from edge_broker.links import EXPRESS, ROUTED, Link
from gateway.config import Express
from gateway.model import INFINITE_NS, Profile, Qos
from gateway.plan.path_choice import Mode
from gateway.tunnel import messages
from gateway.tunnel.express_link import ExpressLink
from gateway.tunnel.frames import Peer
from gateway.tunnel.messages import Probe, ProbeAnswer
from tests.edge.path_parts import ME, MS, OTHER, Clocks, FakeLink, World

# ---------------------------------------------------------------- which topics


@pytest.mark.parametrize(
    ("topic", "deadline_ns", "aim_s"),
    [
        ("t", 500_000_000, 0.5),
        ("t", 1_000_000_000, 1.0),
        ("t", 1_000_000_001, None),
        ("t", INFINITE_NS, None),
        ("named/x", INFINITE_NS, 1.0),
        ("named/x", 20_000_000, 0.02),
    ],
)
def test_which_topics_have_a_strict_deadline(
    topic: str, deadline_ns: int, aim_s: float | None
) -> None:
    policy = DeadlinePolicy(Express(topics=("named/*",)))
    profile = Profile("T", None, False, Qos(deadline_ns=deadline_ns))
    assert policy.deadline_s(topic, profile) == aim_s


def test_the_first_pattern_that_matches_gives_the_mode() -> None:
    policy = DeadlinePolicy(Express(mode="single", modes={"a/b": "adaptive", "a/*": "duplicate"}))
    assert [policy.mode(topic) for topic in ("a/b", "a/c", "b")] == [
        Mode.ADAPTIVE,
        Mode.DUPLICATE,
        Mode.SINGLE,
    ]


# ---------------------------------------------------------------- where batches go


def test_topics_with_other_primaries_share_paths_under_their_own_names(world: World) -> None:
    one, other = world.routing("one", "duplicate"), world.routing("other", "duplicate")
    assert world.send(one) == [("express", "express"), ("routed", "r1")]
    assert world.send(other) == [("express", "express"), ("routed", "r2")]
    world.links.up.discard(EXPRESS)
    world.links.generation += 1
    single = world.routing("one", "single")
    for _ in range(2):
        assert world.send(one) == [("routed", "r1"), ("standby", "r2")]
        assert world.send(other) == [("routed", "r2"), ("standby", "r1")]
        assert world.send(single) == [("routed", "r1")]
    (row,) = other.summary()
    assert row["paths"] == {"routed": "r2", "standby": "r1"}


def test_a_path_that_goes_or_comes_is_heeded_by_the_next_batch(world: World) -> None:
    """Whatever was decided a moment ago."""
    routing = world.routing("one")
    world.set_clock()
    world.send(routing)
    world.set_clock()
    for via, delay_ms in ((EXPRESS, 5), ("r1", 20)):
        world.learn(via, delay_ms)
    for _ in range(100):
        world.clocks.pass_ms(20)
        taken = world.send(routing)
        world.clocks.pass_ms(5)
        world.report(EXPRESS, 5)
        world.report("r1", 20)
    assert taken == [("express", "express")]
    world.links.up.discard(EXPRESS)
    world.links.generation += 1
    world.pairs.on_links_changed()
    assert ("routed", "r1") in world.send(routing)
    assert world.path(EXPRESS)["up"] is False
    world.links.up = {EXPRESS}
    world.links.generation += 1
    world.pairs.on_links_changed()
    assert world.send(routing) == [("express", "express")]
    world.links.up = set()
    world.links.generation += 1
    assert world.send(routing) == []


def test_a_path_that_stalls_gets_company_at_once(world: World) -> None:
    routing = world.routing("one")
    world.send(routing)
    world.set_clock()
    for via, delay_ms in (("r1", 20), (EXPRESS, 5)):
        world.learn(via, delay_ms)
    for _ in range(400):
        taken = world.send(routing)
        world.clocks.pass_ms(12)
        world.report(EXPRESS, 5)
        world.report("r1", 20)
    assert taken == [("express", "express")]
    world.send(routing)  # and is not confirmed
    world.clocks.pass_ms(150)
    assert ("routed", "r1") in world.send(routing)


def test_a_copy_waits_for_a_confirmation_and_goes_when_none_comes(world: World) -> None:
    """Over the other path, once, and that path is then waited for as for any batch."""
    copied: list[tuple[str, int, str]] = []

    def send_copy(edge: str, number: int, over: OpenPath, now_ns: int) -> bool:
        assert now_ns == world.clocks.wall_ns
        copied.append((edge, number, over.way.via))
        return True

    async def scenario() -> None:
        routing = world.routing("one")
        routing.hedge_with(send_copy)
        world.send(routing)
        world.set_clock()
        for via, delay_ms in ((EXPRESS, 5), ("r1", 20)):
            world.learn(via, delay_ms, 100)
        for _ in range(400):
            world.clocks.pass_ms(10)
            taken = world.send(routing)
            world.clocks.pass_ms(2)
            world.report(EXPRESS, 5)
            world.report("r1", 20)
        assert taken == [(EXPRESS, EXPRESS)]
        assert "a copy on routed after" in routing.summary()[0]["why"]
        assert not copied  # all were confirmed
        scheduled = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
        # Nobody wakes up for them: what goes off is the deadline of this test.
        assert sum(not timer.cancelled() for timer in scheduled) == 1
        world.clocks.pass_ms(10)
        world.send(routing)
        world.clocks.pass_ms(30)
        while not copied:
            await asyncio.sleep(0.001)
        assert copied == [(OTHER.edge, world.number, "r1")]
        assert world.path("r1")["outstanding_ms"] == 0
        world.clocks.pass_ms(5)
        assert world.path("r1")["outstanding_ms"] == 5

    asyncio.run(asyncio.wait_for(scenario(), 10.0))


def test_samples_wait_for_company_where_both_paths_hold_them_up(world: World) -> None:
    """And only with the mode that adapts, and no longer than is set."""
    routings = [
        world.routing("one"),
        world.routing("one", most_wait_s=0.005),
        world.routing("one", most_wait_s=0.0),
        world.routing("one", mode="duplicate"),
    ]
    world.send(routings[0])
    world.set_clock()
    for at in range(600):
        world.clocks.pass_ms(10)
        for routing in routings:
            world.send(routing)
        held_up_ms = 150 if at % 4 == 3 else 0
        world.report(EXPRESS, 80 + held_up_ms)
        world.report("r1", 90 + held_up_ms)
        if at % 10 == 0:
            world.pairs.tick()
    # 8 % of 80 ms, and half of what 90 leave of 100.
    assert [routing.patience_s for routing in routings] == pytest.approx(
        [0.005, 0.005, 0.0, 0.0], abs=0.0005
    )
    assert routings[0].summary()[0]["why"].endswith("; samples wait 5 ms for company")
    assert "wait" not in routings[2].summary()[0]["why"]
    for _ in range(600):
        world.clocks.pass_ms(10)
        world.report(EXPRESS, 80)
        world.report("r1", 90)
        for routing in routings:
            world.send(routing)
    assert not routings[0].patience_s


# ---------------------------------------------------------------- what pairs know


def test_paths_are_probed_until_the_clocks_are_known_and_then_when_idle(world: World) -> None:
    routing = world.routing("one")
    world.send(routing)
    for _ in range(3):
        world.clocks.pass_ms(50)
        world.pairs.tick()
    probes = [each for each in world.links.r1.messages() if isinstance(each, Probe)]
    assert len(probes) >= 1
    assert probes[0][1:] == (probes[0].sent_ns, 0, 0)  # says that it knows no clock yet
    assert not world.links.r2.frames  # no topic uses it
    world.clocks.pass_ms(10)
    seen_ns = world.clocks.wall_ns - 4 * MS + 1000 * MS  # that clock is a second ahead
    world.pairs.on_answer(ProbeAnswer(OTHER, probes[-1].sent_ns, seen_ns), "r1")
    row = world.row()
    assert abs(row["clock_offset_ms"] - 1000) <= row["clock_error_ms"]
    assert 0 <= world.path("r1")["level_ms"] <= 20
    before = len(world.links.r1.frames)
    busy = world.routing("one", "single")
    for _ in range(200):
        world.clocks.pass_ms(40)
        world.send(busy)
        world.learn(EXPRESS, 1005, 1)
        world.pairs.tick()
    later = len(world.links.r1.frames) - before
    assert 1 <= later <= 30
    told = [each for each in world.links.r1.messages() if isinstance(each, Probe)][-1]
    assert abs(told.clock_offset_ns - 1000 * MS) <= told.clock_error_ns


@pytest.mark.parametrize("rest_s", [1, 100])
def test_a_topic_that_rested_learns_of_its_paths_as_before(world: World, rest_s: int) -> None:
    """As one does whose subscriber was there long before its first sample."""
    routing = world.routing("one")
    assert len(routing.paths(OTHER.edge, world.links.generation)) == 2
    for _ in range(rest_s):
        world.clocks.pass_ms(1000)
        world.pairs.tick()
    for _ in range(2):
        world.send(routing)
        world.set_clock()
        world.learn(EXPRESS, 5)
        assert world.path(EXPRESS)["delays"] >= 1
        (row,) = routing.summary()
        assert row["paths"] == {EXPRESS: EXPRESS, ROUTED: "r1"}
        known = {each.way.via: each for each in routing.paths(OTHER.edge, world.links.generation)}
        assert known[EXPRESS].path is world.pairs.pair(OTHER.edge).paths[EXPRESS]
        assert known[EXPRESS].path.outstanding_s(world.clocks.wall_ns) == 0.0
        for _ in range(rest_s):
            world.clocks.pass_ms(1000)
            world.pairs.tick()


@pytest.mark.parametrize(("delay_ms", "fewest", "most"), [(300, 8, 12), (5, 1, 5)])
def test_idle_paths_are_probed_more_often_while_no_path_is_in_time(
    world: World, delay_ms: float, fewest: int, most: int
) -> None:
    routing = world.routing("one")
    world.send(routing)
    world.set_clock()
    for via, later_ms in (("r1", 20), (EXPRESS, 0)):
        world.learn(via, delay_ms + later_ms)
    for _ in range(300):
        if world.send(routing) == [(EXPRESS, EXPRESS)]:
            break
        world.clocks.pass_ms(10)
        world.report(EXPRESS, delay_ms)
        world.report("r1", delay_ms + 20)
    before = len(world.links.r1.frames)
    for _ in range(250):
        assert world.send(routing) == [(EXPRESS, EXPRESS)]
        world.clocks.pass_ms(10)
        world.report(EXPRESS, delay_ms)
        world.clocks.pass_ms(30)
        world.pairs.tick()
    assert fewest <= len(world.links.r1.frames) - before <= most


def test_a_path_in_use_is_probed_now_and_then_for_the_clock(world: World) -> None:
    """It may be the fastest; pings of the direct link tell less then."""
    routing = world.routing("one", "duplicate")
    world.send(routing)
    world.set_clock(EXPRESS)
    for _ in range(1000):
        world.clocks.pass_ms(20)
        world.send(routing)
        world.report(EXPRESS, 5)
        world.report("r1", 20)
        world.pairs.tick()
    probes = [each for each in world.links.r1.messages() if isinstance(each, Probe)]
    assert 2 <= len(probes) <= 3


@pytest.mark.parametrize(
    ("direct_ms", "routed_ms", "first"), [(5, 20, EXPRESS), (20, 5, ROUTED), (None, None, EXPRESS)]
)
def test_of_several_copies_the_one_on_the_fastest_path_goes_first(
    world: World, direct_ms: float | None, routed_ms: float | None, first: str
) -> None:
    """It is the one that may take the shortcut."""
    routing = world.routing("one", "duplicate")
    world.send(routing)
    if direct_ms is not None and routed_ms is not None:
        world.set_clock()
        world.learn(EXPRESS, direct_ms)
        world.learn("r1", routed_ms)
    world.clocks.pass_ms(1000)
    world.send(routing)
    assert next(group.path for group in routing.last_plan) == first
    assert {path for path, _ in world.send(routing)} == {EXPRESS, ROUTED}


def test_how_long_samples_may_go_without_anybody_looking(world: World) -> None:
    routing = world.routing("one", "duplicate")
    edges = (OTHER.edge,)
    assert routing.leeway(edges) is None, "nothing is planned"
    world.set_clock()
    for _ in range(200):
        world.send(routing)
        world.clocks.pass_ms(10)
        for via in (EXPRESS, "r1"):
            world.report(via, 10)
    assert routing.leeway(("somebody else",)) is None
    leeway = routing.leeway(edges)
    assert leeway is not None and leeway.may_wait
    assert 0.01 < leeway.overdue_s < 0.2
    # A copy that has to follow soon needs somebody who sends it.
    taken = routing._taken
    for after_s, may_wait in ((0.5, True), (0.02, False)):
        routing._hedging = [_Hedging(OTHER.edge, taken[0].path, taken[1], after_s)]
        assert routing.leeway(edges) == (leeway.overdue_s, may_wait)


def test_pings_of_the_direct_link_set_the_clock(world: World) -> None:
    """Nothing else does while samples flow over it."""
    world.send(world.routing("one"))
    link = ExpressLink.__new__(ExpressLink)
    now_ns = world.clocks.wall_ns
    link.clock = (now_ns, now_ns + 7 * MS, now_ns + 2 * MS)
    link._datagrams = None
    link.send = lambda frame: True  # type: ignore[method-assign]
    world.links.direct = cast(FakeLink, link)
    world.clocks.pass_ms(2)
    world.pairs.tick()
    row = world.row()
    assert row["clock_offset_ms"] == pytest.approx(6, abs=0.1)
    assert row["clock_error_ms"] == pytest.approx(1, abs=0.1)
    assert row["clock_likely_error_ms"] < row["clock_error_ms"]


@pytest.mark.parametrize("via", [EXPRESS, "r1"])
def test_what_went_over_a_connection_that_was_replaced_is_one_failure_of_the_path(
    world: World, via: str
) -> None:
    """A direct link that gave way to another one, or a router's that was made anew, within the
    time it takes to look."""
    routing = world.routing("one", "duplicate")
    world.send(routing)
    world.set_clock()
    world.clocks.pass_ms(20)
    world.report(via, 10)
    before = world.path(via)["delays"]
    for _ in range(100):
        world.send(routing)
        world.clocks.pass_ms(5)
    arrived = world.sent[via] - 60
    if via == EXPRESS:
        world.links.direct = FakeLink()
    else:
        world.links.r1.connects += 1
    world.links.generation += 1
    world.send(routing)
    assert world.path(via)["outstanding_ms"] == 0
    world.pairs.on_links_changed()
    world.clocks.pass_ms(20)
    world.pairs.on_arrivals(messages.Arrivals(OTHER, world.clocks.wall_ns, arrived, (10_000,)), via)
    path = world.path(via)
    assert path["up"] and path["lost"] == 0
    assert path["delays"] == before + 2


def test_strangers_are_ignored_and_unused_pairs_forgotten(world: World) -> None:
    stranger = Peer("e-z", 3)
    world.pairs.on_answer(ProbeAnswer(stranger, 1, 2), "r1")
    world.pairs.on_arrivals(messages.Arrivals(stranger, 1, 1, (1,)), "r1")
    world.send(world.routing("one"))
    world.pairs.on_arrivals(messages.Arrivals(OTHER, 1, 1, (1,)), "r2")
    world.pairs.on_answer(ProbeAnswer(OTHER, 1, 2), "r1")  # nobody has asked
    assert world.row()["clock_offset_ms"] is None
    assert [path["via"] for path in world.row()["paths"]] == ["express", "r1"]
    world.clocks.pass_ms(31_000)
    world.pairs.tick()
    assert world.pairs.summary() == []


# ---------------------------------------------------------------- what receivers report


def test_arrivals_are_reported_together_by_link_and_life(clocks: Clocks) -> None:
    asked: list[int] = []
    receiver = Arrivals(OTHER, lambda: asked.append(1))
    near, far = FakeLink(), FakeLink()

    def note(origin: Peer, via: str, link: FakeLink, age_ms: int) -> None:
        sent_ns = clocks.wall_ns - age_ms * MS
        receiver.note(origin, via, cast(Link, link), sent_ns, clocks.wall_ns)

    def report() -> None:
        for link, frames in receiver.reports().items():
            for frame in frames:
                link.send(frame)

    for age_ms in (5, 6):
        note(ME, EXPRESS, near, age_ms)
    note(ME, "r1", far, 30)
    assert len(asked) == 3
    report()
    (told,) = near.messages()
    assert (told.subscriber, told.total, told.delays_us) == (OTHER, 2, (5000, 6000))
    assert told.newest_ns == clocks.wall_ns - 5 * MS
    note(ME, EXPRESS, near, 3_600_000)  # its clock was set back
    report()
    assert near.messages()[1].newest_ns == clocks.wall_ns - 3_600_000 * MS
    assert far.messages()[0].delays_us == (30_000,)
    # Thousands in one report: the later ones are told, and all are counted.
    for _ in range(2000):
        note(ME, EXPRESS, near, 7)
    report()
    told = near.messages()[2]
    assert told.total == 2003
    assert 0 < len(told.delays_us) <= 1000
    # Another life of the same edge counts from one.
    note(Peer(ME.edge, 9), EXPRESS, near, 8)
    report()
    assert near.messages()[3].total == 1
    assert not receiver.reports()


def test_a_probe_is_answered_and_tells_of_the_clocks(clocks: Clocks) -> None:
    receiver = Arrivals(OTHER, bool)
    link = FakeLink()
    assert receiver.clock_offset_ns(ME.edge) == 0
    receiver.answer(Probe(ME, 5, 0, 0), cast(Link, link))
    assert receiver.clock_offset_ns(ME.edge) == 0  # it said that it knows nothing
    receiver.answer(Probe(ME, 6, 3 * MS, MS), cast(Link, link))
    assert receiver.clock_offset_ns(ME.edge) == 3 * MS
    assert link.messages()[1] == ProbeAnswer(OTHER, 6, clocks.wall_ns)


def test_what_went_ahead_is_judged_by_when_it_is_accounted_for(world: World) -> None:
    """Nothing has confirmed it since: the next one is to go another way."""
    routing = world.routing("one", "adaptive")
    edges, generation = (OTHER.edge,), world.links.generation
    world.send(routing)
    world.set_clock()
    for via, delay_ms in (("r1", 30), (EXPRESS, 10)):
        world.learn(via, delay_ms)
    for _ in range(300):
        if world.send(routing) == [(EXPRESS, EXPRESS)]:
            break
        world.clocks.pass_ms(10)
        for via, delay_ms in (("r1", 30), (EXPRESS, 10)):
            world.report(via, delay_ms)
    assert {group.path for group in routing.last_plan} == {EXPRESS}
    sent_ns = world.clocks.wall_ns
    world.clocks.pass_ms(200)
    now_ns, now_s = world.clocks.wall_ns, world.clocks.now_s
    routing.sent(edges, sent_ns, sent_ns, now_ns, now_s, generation, 1, 1, 64)
    assert ROUTED in {group.path for group in routing.last_plan}
