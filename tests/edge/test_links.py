"""The links an edge holds to real routers on 127.0.0.1, and which one a destination is reached
by.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from edge_broker import links as links_module
from edge_broker.links import Links
from gateway.model import Assignment, FabricView, RouterInfo, TopicView
from gateway.observe.metrics import BrokerMetrics
from gateway.tunnel import messages
from gateway.tunnel.frames import Peer
from gateway.tunnel.tunnel_server import Neighbour, TunnelServer
from tests.tunnel.parts import FABRIC, Edge, hello, run, until


class Router:
    """A tunnel server that notes what it gets and tells who is there."""

    def __init__(self, name: str, port: int = 0) -> None:
        self.frames: list[bytes] = []
        self.server = TunnelServer(
            f"127.0.0.1:{port}",
            router=name,
            fabric=FABRIC,
            version="0",
            on_message=self._note,
            on_change=self._tell,
        )

    def _tell(self) -> None:
        """Every edge hears which are there, as from a routing broker."""
        there = self.server.neighbours.values()
        frame = messages.peers([Peer(each.edge, each.incarnation) for each in there])
        for each in there:
            each.send(frame)

    def _note(self, neighbour: Neighbour, message: bytes) -> None:
        self.frames.append(message)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"


@asynccontextmanager
async def routers(*names: str) -> AsyncIterator[dict[str, Router]]:
    made = {name: Router(name) for name in names}
    for router in made.values():
        await router.server.start()
    try:
        yield made
    finally:
        for router in made.values():
            await router.server.close()


class Held:
    """The links under test, and what they reported."""

    def __init__(self) -> None:
        self.changes = 0
        self.failures: list[Exception] = []
        self.links = Links(
            hello("a"),
            express_listen=None,
            express_advertise=None,
            most_express=4,
            on_frame=lambda via, link, frame: None,
            on_change=self._note_change,
            on_drained=lambda: None,
            on_failure=self.failures.append,
            on_garbage=self.failures.append,
            metrics=BrokerMetrics("edge", "0"),
        )

    def _note_change(self) -> None:
        self.changes += 1

    def up(self) -> set[object]:
        return {each["router"] for each in self.links.summary() if each["up"]}


def view(primary: str, standby: str | None) -> FabricView:
    return FabricView(topics={"t": TopicView("t", Assignment(primary, standby, 1))})


def test_the_primary_is_taken_and_the_standby_when_it_is_gone() -> None:
    async def test() -> None:
        async with routers("r1", "r2", "r3") as made:
            held = Held()
            links = held.links
            wanted = {name: router.address for name, router in made.items()}
            links.converge(wanted, {}, view("r2", "r3"))
            async with (
                Edge("b", made["r1"].server.port) as one,
                Edge("b", made["r2"].server.port) as two,
                Edge("b", made["r3"].server.port) as three,
            ):
                for edge in (one, two, three):
                    await edge.up()
                await until(lambda: held.up() == {"r1", "r2", "r3"})
                frame = messages.refused("", to=["b"])

                async def expect(router: str) -> None:
                    await until(
                        lambda: (path := links.path("t", "b")) is not None and path.router == router
                    )
                    before = len(made[router].frames)
                    assert links.send("t", "b", frame)
                    await until(lambda: len(made[router].frames) > before)

                await expect("r2")
                assert links.has_peer("b", 1)
                assert not links.has_peer("b", 2)
                assert not links.send("t", "nobody", frame)
                # The destination leaves the primary, though the link to it lives.
                generation = links.generation
                await two.link.close()
                await expect("r3")
                assert links.generation > generation
                await made["r3"].server.close()
                await expect("r1")
                # Another view decides at once.
                links.converge(wanted, {}, view("r1", None))
                await expect("r1")
            await links.close()
            assert held.failures == []

    run(test())


def test_links_follow_what_is_wanted() -> None:
    async def test() -> None:
        async with routers("r1", "r2") as made:
            held = Held()
            links = held.links
            links.converge({"r1": made["r1"].address}, {}, FabricView())
            await until(lambda: held.up() == {"r1"})
            first = links._links["r1"]
            links.converge(
                {name: router.address for name, router in made.items()}, {}, FabricView()
            )
            await until(lambda: held.up() == {"r1", "r2"})
            assert links._links["r1"] is first
            # r1 moves to where r2 is; nobody wants r2 any longer.
            links.converge({"r1": made["r2"].address}, {}, FabricView())
            assert links._links["r1"] is not first
            await until(lambda: not made["r1"].server.neighbours)
            links.converge({}, {}, FabricView())
            assert links.path("t", "b") is None
            await until(lambda: not made["r2"].server.neighbours)
            await links.close()
            assert held.changes >= 2

    run(test())


def test_a_link_nobody_wants_stays_for_what_is_still_to_be_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And when it is wanted again in time it is the same one."""
    monkeypatch.setattr(links_module, "_LINGER_S", 0.2)
    monkeypatch.setattr(links_module, "_ABSENCE_S", 0.8)

    async def test() -> None:
        async with routers("r1") as made:
            held = Held()
            links = held.links
            wanted = {"r1": made["r1"].address}
            links.converge(wanted, {}, view("r1", None))
            async with Edge("b", made["r1"].server.port) as other:
                await other.up()
                await until(lambda: links.path("t", "b") is not None)
                first = links.path("t", "b")
                idle = FabricView(routers={"r1": RouterInfo("r1", made["r1"].address)})
                links.converge({}, {}, idle)
                links.converge({}, {}, idle)
                assert links.send("t", "b", messages.refused("", to=["b"]))
                await until(lambda: len(made["r1"].frames) > 0)
                links.converge(wanted, {}, view("r1", None))
                await asyncio.sleep(0.4)  # it does not end later, either
                assert links.path("t", "b") is first
                links.converge({}, {}, idle)
                await until(lambda: set(made["r1"].server.neighbours) == {"b"})
                assert links.path("t", "b") is None
                # One to a router that is gone from the tree stays until it had time to come back.
                links.converge(wanted, {}, view("r1", None))
                await until(lambda: links.path("t", "b") is not None)
                second = links.path("t", "b")
                links.converge({}, {}, FabricView())
                await asyncio.sleep(0.4)
                links.converge(wanted, {}, view("r1", None))
                assert links.path("t", "b") is second
                links.converge({}, {}, FabricView())
                assert links.has_peer("b", 1)
                await until(lambda: links.path("t", "b") is None)
                assert not links._lingering
            await links.close()
            assert held.failures == []

    run(test())


def test_a_bug_in_a_callback_is_reported() -> None:
    async def test() -> None:
        async with routers("r1") as made:
            held = Held()

            def bug(*_: object) -> None:
                raise ZeroDivisionError

            held.links._on_frame = bug
            held.links.converge({"r1": made["r1"].address}, {}, FabricView())
            await until(lambda: held.up() == {"r1"})
            made["r1"].server.neighbours["a"].send(messages.refused("", to=["a"]))
            await until(lambda: held.failures)
            assert isinstance(held.failures[0], ZeroDivisionError)
            await held.links.close()

    async def scenario() -> None:
        await asyncio.wait_for(test(), 30)

    run(scenario())
