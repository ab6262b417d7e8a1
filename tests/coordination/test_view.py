"""The view follows the tree, whatever happens to watches, records and the server."""

from __future__ import annotations

import asyncio
import itertools
import logging

import pytest

from gateway.coordination import advice
from gateway.coordination.embedded import EmbeddedZooKeeper
from gateway.coordination.nodes import Create, Delete, Operation
from gateway.coordination.paths import FabricPaths
from gateway.coordination.records import encode_assignment, encode_router
from gateway.coordination.view import FabricWatcher
from gateway.coordination.zookeeper import ZooKeeper
from gateway.errors import CoordinationError, CoordinationLost
from gateway.model import (
    Advice,
    Advised,
    Assignment,
    Direction,
    FabricView,
    RouterInfo,
    RouterLoad,
    TopicView,
)
from tests.coordination.parts import (
    allow,
    announced,
    announcement,
    edge_record,
    eventually,
    expire,
    forbid,
    running,
    session,
)

pytestmark = pytest.mark.zookeeper


async def make_topics(zk: ZooKeeper, paths: FabricPaths, *topics: str) -> None:
    for path in paths.skeleton:
        if await zk.get(path) is None:
            await zk.create(path, parents=True)
    for start in range(0, len(topics), 100):
        operations: list[Operation] = []
        for topic in topics[start : start + 100]:
            operations += [
                Create(paths.topic(topic)),
                Create(paths.direction(topic, Direction.PUB)),
                Create(paths.direction(topic, Direction.SUB)),
            ]
        await zk.transaction(operations)


async def create_all(zk: ZooKeeper, nodes: dict[str, bytes]) -> None:
    await zk.transaction([Create(path, data, True) for path, data in nodes.items()])


def test_everything_appears_changes_and_goes(zookeeper: EmbeddedZooKeeper, fabric: str) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk:
            paths = zk.paths
            watcher = FabricWatcher(zk, paths)
            views: list[FabricView] = []
            watcher.on_change(views.append)
            watcher.follow(None)
            # The fabric does not exist yet.
            async with running(watcher.run()):
                await eventually(lambda: not watcher.malformed)
                await eventually(lambda: _is(zk, paths.edges))
                await zk.create_ephemeral(paths.edge("e1"), edge_record("e1"))
                await eventually(lambda: "e1" in watcher.view.edges)
                router = RouterInfo("r1", "h:1")
                await zk.create_ephemeral(paths.router("r1"), encode_router(router))
                await eventually(lambda: watcher.view.routers == {"r1": router})
                busy = RouterInfo("r1", "h:1", load=RouterLoad(5.0))
                await zk.set(paths.router("r1"), encode_router(busy))
                await eventually(lambda: watcher.view.routers == {"r1": busy})

                await make_topics(zk, paths, "rt/x")
                await eventually(lambda: "rt/x" in watcher.view.topics)
                first = announcement("rt/x")
                await create_all(zk, announced(paths, first))
                await eventually(lambda: watcher.view.topics["rt/x"].pubs == (first,))
                second = announcement("rt/x", type_name="U")
                await zk.transaction(
                    [
                        *(Delete(path) for path in announced(paths, first)),
                        *(Create(p, d, True) for p, d in announced(paths, second).items()),
                    ]
                )
                await eventually(lambda: watcher.view.topics["rt/x"].pubs == (second,))
                assert not any(view.topics and not view.edges for view in views)
                given = Assignment("r1", None, 7)
                await zk.set(paths.topic("rt/x"), encode_assignment(given))
                await eventually(lambda: watcher.view.topics["rt/x"].assignment == given)
                assert watcher.view.topics["rt/x"].version == 1

                advised = Advice((Advised("rt/x", avoid="r1"),))
                kept, version = await advice.read(zk)
                assert kept == Advice()
                assert await advice.write(zk, advised, version)
                assert not await advice.write(zk, Advice(), version), "it changed meanwhile"
                await eventually(lambda: watcher.view.advice == advised)
                await zk.delete(paths.advice)
                await eventually(lambda: watcher.view.advice == Advice())

                # A replaced edge is another edge.
                await zk.transaction(
                    [
                        Delete(paths.edge("e1")),
                        Create(paths.edge("e1"), edge_record("e1", 2), True),
                    ]
                )
                await eventually(lambda: watcher.view.edges["e1"].incarnation == 2)

                for path in announced(paths, second):
                    await zk.delete(path)
                await zk.transaction(
                    [
                        Delete(paths.direction("rt/x", Direction.PUB)),
                        Delete(paths.direction("rt/x", Direction.SUB)),
                        Delete(paths.topic("rt/x")),
                    ]
                )
                await eventually(lambda: not watcher.view.topics)
                await zk.delete(paths.edge("e1"))
                await zk.delete(paths.router("r1"))
                await eventually(lambda: watcher.view == FabricView())
            assert all(one != other for one, other in itertools.pairwise(views))

    asyncio.run(scenario())


async def _is(zk: ZooKeeper, path: str) -> bool:
    return await zk.get(path) is not None


def test_only_followed_topics_are_read(zookeeper: EmbeddedZooKeeper, fabric: str) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk:
            paths = zk.paths
            await make_topics(zk, paths, "a", "b")
            watcher = FabricWatcher(zk, paths)
            watcher.follow(frozenset({"a", "later"}))
            async with running(watcher.run()):
                await eventually(lambda: set(watcher.view.topics) == {"a"})
                await make_topics(zk, paths, "later")
                await eventually(lambda: set(watcher.view.topics) == {"a", "later"})
                said = announcement("later")
                await create_all(zk, announced(paths, said))
                await eventually(lambda: watcher.view.topics["later"].pubs == (said,))
                watcher.follow(frozenset({"b"}))
                await eventually(lambda: set(watcher.view.topics) == {"b"})
                watcher.follow(frozenset({"later"}))
                await eventually(lambda: set(watcher.view.topics) == {"later"})
                assert watcher.view.topics["later"].pubs == (said,)

    asyncio.run(scenario())


def test_a_topic_followed_again_at_once_is_read_afresh(
    zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    """Nobody watched it meanwhile, and its watches of before may still mark its paths dirty: they
    are looked at before it is known that it is followed."""

    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk:
            paths = zk.paths
            await make_topics(zk, paths, "t", "other")
            watcher = FabricWatcher(zk, paths, full_pass_s=3600.0)
            topics = frozenset({"t", "other"})
            before: dict[str, bytes] = {}
            async with running(watcher.run()):
                for number in range(60):
                    said = announcement("t", incarnation=number + 1)
                    nodes = announced(paths, said)
                    watcher.follow(topics)
                    await eventually(lambda: "t" in watcher.view.topics)
                    watcher.follow(frozenset())
                    if number % 2:
                        await eventually(lambda: not watcher.view.topics)
                    await zk.transaction(
                        [
                            *(Delete(path) for path in before),
                            *(Create(path, data, True) for path, data in nodes.items()),
                        ]
                    )
                    watcher.follow(topics)
                    await eventually(
                        lambda said=said: (
                            "t" in watcher.view.topics and watcher.view.topics["t"].pubs == (said,)
                        ),
                        timeout_s=5.0,
                    )
                    before = nodes

    asyncio.run(scenario())


def test_topics_that_come_and_go_leave_no_watches(
    zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk:
            paths = zk.paths
            await make_topics(zk, paths, "steady")
            watcher = FabricWatcher(zk, paths)
            watcher.follow(frozenset({"steady"}))
            async with running(watcher.run()):
                await eventually(lambda: "steady" in watcher.view.topics)
                before = _watch_count(zk)
                for number in range(20):
                    topic = f"passing-{number}"
                    watcher.follow(frozenset({"steady", topic, f"never-{number}"}))
                    await make_topics(zk, paths, topic)
                    await eventually(lambda topic=topic: topic in watcher.view.topics)
                    watcher.follow(frozenset({"steady"}))
                    await eventually(lambda: set(watcher.view.topics) == {"steady"})
                    await watcher.refresh()
                    await zk.transaction(
                        [
                            Delete(paths.direction(topic, Direction.PUB)),
                            Delete(paths.direction(topic, Direction.SUB)),
                            Delete(paths.topic(topic)),
                        ]
                    )
                # The watch on topics/ may still be armed: one, not twenty.
                await eventually(lambda: _watch_count(zk) <= before + 1)

    asyncio.run(scenario())


def _watch_count(zk: ZooKeeper) -> int:
    """Callbacks that kazoo keeps for the server's watches of this session."""
    client = zk._client
    kept = [*client._child_watchers.values(), *client._data_watchers.values()]
    return sum(len(watchers) for watchers in kept)


def test_a_lost_watch_is_repaired_by_the_periodic_pass(
    zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk:
            paths = zk.paths
            await make_topics(zk, paths, *(f"t{number}" for number in range(12)))
            await zk.create_ephemeral(paths.router("r1"), encode_router(RouterInfo("r1", "h:1")))
            watcher = FabricWatcher(zk, paths, full_pass_s=0.5)
            watcher.follow(None)
            async with running(watcher.run()):
                await eventually(lambda: len(watcher.view.topics) == 12)
                for topic in ("t0", "t7", "t11"):
                    said = announcement(topic)
                    zk._client._child_watchers.clear()
                    zk._client._data_watchers.clear()
                    await create_all(zk, announced(paths, said))
                    await eventually(
                        lambda topic=topic, said=said: watcher.view.topics[topic].pubs == (said,)
                    )
                zk._client._data_watchers.clear()
                await zk.set(paths.router("r1"), encode_router(RouterInfo("r1", "h:2")))
                await eventually(lambda: watcher.view.routers["r1"].address == "h:2")

    asyncio.run(scenario())


def test_malformed_records_are_counted_told_once_and_skipped(
    zookeeper: EmbeddedZooKeeper, fabric: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk:
            paths = zk.paths
            await make_topics(zk, paths, "t", "bad")
            pub = paths.direction("t", Direction.PUB)
            (good_path, good), *_ = announced(paths, announcement("t", "e2")).items()
            name = good_path.rpartition("/")[2]
            for path, data in {
                paths.edge("e1"): b"\xff",
                paths.edge("e2"): edge_record("other"),
                paths.edge("e3"): edge_record("e3"),
                f"{paths.edges}/not an id": b"{}",
                paths.router("r1"): b'{"v": 9}',
                f"{paths.topics}/%zz": b"",
                f"{pub}/e1~000000000000": b"nonsense",
                f"{pub}/no-name": good,
                f"{pub}/e3~{name.partition('~')[2]}": good,
                good_path: good,
            }.items():
                await zk.create(path, data)
            await zk.set(paths.topic("bad"), b"[]")
            watcher = FabricWatcher(zk, paths, full_pass_s=0.2)
            watcher.follow(None)
            async with running(watcher.run()):
                await eventually(lambda: len(watcher.view.topics) == 2)
                view = watcher.view
                assert set(view.edges) == {"e3"}
                assert view.routers == {}
                assert view.topics["t"].pubs == (announcement("t", "e2"),)
                assert view.topics["bad"].assignment is None
                assert view.topics["bad"].version == 1
                counts = {"edge": 3, "router": 1, "topic": 1, "assignment": 1, "announcement": 3}
                assert watcher.malformed == counts
                # Periodic passes neither count nor tell again.
                await watcher.refresh()
                await watcher.refresh()
                assert watcher.malformed == counts
                # A mended record counts as good, and as bad again when it breaks again.
                await zk.set(paths.edge("e1"), edge_record("e1"))
                await eventually(lambda: "e1" in watcher.view.edges)
                await zk.set(paths.edge("e1"), b"\xff")
                await eventually(lambda: watcher.malformed["edge"] == 4)

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    said = [record.message for record in caplog.records]
    lines = [line for line in said if "cannot be understood" in line]
    assert len(lines) == 10
    assert all("\n" not in line for line in lines)


def test_a_node_that_may_not_be_read_costs_nothing_but_itself(
    zookeeper: EmbeddedZooKeeper, fabric: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk:
            paths = zk.paths
            await make_topics(zk, paths, "t", "closed")
            early, late = announcement("t", "e1"), announcement("t", "e2")
            (early_path,) = announced(paths, early)
            nodes = {
                paths.edge("x"): edge_record("x"),
                paths.router("x"): encode_router(RouterInfo("x", "h:1")),
                paths.topic("closed"): b"",
                **announced(paths, early),
            }
            await create_all(zk, {path: data for path, data in nodes.items() if data})
            await forbid(zk, *nodes)
            watcher = FabricWatcher(zk, paths, full_pass_s=0.5)
            watcher.follow(None)
            # As a leader does that begins its term.
            assert await watcher.refresh() == FabricView(topics={"t": TopicView("t")})
            assert watcher.is_read
            counts = {"edge": 1, "router": 1, "assignment": 1, "announcement": 1}
            assert watcher.malformed == counts
            async with running(watcher.run()):
                await zk.create_ephemeral(paths.edge("e2"), edge_record("e2"))
                await create_all(zk, announced(paths, late))
                await eventually(lambda: set(watcher.view.edges) == {"e2"})
                await eventually(lambda: watcher.view.topics["t"].pubs == (late,))
                # What was read before stays when it may not be read again.
                subs = paths.direction("t", Direction.SUB)
                await forbid(zk, paths.edge("e2"), subs)
                await eventually(lambda: watcher.malformed["announcement"] == 2)
                await eventually(lambda: watcher.malformed["edge"] == 2)
                assert set(watcher.view.edges) == {"e2"}
                # It is tried again now and then, but neither counted nor told again.
                await watcher.refresh()
                assert watcher.malformed == {**counts, "edge": 2, "announcement": 2}
                await allow(zk, *nodes, paths.edge("e2"), subs)
                await eventually(lambda: set(watcher.view.edges) == {"e2", "x"})
                await eventually(lambda: set(watcher.view.routers) == {"x"})
                await eventually(lambda: set(watcher.view.topics) == {"t", "closed"})
                await eventually(lambda: watcher.view.topics["t"].pubs == (early, late))
                # It counts again when it is closed again.
                await zk.delete(early_path)
                await eventually(lambda: watcher.view.topics["t"].pubs == (late,))
                await create_all(zk, announced(paths, announcement("t", direction=Direction.SUB)))
                await eventually(lambda: len(watcher.view.topics["t"].subs) == 1)
                await forbid(zk, subs)
                await eventually(lambda: watcher.malformed["announcement"] == 3)

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert sum("may not be read" in record.message for record in caplog.records) == 7


def test_without_a_directory_the_rest_is_followed_but_not_all_is_known(
    zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk:
            paths = zk.paths
            await make_topics(zk, paths)
            await zk.create_ephemeral(paths.router("r1"), encode_router(RouterInfo("r1", "h:1")))
            await forbid(zk, paths.routers)
            watcher = FabricWatcher(zk, paths, full_pass_s=0.5)
            async with running(watcher.run()):
                await zk.create_ephemeral(paths.edge("e1"), edge_record("e1"))
                await eventually(lambda: set(watcher.view.edges) == {"e1"})
                with pytest.raises(CoordinationError, match=paths.routers):
                    await watcher.refresh()
                assert not watcher.is_read
                await allow(zk, paths.routers)
                await eventually(lambda: set(watcher.view.routers) == {"r1"})
                assert watcher.is_read

    asyncio.run(scenario())


def test_the_last_view_stays_while_zookeeper_is_away(
    private_zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    async def scenario() -> None:
        async with session(private_zookeeper, fabric, 2.0) as zk:
            paths = zk.paths
            await make_topics(zk, paths, "t")
            await zk.set(paths.topic("t"), encode_assignment(Assignment("r1", None, 1)))
            watcher = FabricWatcher(zk, paths)
            watcher.follow(None)
            async with running(watcher.run()):
                await eventually(lambda: "t" in watcher.view.topics)
                before = watcher.view
                private_zookeeper.stop()
                await eventually(lambda: not zk.is_connected)
                with pytest.raises(CoordinationLost):
                    await watcher.refresh()
                assert watcher.view is before
                again = EmbeddedZooKeeper(private_zookeeper.port, private_zookeeper.data_dir)
                again.start()
                try:
                    await eventually(lambda: zk.is_connected)
                    # The watches are back as well.
                    await zk.set(paths.topic("t"), encode_assignment(Assignment("r2", None, 2)))
                    await eventually(
                        lambda: watcher.view.topics["t"].assignment == Assignment("r2", None, 2)
                    )
                finally:
                    await zk.stop()
                    again.stop()

    asyncio.run(scenario())


def test_watches_survive_an_expired_session(zookeeper: EmbeddedZooKeeper, fabric: str) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk, session(zookeeper, fabric) as other:
            await make_topics(zk, zk.paths, "t")
            watcher = FabricWatcher(zk, zk.paths)
            watcher.follow(frozenset({"t"}))
            async with running(watcher.run()):
                await eventually(lambda: "t" in watcher.view.topics)
                before = zk.session_id
                await expire(zk)
                await eventually(lambda: zk.is_connected and zk.session_id != before)
                said = announcement("t")
                await create_all(other, announced(zk.paths, said))
                await eventually(lambda: watcher.view.topics["t"].pubs == (said,))

    asyncio.run(scenario())


def test_a_thousand_topics_are_read_quickly(zookeeper: EmbeddedZooKeeper, fabric: str) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk:
            topics = [f"rt/topic_{number}" for number in range(1000)]
            await make_topics(zk, zk.paths, *topics)
            watcher = FabricWatcher(zk, zk.paths)
            watcher.follow(frozenset(topics))
            loop = asyncio.get_running_loop()
            begun = loop.time()
            async with running(watcher.run()):
                await eventually(lambda: len(watcher.view.topics) == 1000)
                assert loop.time() - begun < 10
                said = announcement(topics[500])
                changed = loop.time()
                await create_all(zk, announced(zk.paths, said))
                await eventually(lambda: watcher.view.topics[topics[500]].pubs == (said,))
                print(f"read in {changed - begun:.2f} s, change in {loop.time() - changed:.3f} s")

    asyncio.run(scenario())
