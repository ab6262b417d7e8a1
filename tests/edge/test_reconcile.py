"""The reconciler as a task: how it ends. What it says of itself before it knows the others."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edge_broker.deadlines import DeadlinePolicy
from edge_broker.reconcile import Reconciler
from gateway.config import Express, Topics
from gateway.coordination.embedded import EmbeddedZooKeeper
from gateway.coordination.view import FabricWatcher
from gateway.coordination.zookeeper import ZooKeeper
from gateway.model import Direction, EdgeInfo, Endpoint, Qos
from gateway.plan.ownership import owner
from tests.coordination.parts import edge_record, session


class _Idle(Reconciler):
    """Needs nothing, for it converges nothing."""

    def __init__(self) -> None:
        nothing = cast(Any, None)
        super().__init__(*(nothing,) * 12)
        self.passes = 0

    def converge(self) -> None:
        self.passes += 1


@pytest.mark.parametrize("steps", range(6))
def test_it_ends_when_news_and_its_end_come_together(steps: int) -> None:
    async def scenario() -> None:
        reconciler = _Idle()
        task = asyncio.create_task(reconciler.run(), name="reconcile")
        while reconciler.passes < 1:
            await asyncio.sleep(0)
        # It now rests a moment, then waits for news.
        await asyncio.sleep(0.05)
        reconciler.mark()
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        ended, _ = await asyncio.wait({task}, timeout=5)
        assert ended, "the reconciler goes on for ever"

    asyncio.run(scenario())


class _Lan(Reconciler):
    """An edge whose LAN subscribes to topics; all it does is to declare what it would announce."""

    def __init__(
        self, me: EdgeInfo, topics: list[str], watcher: FabricWatcher, zk: ZooKeeper
    ) -> None:
        self.declared: set[str] = set()
        endpoints = [
            Endpoint(f"{n:032x}", Direction.SUB, topic, "T", None, False, Qos())
            for n, topic in enumerate(topics)
        ]
        idle = SimpleNamespace(
            topics=set,
            express_peers=set,
            converge=lambda *_: None,
            set_local=lambda _: None,
            set_view=lambda _: None,
        )
        super().__init__(
            lambda: me,
            Topics(),
            cast(Any, SimpleNamespace(endpoints=lambda: endpoints)),
            cast(Any, None),
            watcher,
            cast(Any, SimpleNamespace(declare=self._declare)),
            zk.paths,
            cast(Any, idle),
            cast(Any, idle),
            cast(Any, idle),
            cast(Any, SimpleNamespace(unassigned_topics=SimpleNamespace(set=lambda _: None))),
            DeadlinePolicy(Express()),
        )

    def _declare(self, nodes: dict[str, bytes]) -> None:
        self.declared = set(nodes)


@pytest.mark.zookeeper
def test_nothing_is_announced_before_the_other_edges_of_the_lan_are_known(
    zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk:
            me, other = EdgeInfo("e2", "a", 2), EdgeInfo("e1", "a", 1)
            await zk.create(zk.paths.edges, parents=True)
            await zk.create_ephemeral(zk.paths.edge("e1"), edge_record("e1"))
            topics = [f"t{number}" for number in range(10)]
            watcher = FabricWatcher(zk, zk.paths)
            reconciler = _Lan(me, topics, watcher, zk)
            reconciler.converge()
            assert reconciler.declared == {zk.paths.edge("e2")}, "others must know that it comes"
            await watcher.refresh()
            reconciler.converge()
            mine = [topic for topic in topics if owner(topic, "a", [me, other]) == "e2"]
            assert 0 < len(mine) < len(topics)
            assert len(reconciler.declared) == 1 + len(mine)

    asyncio.run(scenario())


@pytest.mark.zookeeper
def test_the_first_edge_of_a_fabric_learns_that_there_is_no_other(
    zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk:
            watcher = FabricWatcher(zk, zk.paths)
            reconciler = _Lan(EdgeInfo("e1", "a", 1), ["t"], watcher, zk)
            watcher.on_change(lambda _: reconciler.converge())
            await watcher.refresh()
            assert len(reconciler.declared) == 2

    asyncio.run(scenario())
