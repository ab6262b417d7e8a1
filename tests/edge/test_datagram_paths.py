"""Which topics go over datagrams, when no longer, and what a lost one means for probes and copies,
over links that are not there.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import cast

import pytest

from edge_broker import hedges as hedges_module
from edge_broker.known_path import OpenPath, Path
from edge_broker.links import DATAGRAMS, EXPRESS, ROUTED, Link, Way
from gateway.tunnel import messages
from gateway.tunnel.datagrams import DatagramLink
from gateway.tunnel.express_link import ExpressLink
from gateway.tunnel.wire_reader import WireReader
from tests.edge.path_parts import OTHER, FakeLink, World
from tests.tunnel.parts import until


class FakeDatagrams(FakeLink):
    """Pass, and lose one in a hundred."""

    is_up = True
    overflows = 0
    within_s = most_members = 0

    def __init__(self) -> None:
        super().__init__()
        self.sent = self.lost = 0


def lossy_world(world: World) -> FakeDatagrams:
    """Over the direct link, which has datagrams beside it, a third takes three times as long."""
    beside = FakeDatagrams()
    direct = ExpressLink.__new__(ExpressLink)
    direct.is_up, direct.connects, direct.clock = True, 1, None
    direct._datagrams = cast(DatagramLink, beside)
    direct._reader = WireReader(nullcontext())
    direct.send = lambda frame: True  # type: ignore[method-assign]
    world.links.direct = cast(FakeLink, direct)
    world.send(world.routing("one"))
    world.set_clock()
    for number in range(600):
        world.clocks.pass_ms(10)
        world.report(EXPRESS, 150 if number % 3 == 0 else 50)
    world.pairs.tick()
    return beside


def test_topics_that_adapt_go_over_datagrams_where_the_direct_link_is_held_up(
    world: World,
) -> None:
    beside = lossy_world(world)
    assert world.row()["datagrams"] == "losses hold up what goes over TCP"
    adaptive, both = world.routing("one"), world.routing("one", "duplicate")
    where = (OTHER.edge, world.links.generation)
    (direct, _) = adaptive.paths(*where)
    assert (direct.way.name, direct.way.via) == (EXPRESS, DATAGRAMS)
    assert direct.way.link is cast(Link, beside)
    assert direct.path.quality.is_repaired
    assert [each.way.via for each in both.paths(*where)] == [EXPRESS, "r1"]
    assert beside.within_s == pytest.approx(0.0025)
    assert beside.most_members > 1


def test_a_topic_with_large_batches_stays_on_tcp_for_a_while(world: World) -> None:
    lossy_world(world)
    routing = world.routing("one")
    vias = []
    for size in (100, 20_000, 100, 100):
        now_ns, now_s = world.clocks.wall_ns, world.clocks.now_s
        edges, generation = (OTHER.edge,), world.links.generation
        routing.plan(edges, now_ns, now_ns, now_s, generation)
        routing.sent(edges, now_ns, now_ns, now_ns, now_s, generation, 1, 1, size)
        vias.append(routing.paths(OTHER.edge, world.links.generation)[0].way.via)
        world.clocks.pass_ms(6_000)
    assert vias == [DATAGRAMS, EXPRESS, EXPRESS, DATAGRAMS]


def test_when_datagrams_pass_no_longer_the_direct_link_is_used_as_before(world: World) -> None:
    beside = lossy_world(world)
    routing = world.routing("one")
    routing.paths(OTHER.edge, world.links.generation)
    beside.is_up = False
    before = world.pairs.generation
    world.pairs.tick()
    assert world.pairs.generation == before + 1
    assert routing.paths(OTHER.edge, world.links.generation)[0].way.via == EXPRESS
    assert DATAGRAMS not in world.pairs.pair(OTHER.edge).paths, "it is not probed for ever"


def test_a_lost_probe_over_datagrams_is_forgotten_when_what_was_sent_after_it_arrives(
    world: World,
) -> None:
    lossy_world(world)
    (direct, _) = world.routing("one").paths(OTHER.edge, world.links.generation)
    direct.path.note_probe(world.clocks.wall_ns)
    for number in range(1, 4):
        world.clocks.pass_ms(50)
        sent_ns = world.clocks.wall_ns
        direct.path.note_batch(sent_ns)
        world.clocks.pass_ms(1)
        told = messages.Arrivals(OTHER, sent_ns, number, (50_000,))
        world.pairs.on_arrivals(told, DATAGRAMS)
        assert direct.path.outstanding_s(world.clocks.wall_ns) == 0.0


@pytest.mark.parametrize(("is_repaired", "copies"), [(False, []), (True, [1])])
def test_a_copy_that_waits_is_sent_although_a_later_datagram_has_arrived(
    is_repaired: bool, copies: list[int]
) -> None:
    """Over TCP that means that the earlier one has, too."""
    sent = []

    def send_copy(edge: str, number: int, second: OpenPath, now_ns: int) -> bool:
        is_needed = number == 1  # the other one was acknowledged
        if is_needed:
            sent.append(number)
        return is_needed

    async def test() -> None:
        hedges = hedges_module.Hedges(send_copy)
        first = Path(EXPRESS)
        first.quality.is_repaired = is_repaired
        second = OpenPath(Path(ROUTED), cast(Way, None))
        for number in (1, 2):
            first.note_batch(number * 1000)
            hedges.arm(first, number * 1000, OTHER.edge, number, second, 0.02)
        first.confirm(2000, 1, 3000, 0.0)
        await until(lambda: not hedges._waiting)

    asyncio.run(test())
    assert sent == copies
