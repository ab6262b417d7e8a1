"""What a process declares stands in the tree, and only that, whatever happens to its session."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from gateway.coordination.embedded import EmbeddedZooKeeper
from gateway.coordination.nodes import Delete, SessionState
from gateway.coordination.registrar import Registrar
from gateway.coordination.view import FabricWatcher
from gateway.coordination.zookeeper import ZooKeeper
from gateway.errors import CoordinationError
from gateway.model import Direction, FabricView
from tests.coordination.parts import (
    PATIENCE_S,
    announced,
    announcement,
    edge_record,
    eventually,
    expire,
    running,
    session,
)

pytestmark = pytest.mark.zookeeper


def nodes_of(
    zk: ZooKeeper, *topics: str, edge: str = "e1", incarnation: int = 1
) -> dict[str, bytes]:
    said = [announcement(topic, edge, incarnation=incarnation) for topic in topics]
    return {
        zk.paths.edge(edge): edge_record(edge, incarnation),
        **announced(zk.paths, *said),
    }


async def standing(zk: ZooKeeper, nodes: dict[str, bytes]) -> set[int | None]:
    """The sessions that hold these nodes; None for one that is missing or says something else."""
    found = await asyncio.gather(*(zk.get(path) for path in nodes))
    return {
        there[1].ephemeral_owner if there and there[0] == data else None
        for there, data in zip(found, nodes.values(), strict=True)
    }


def test_nodes_come_change_and_go(zookeeper: EmbeddedZooKeeper, fabric: str) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk, session(zookeeper, fabric) as other:
            registrar = Registrar(zk, zk.paths, zk.paths.edge("e1"))
            nodes = nodes_of(zk, "a", "b/c", "..")
            registrar.declare(nodes)
            async with running(registrar.run()):
                await registrar.settled(PATIENCE_S)
                assert await standing(other, nodes) == {zk.session_id}

                fewer = {**nodes_of(zk, "a"), zk.paths.edge("e1"): edge_record("e1", lan="b")}
                registrar.declare(fewer)
                await registrar.settled(PATIENCE_S)
                assert await standing(other, fewer) == {zk.session_id}
                assert await other.children(zk.paths.direction("b/c", Direction.PUB)) == []

                await registrar.withdraw()
                assert await standing(other, fewer) == {None}
                assert await other.children(zk.paths.edges) == []

    asyncio.run(scenario())


def test_a_replaced_announcement_is_never_absent(zookeeper: EmbeddedZooKeeper, fabric: str) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk, session(zookeeper, fabric) as other:
            registrar = Registrar(zk, zk.paths, zk.paths.edge("e1"))
            watcher = FabricWatcher(other, zk.paths)
            views: list[FabricView] = []
            watcher.follow(frozenset({"t"}))
            registrar.declare(nodes_of(zk, "t"))
            async with running(registrar.run()), running(watcher.run()):
                await eventually(
                    lambda: "t" in watcher.view.topics and watcher.view.topics["t"].pubs != ()
                )
                watcher.on_change(views.append)
                for number in range(20):
                    said = announcement("t", type_name=f"T{number}")
                    identity = {zk.paths.edge("e1"): edge_record("e1")}
                    registrar.declare(identity | announced(zk.paths, said))
                    await eventually(lambda said=said: watcher.view.topics["t"].pubs == (said,))
            assert all(len(view.topics["t"].pubs) == 1 for view in views)

    asyncio.run(scenario())


def test_three_hundred_topics_are_declared_and_seen_quickly(
    zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk, session(zookeeper, fabric) as other:
            registrar = Registrar(zk, zk.paths, zk.paths.edge("e1"))
            watcher = FabricWatcher(other, zk.paths)
            topics = [f"rt/topic {number}" for number in range(300)]
            watcher.follow(None)
            loop = asyncio.get_running_loop()
            async with running(registrar.run()), running(watcher.run()):
                registrar.declare({zk.paths.edge("e1"): edge_record("e1")})
                await registrar.settled(PATIENCE_S)
                begun = loop.time()
                registrar.declare(nodes_of(zk, *topics))
                await registrar.settled(PATIENCE_S)
                declared = loop.time() - begun
                await eventually(
                    lambda: sum(len(view.pubs) for view in watcher.view.topics.values()) == 300
                )
                seen = loop.time() - begun
                # One more topic must not wait for the others.
                begun = loop.time()
                registrar.declare(nodes_of(zk, *topics, "one more"))
                await registrar.settled(PATIENCE_S)
                one_more = loop.time() - begun
                print(f"declared {declared:.3f} s, seen {seen:.3f} s, one more {one_more:.3f} s")
                assert seen < 5

    asyncio.run(scenario())


def test_everything_is_registered_again_after_an_expired_session(
    zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk:
            registrar = Registrar(zk, zk.paths, zk.paths.edge("e1"))
            nodes = nodes_of(zk, "a", "b")
            registrar.declare(nodes)
            async with running(registrar.run()):
                await registrar.settled(PATIENCE_S)
                before = zk.session_id
                await expire(zk)
                await eventually(lambda: zk.session_id not in (None, before))
                await registrar.settled(PATIENCE_S)
                assert await standing(zk, nodes) == {zk.session_id}

    asyncio.run(scenario())


def test_nodes_of_ones_own_older_session_are_replaced(
    zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    """A client that had to be replaced leaves a session that still lives for a while."""

    async def scenario() -> None:
        async with session(zookeeper, fabric) as old, session(zookeeper, fabric) as zk:
            nodes = nodes_of(zk, "a", "b")
            first = Registrar(old, zk.paths, zk.paths.edge("e1"))
            first.declare(nodes)
            async with running(first.run()):
                await first.settled(PATIENCE_S)
            second = Registrar(zk, zk.paths, zk.paths.edge("e1"))
            second.declare(nodes)
            async with running(second.run()):
                await second.settled(PATIENCE_S)
                assert await standing(zk, nodes) == {zk.session_id}

    asyncio.run(scenario())


def test_a_restarted_process_waits_for_its_former_life_to_expire(
    zookeeper: EmbeddedZooKeeper, fabric: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as old, session(zookeeper, fabric) as zk:
            first = Registrar(old, zk.paths, zk.paths.edge("e1"))
            first.declare(nodes_of(zk, "a", incarnation=1))
            async with running(first.run()):
                await first.settled(PATIENCE_S)
            nodes = nodes_of(zk, "a", incarnation=2)
            second = Registrar(zk, zk.paths, zk.paths.edge("e1"))
            second.declare(nodes)
            async with running(second.run()):
                await eventually(lambda: "previous session of this id to expire" in caplog.text)
                assert await standing(zk, nodes) == {None}
                await old.stop()
                await second.settled(PATIENCE_S)
                assert await standing(zk, nodes) == {zk.session_id}
        assert caplog.text.count("previous session") == 1

    asyncio.run(scenario())


def test_a_second_process_with_the_same_id_is_told_to_choose_another(
    zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as one, session(zookeeper, fabric, 0.5) as other:
            first = Registrar(one, one.paths, one.paths.edge("e1"))
            nodes = nodes_of(one, "a", incarnation=1)
            first.declare(nodes)
            second = Registrar(other, one.paths, one.paths.edge("e1"))
            second.declare(nodes_of(one, "a", incarnation=2))
            async with running(first.run()):
                await first.settled(PATIENCE_S)
                with pytest.raises(CoordinationError, match=r"edge id 'e1' is already in use"):
                    async with asyncio.timeout(PATIENCE_S):
                        await second.run()
                assert await standing(other, nodes) == {one.session_id}

    asyncio.run(scenario())


def test_nodes_that_somebody_deletes_come_back(zookeeper: EmbeddedZooKeeper, fabric: str) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk:
            registrar = Registrar(zk, zk.paths, zk.paths.edge("e1"), verify_s=0.2)
            nodes = nodes_of(zk, "a", "b")
            registrar.declare(nodes)

            async def is_whole() -> bool:
                return await standing(zk, nodes) == {zk.session_id}

            async with running(registrar.run()):
                await registrar.settled(PATIENCE_S)
                for path in nodes:
                    await zk.delete(path)
                await eventually(is_whole)

    asyncio.run(scenario())


def test_a_leader_that_deletes_empty_topics_does_not_disturb(
    zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    """The node of a topic may vanish between two declarations at any moment."""

    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk, session(zookeeper, fabric) as leader:
            paths = zk.paths
            registrar = Registrar(zk, paths, paths.edge("e1"))
            wish = [Delete(paths.direction("t", direction)) for direction in Direction]

            async def clean() -> None:
                while True:
                    try:
                        await leader.transaction([*wish, Delete(paths.topic("t"))])
                    except CoordinationError:
                        await asyncio.sleep(0)

            async with running(registrar.run()), running(clean()):
                for _ in range(20):
                    registrar.declare(nodes_of(zk, "t"))
                    await registrar.settled(PATIENCE_S)
                    assert await standing(zk, nodes_of(zk, "t")) == {zk.session_id}
                    registrar.declare(nodes_of(zk))
                    await registrar.settled(PATIENCE_S)

    asyncio.run(scenario())


def test_one_impossible_record_does_not_hold_up_the_others(
    zookeeper: EmbeddedZooKeeper, fabric: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk:
            registrar = Registrar(zk, zk.paths, zk.paths.edge("e1"))
            nodes = nodes_of(zk, "a", "c")
            huge = zk.paths.announcement("b", Direction.PUB, "e1", "0" * 12)
            registrar.declare({**nodes, huge: b"x" * 1_100_000})

            async def is_whole() -> bool:
                return await standing(zk, nodes) == {zk.session_id}

            async with running(registrar.run()):
                await eventually(is_whole)
                await eventually(lambda: "announcements are incomplete" in caplog.text)
                registrar.declare(nodes)
                await registrar.settled(PATIENCE_S)

    asyncio.run(scenario())


def test_declarations_made_while_the_server_is_away_arrive_later(
    private_zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    """The server is paused for longer than the session timeout; whether the session survives that
    is the server's choice, and the outcome is the same."""

    async def scenario() -> None:
        async with session(private_zookeeper, fabric, 2.0) as zk:
            registrar = Registrar(zk, zk.paths, zk.paths.edge("e1"))
            registrar.declare(nodes_of(zk, "a", "b"))
            assert private_zookeeper.pid is not None
            async with running(registrar.run()):
                await registrar.settled(PATIENCE_S)
                os.kill(private_zookeeper.pid, signal.SIGSTOP)
                await eventually(lambda: zk.state is SessionState.SUSPENDED)
                nodes = nodes_of(zk, "b", "c")
                registrar.declare(nodes)
                loop = asyncio.get_running_loop()
                resume_at = loop.time() + 2.0
                await eventually(lambda: loop.time() > resume_at)
                os.kill(private_zookeeper.pid, signal.SIGCONT)
                await registrar.settled(PATIENCE_S)
                assert await standing(zk, nodes) == {zk.session_id}
                assert await zk.children(zk.paths.direction("a", Direction.PUB)) == []

    asyncio.run(scenario())


def test_withdrawing_while_the_server_is_away_is_bounded(
    private_zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    async def scenario() -> None:
        async with session(private_zookeeper, fabric, 2.0) as zk:
            registrar = Registrar(zk, zk.paths, zk.paths.edge("e1"))
            registrar.declare(nodes_of(zk, "a"))
            async with running(registrar.run()):
                await registrar.settled(PATIENCE_S)
                private_zookeeper.stop()
                loop = asyncio.get_running_loop()
                begun = loop.time()
                await registrar.withdraw()
                assert loop.time() - begun < 5

    asyncio.run(scenario())
