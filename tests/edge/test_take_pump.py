"""Whose turn it is: topics whose samples wait for company are taken from together, when the first
of them must go, and others as before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from edge_broker.dds.domain import LanDomain, Port
from edge_broker.links import Link
from edge_broker.outflow import Outflow
from edge_broker.source import ReaderSource
from edge_broker.take_pump import TakePump
from gateway.tunnel.frames import StreamKey


class FakeDomain:
    """Readers it wakes for."""

    def __init__(self) -> None:
        self.ignored: set[int] = set()

    def ignore_reader(self, reader: Port) -> None:
        self.ignored.add(reader.ref)

    def heed_reader(self, reader: Port) -> None:
        self.ignored.discard(reader.ref)

    def wait_again(self, after_s: float = 0.0) -> None:
        """Nobody waits."""


class FakeLink:
    def __init__(self, said: list[str]) -> None:
        self._said = said

    def gather(self, is_gathered: bool) -> None:
        self._said.append("gather" if is_gathered else "let go")


class FakeSource(ReaderSource):
    def __init__(self, reader: Port) -> None:
        self.reader = reader


class FakeOutflow:
    """Has something whenever it is asked, and `more` times more than one take gives."""

    def __init__(self, number: int, patience_s: float, said: list[str], link: FakeLink) -> None:
        self.key = StreamKey("e", 1, number)
        self.patience_s = patience_s
        self.has_more = False
        self.more = 0
        self.last_count = 1
        self.last_bytes = 10
        self.last_links = [cast(Link, link)]
        self.is_held = False
        self.is_faulty = False
        self.source = FakeSource(Port(number, number, 0, ("", "", None, "")))
        self._said = said

    def is_blocked(self, now_s: float) -> bool:
        return self.is_held

    def forward(self, now_s: float) -> bool:
        if self.is_faulty:
            raise RuntimeError("a fault")
        self._said.append(f"take {self.key.number}")
        self.has_more = self.more > 0
        self.more -= self.has_more
        return self.has_more


class World:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.link = FakeLink(self.said)
        self.domain = FakeDomain()
        self.readers: dict[int, Any] = {}
        self.pump = TakePump(
            cast(LanDomain, self.domain),
            asyncio.get_running_loop().time,
            self.readers,
            lambda _: None,
        )

    def outflow(self, number: int, patience_s: float) -> FakeOutflow:
        self.readers[number] = object()
        return FakeOutflow(number, patience_s, self.said, self.link)

    def news(self, *outflows: FakeOutflow) -> None:
        for outflow in outflows:
            self.pump.add(cast(Outflow, outflow))
        self.pump.run()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10.0):
            while not condition():
                await asyncio.sleep(0.001)


def run(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def start() -> None:
        await scenario(World())

    asyncio.run(start())


def test_those_that_wait_go_together_when_the_first_must() -> None:
    async def scenario(world: World) -> None:
        patient, hurried, lone = world.outflow(1, 3600), world.outflow(2, 0.02), world.outflow(3, 0)
        world.news(patient)
        world.news(lone)
        assert world.said == ["take 3"]
        world.news(hurried)
        assert world.domain.ignored == {1, 2}
        await world.until(lambda: not world.domain.ignored)
        assert world.said == ["take 3", "gather", "take 1", "take 2", "let go"]

    run(scenario)


def test_the_time_to_wait_begins_with_the_first_sample() -> None:
    """What comes meanwhile does not put it off, and the next wait is a new one."""

    async def scenario(world: World) -> None:
        loop = asyncio.get_running_loop()
        outflow = world.outflow(1, 0.02)
        for _ in range(3):
            world.said.clear()
            began_s = loop.time()
            world.news(outflow)
            while not world.said:
                world.news(outflow)
                await asyncio.sleep(0)
            assert loop.time() - began_s >= 0.02
            assert world.said == ["gather", "take 1", "let go"]

    run(scenario)


def test_what_is_left_after_a_take_does_not_wait_again() -> None:
    async def scenario(world: World) -> None:
        outflow = world.outflow(1, 0.02)
        outflow.more = 3
        world.news(outflow)
        await world.until(lambda: world.said.count("take 1") == 4)
        assert world.said == ["gather", "take 1", "let go", *(["take 1"] * 3)]
        assert cast(Outflow, outflow) not in world.pump

    run(scenario)


@pytest.mark.parametrize("is_gone", [False, True])
def test_one_that_cannot_go_holds_up_no_other_and_goes_as_soon_as_it_can(is_gone: bool) -> None:
    async def scenario(world: World) -> None:
        held, other = world.outflow(1, 0.01), world.outflow(2, 0.02)
        world.news(held, other)
        if is_gone:
            world.pump.discard(cast(Outflow, held))
            del world.readers[1]
        held.is_held = True
        await world.until(lambda: "take 2" in world.said)
        assert world.said == ["gather", "take 2", "let go"]
        assert (cast(Outflow, held) in world.pump) is not is_gone
        held.is_held = False
        world.said.clear()
        world.pump.run()
        assert world.said == ([] if is_gone else ["take 1"])

    run(scenario)


def test_what_has_waited_is_no_flood() -> None:
    """However much came together, it does not wait a second time."""

    async def scenario(world: World) -> None:
        outflows = [world.outflow(number, 0.02) for number in range(1, 30)]
        for outflow in outflows:
            outflow.last_count = 100
        world.news(*outflows)
        await world.until(lambda: not world.domain.ignored)
        assert world.said.count("gather") == 1
        assert not any(cast(Outflow, outflow) in world.pump for outflow in outflows)

    run(scenario)


def test_who_takes_over_a_reader_meanwhile_has_it_when_the_others_go() -> None:
    async def scenario(world: World) -> None:
        old, new = world.outflow(1, 0.02), world.outflow(2, 0.0)
        new.source = old.source
        world.news(old)
        world.pump.discard(cast(Outflow, old))
        world.news(new)
        assert world.said == []
        await world.until(lambda: not world.domain.ignored)
        assert world.said == ["take 2"]

    run(scenario)


def test_nothing_waits_any_longer_when_the_edge_leaves() -> None:
    async def scenario(world: World) -> None:
        waiting, later = world.outflow(1, 3600), world.outflow(2, 3600)
        world.news(waiting)
        world.pump.hurry()
        assert world.said == ["gather", "take 1", "let go"]
        world.news(later)
        assert world.said[-1] == "take 2"
        assert not world.domain.ignored
        assert cast(Outflow, later) not in world.pump

    run(scenario)


def test_a_fault_leaves_no_link_gathering_and_no_reader_unheeded() -> None:
    async def scenario(world: World) -> None:
        faulty, other = world.outflow(1, 3600), world.outflow(2, 3600)
        faulty.is_faulty = True
        world.news(faulty, other)
        with pytest.raises(RuntimeError):
            world.pump.hurry()
        assert world.said == ["gather", "let go"]
        assert not world.domain.ignored

    run(scenario)
