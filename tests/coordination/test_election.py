"""One leader at a time; a deposed one can write nothing."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack

import pytest

from gateway.coordination.assignments import delete_topic, write
from gateway.coordination.election import Election, Leadership, read_leader
from gateway.coordination.embedded import EmbeddedZooKeeper
from gateway.coordination.nodes import Create, SessionState
from gateway.coordination.records import decode_assignment
from gateway.coordination.zookeeper import ZooKeeper
from gateway.errors import CoordinationLost
from gateway.model import Assignment, Direction
from tests.coordination.parts import eventually, expire, running, session

pytestmark = pytest.mark.zookeeper


async def make_topic(zk: ZooKeeper, topic: str) -> None:
    if await zk.get(zk.paths.topics) is None:
        await zk.create(zk.paths.topics, parents=True)
    await zk.transaction(
        [
            Create(zk.paths.topic(topic)),
            *(Create(zk.paths.direction(topic, direction)) for direction in Direction),
        ]
    )


async def assigned(zk: ZooKeeper, topic: str) -> Assignment | None:
    found = await zk.get(zk.paths.topic(topic))
    return decode_assignment(found[0], topic) if found and found[0] else None


def test_the_first_candidate_leads_and_the_next_follows_it(
    zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            sessions = [await stack.enter_async_context(session(zookeeper, fabric)) for _ in "123"]
            paths = sessions[0].paths
            elections = [Election(zk, paths, f"r{n}") for n, zk in enumerate(sessions, 1)]
            assert await read_leader(sessions[0], paths) is None
            tasks = []
            for election in elections:
                tasks.append(await stack.enter_async_context(running(election.run())))
                await eventually(lambda: elections[0].leadership is not None)

            async def all_stand() -> bool:
                return len(await sessions[0].children(paths.leader) or []) == 3

            await eventually(all_stand)
            first = elections[0].leadership
            assert first is not None
            assert [election.leadership for election in elections[1:]] == [None, None]
            assert await read_leader(sessions[1], paths) == ("r1", first.epoch)
            # A follower that leaves changes nothing; a leader that leaves is followed at once.
            tasks[1].cancel()
            await asyncio.gather(tasks[1], return_exceptions=True)
            assert elections[0].leadership == first
            tasks[0].cancel()
            await eventually(lambda: elections[2].leadership is not None)
            last = elections[2].leadership
            assert last is not None
            assert last.epoch > first.epoch
            assert elections[0].leadership is None
            assert await read_leader(sessions[1], paths) == ("r3", last.epoch)

    asyncio.run(scenario())


def test_a_leader_whose_session_expires_stands_again_behind_the_others(
    zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as one, session(zookeeper, fabric) as two:
            first, second = Election(one, one.paths, "r1"), Election(two, one.paths, "r2")
            told: list[Leadership | None] = []
            first.on_change(told.append)
            async with running(first.run()):
                await eventually(lambda: first.leadership is not None)
                async with running(second.run()):

                    async def both_stand() -> bool:
                        return len(await two.children(one.paths.leader) or []) == 2

                    await eventually(both_stand)
                    await expire(one)
                    await eventually(lambda: second.leadership is not None)
                    await eventually(both_stand)
                    await eventually(lambda: one.is_connected)
                    assert first.leadership is None
                await eventually(lambda: first.leadership is not None)
            assert told[1] is None
            assert told[0] is not None
            assert told[2] is not None
            assert told[2].epoch > told[0].epoch

    asyncio.run(scenario())


def test_leadership_pauses_while_the_connection_is_suspended(
    private_zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    async def scenario() -> None:
        async with session(private_zookeeper, fabric, 6.0) as zk:
            election = Election(zk, zk.paths, "r1")
            assert private_zookeeper.pid is not None
            async with running(election.run()):
                await eventually(lambda: election.leadership is not None)
                before = election.leadership
                assert before is not None
                await make_topic(zk, "t")
                os.kill(private_zookeeper.pid, signal.SIGSTOP)
                await eventually(lambda: zk.state is SessionState.SUSPENDED)
                assert election.leadership is None
                with pytest.raises(CoordinationLost):
                    await write(zk, zk.paths, before, [("t", Assignment("r1", None, 1), 0)])
                os.kill(private_zookeeper.pid, signal.SIGCONT)
                await eventually(lambda: election.leadership is not None)

    asyncio.run(scenario())


def test_a_lost_answer_leaves_no_second_candidate(
    zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk:
            election = Election(zk, zk.paths, "r1")
            await zk.create(zk.paths.leader, parents=True)
            # What a request leaves behind whose answer was lost: a node the candidate knows not.
            prefix = f"{zk.paths.leader}/{election._prefix}"
            await zk.create_sequential(prefix, b"")
            await zk.create_sequential(prefix, b"")
            await zk.create(f"{zk.paths.leader}/garbage")
            async with running(election.run()):
                await eventually(lambda: election.leadership is not None)
                assert len(await zk.children(zk.paths.leader) or []) == 2

    asyncio.run(scenario())


def test_assignments_are_written_with_versions(zookeeper: EmbeddedZooKeeper, fabric: str) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk:
            paths = zk.paths
            election = Election(zk, paths, "r1")
            async with running(election.run()):
                await eventually(lambda: election.leadership is not None)
                leadership = election.leadership
                assert leadership is not None
                topics = [f"t/{number}" for number in range(250)]
                await asyncio.gather(*(make_topic(zk, topic) for topic in topics[:1]))
                await asyncio.gather(*(make_topic(zk, topic) for topic in topics[1:]))
                given = Assignment("r1", "r2", leadership.epoch)
                # Somebody wrote one of them meanwhile and another one is gone.
                await zk.set(paths.topic("t/7"), b"", 0)
                changes = [(topic, given, 0) for topic in [*topics, "gone"]]
                loop = asyncio.get_running_loop()
                begun = loop.time()
                written = await write(zk, paths, leadership, changes)
                assert loop.time() - begun < 3
                assert written == set(topics) - {"t/7"}
                assert await assigned(zk, "t/8") == given
                assert await assigned(zk, "t/7") is None
                assert await write(zk, paths, leadership, []) == frozenset()

    asyncio.run(scenario())


def test_a_deposed_leader_writes_nothing(zookeeper: EmbeddedZooKeeper, fabric: str) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk:
            election = Election(zk, zk.paths, "r1")
            await make_topic(zk, "t")
            await make_topic(zk, "empty")
            async with running(election.run()):
                await eventually(lambda: election.leadership is not None)
                old = election.leadership
                assert old is not None
                await zk.delete(old.node)
                change = [("t", Assignment("r1", None, old.epoch), 0)]
                with pytest.raises(CoordinationLost, match="nothing was written"):
                    await write(zk, zk.paths, old, change)
                with pytest.raises(CoordinationLost):
                    await delete_topic(zk, zk.paths, old, "empty")
                assert await assigned(zk, "t") is None
                # It stands again, and what it then writes counts.
                await eventually(lambda: election.leadership not in (None, old))
                new = election.leadership
                assert new is not None
                assert await write(zk, zk.paths, new, change) == {"t"}

    asyncio.run(scenario())


def test_only_empty_topics_are_deleted(zookeeper: EmbeddedZooKeeper, fabric: str) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk:
            paths = zk.paths
            election = Election(zk, paths, "r1")
            for topic in ("empty", "used", "half"):
                await make_topic(zk, topic)
            await zk.create_ephemeral(f"{paths.direction('used', Direction.SUB)}/e~0", b"")
            await zk.delete(paths.direction("half", Direction.PUB))
            async with running(election.run()):
                await eventually(lambda: election.leadership is not None)
                leadership = election.leadership
                assert leadership is not None
                assert await delete_topic(zk, paths, leadership, "empty")
                assert not await delete_topic(zk, paths, leadership, "empty")
                assert not await delete_topic(zk, paths, leadership, "used")
                assert await delete_topic(zk, paths, leadership, "half")
                assert await zk.children(paths.topics) == ["used"]
                assert len(await zk.children(paths.topic("used")) or []) == 2

    asyncio.run(scenario())
