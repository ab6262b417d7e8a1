"""Members of a fabric for the leader's tests: candidates, registered routers and users of topics,
each with a ZooKeeper session of its own, in one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from gateway.coordination.election import Election
from gateway.coordination.nodes import NodeExists
from gateway.coordination.records import (
    decode_assignment,
    digest,
    encode_announcement,
    encode_router,
)
from gateway.coordination.view import FabricWatcher
from gateway.coordination.zookeeper import ZooKeeper
from gateway.model import Announcement, Assignment, Direction, Profile, Qos, RouterInfo
from gateway.observe.metrics import BrokerMetrics
from gateway.plan.assignment import Rebalancing
from gateway.plan.strategies import LeastTopics
from routing_broker.leader import Leader, Patience

QUICK = Patience(empty_grace_s=0.3, assembly_s=0.2, rebalance_interval_s=3600.0)


async def until(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Waits for a condition that other tasks bring about."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def session(
    address: str, fabric: str, *, session_timeout_s: float = 4.0
) -> AsyncIterator[ZooKeeper]:
    zk = ZooKeeper(address, fabric, session_timeout_s=session_timeout_s)
    await zk.start(timeout_s=10.0)
    try:
        yield zk
    finally:
        await zk.stop()


@contextlib.asynccontextmanager
async def running(
    *coroutines: Coroutine[Any, Any, None],
) -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks = [asyncio.create_task(work) for work in coroutines]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


@dataclass
class Candidate:
    zk: ZooKeeper
    election: Election
    watcher: FabricWatcher
    leader: Leader
    metrics: BrokerMetrics


def candidate_of(
    zk: ZooKeeper,
    name: str,
    *,
    patience: Patience = QUICK,
    rebalancing: Rebalancing | None = None,
) -> Candidate:
    election = Election(zk, zk.paths, name)
    watcher = FabricWatcher(zk, zk.paths)
    metrics = BrokerMetrics("router", "test")
    leader = Leader(
        zk,
        election,
        watcher,
        strategy=LeastTopics(),
        rebalancing=rebalancing or Rebalancing(),
        metrics=metrics,
        patience=patience,
    )
    return Candidate(zk, election, watcher, leader, metrics)


@contextlib.asynccontextmanager
async def lone_candidate(
    address: str,
    fabric: str,
    name: str,
    *,
    patience: Patience = QUICK,
    rebalancing: Rebalancing | None = None,
) -> AsyncIterator[Candidate]:
    """Stands for election and leads when it wins, but is no router: its end invalidates nothing."""
    async with session(address, fabric) as zk:
        member = candidate_of(zk, name, patience=patience, rebalancing=rebalancing)
        async with running(member.watcher.run(), member.election.run(), member.leader.run()):
            yield member


@contextlib.asynccontextmanager
async def candidate(
    address: str,
    fabric: str,
    name: str,
    *,
    patience: Patience = QUICK,
    rebalancing: Rebalancing | None = None,
) -> AsyncIterator[Candidate]:
    """A registered router that stands for election and leads when it wins."""
    async with lone_candidate(
        address, fabric, name, patience=patience, rebalancing=rebalancing
    ) as member:
        await register(member.zk, name)
        yield member


async def make(zk: ZooKeeper, path: str) -> None:
    with contextlib.suppress(NodeExists):
        await zk.create(path, parents=True)


async def register(zk: ZooKeeper, name: str, *, draining: bool = False) -> None:
    """Puts a router into the tree, or changes its record."""
    data = encode_router(RouterInfo(name, "127.0.0.1:1", draining=draining))
    await make(zk, zk.paths.routers)
    try:
        await zk.create_ephemeral(zk.paths.router(name), data)
    except NodeExists:
        await zk.set(zk.paths.router(name), data)


def announcement_of(
    zk: ZooKeeper, topic: str, direction: Direction = Direction.PUB, edge: str = "e1"
) -> tuple[str, bytes]:
    """Path and record of an announced endpoint."""
    profile = Profile("T", None, False, Qos())
    announced = Announcement(edge, f"lan-{edge}", 1, topic, direction, ((profile, ()),))
    data = encode_announcement(announced)
    return zk.paths.announcement(topic, direction, edge, digest(data)), data


async def use(
    zk: ZooKeeper, topic: str, direction: Direction = Direction.PUB, edge: str = "e1"
) -> str:
    """Announces an endpoint of a topic; the path to delete when it goes."""
    path, data = announcement_of(zk, topic, direction, edge)
    await make(zk, zk.paths.direction(topic, direction))
    await zk.create_ephemeral(path, data)
    return path


async def assignment_of(zk: ZooKeeper, topic: str) -> Assignment | None:
    """What the tree says now."""
    found = await zk.get(zk.paths.topic(topic))
    return decode_assignment(found[0], topic) if found and found[0] else None


async def wait_assigned(
    zk: ZooKeeper,
    topics: list[str],
    is_right: Callable[[Assignment], bool] = lambda _: True,
    timeout_s: float = 10.0,
) -> dict[str, Assignment]:
    """The assignments, once every topic has one that is right."""
    async with asyncio.timeout(timeout_s):
        while True:
            found = {topic: await assignment_of(zk, topic) for topic in topics}
            right = {t: a for t, a in found.items() if a is not None and is_right(a)}
            if len(right) == len(topics):
                return right
            await asyncio.sleep(0.02)
