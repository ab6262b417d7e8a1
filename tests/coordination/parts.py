"""What the coordination tests share: sessions, waiting for a condition, running tasks, samples."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from gateway.coordination.embedded import EmbeddedZooKeeper
from gateway.coordination.paths import FabricPaths
from gateway.coordination.records import digest, encode_announcement, encode_edge
from gateway.coordination.zookeeper import ZooKeeper
from gateway.model import Announcement, Direction, EdgeInfo, Profile, Qos

PATIENCE_S = 20.0


@asynccontextmanager
async def session(
    server: EmbeddedZooKeeper, fabric: str, timeout_s: float = 4.0
) -> AsyncIterator[ZooKeeper]:
    zk = ZooKeeper(server.address, fabric, session_timeout_s=timeout_s)
    await zk.start(PATIENCE_S)
    try:
        yield zk
    finally:
        await zk.stop()


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(work, name="under-test")
    try:
        yield task
    finally:
        if not task.done():
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled() and task.exception() is not None:
            print("the task under test ended with", repr(task.exception()))


async def eventually(
    condition: Callable[[], bool] | Callable[[], Awaitable[bool]], timeout_s: float = PATIENCE_S
) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        answer = condition()
        if answer if isinstance(answer, bool) else await answer:
            return
        assert loop.time() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.005)


async def expire(zk: ZooKeeper) -> None:
    """Ends the session at the server, as if its timeout had passed, by closing it from a second
    connection that resumes it."""
    identity = zk._client.client_id

    def close() -> None:
        thief = KazooClient(hosts=zk.hosts, client_id=identity)
        thief.start(PATIENCE_S)
        thief.stop()
        thief.close()

    await asyncio.to_thread(close)


async def forbid(zk: ZooKeeper, *paths: str) -> None:
    """Nobody may read these nodes any more, or list what is below them."""
    for path in paths:
        acl = [make_acl("world", "anyone", admin=True)]
        await asyncio.to_thread(zk._client.set_acls, path, acl)


async def allow(zk: ZooKeeper, *paths: str) -> None:
    """Everybody may do everything with them again."""
    for path in paths:
        await asyncio.to_thread(zk._client.set_acls, path, OPEN_ACL_UNSAFE)


def edge_record(edge: str, incarnation: int = 1, lan: str = "a") -> bytes:
    return encode_edge(EdgeInfo(edge, lan, incarnation))


def announcement(
    topic: str,
    edge: str = "e1",
    direction: Direction = Direction.PUB,
    incarnation: int = 1,
    type_name: str = "T",
) -> Announcement:
    profile = Profile(type_name, None, False, Qos())
    return Announcement(edge, "a", incarnation, topic, direction, ((profile, ("0" * 32,)),))


def announced(paths: FabricPaths, *announcements: Announcement) -> dict[str, bytes]:
    """The nodes that carry these announcements."""
    nodes = {}
    for said in announcements:
        data = encode_announcement(said)
        nodes[paths.announcement(said.topic, said.direction, said.edge, digest(data))] = data
    return nodes
