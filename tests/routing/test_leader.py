"""The leader against a real ZooKeeper: what ends up in the tree."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from gateway.config import Advice
from gateway.coordination.election import Election, Leadership
from gateway.coordination.embedded import EmbeddedZooKeeper
from gateway.coordination.nodes import Delete, Operation
from gateway.coordination.view import FabricWatcher
from gateway.coordination.zookeeper import ZooKeeper
from gateway.errors import CoordinationError
from gateway.model import Assignment
from gateway.observe.metrics import BrokerMetrics
from gateway.plan.assignment import Rebalancing
from gateway.plan.strategies import LeastTopics
from routing_broker import leader as leader_module
from routing_broker.adviser import Adviser
from routing_broker.leader import Leader, Patience
from tests.routing.members import (
    QUICK,
    assignment_of,
    candidate,
    candidate_of,
    lone_candidate,
    make,
    register,
    running,
    session,
    until,
    use,
    wait_assigned,
)

pytestmark = pytest.mark.zookeeper


async def versions(zk: ZooKeeper, topics: list[str]) -> dict[str, tuple[bytes, int]]:
    found = {topic: await zk.get(zk.paths.topic(topic)) for topic in topics}
    return {topic: (f[0], f[1].version) for topic, f in found.items() if f is not None}


def test_topics_in_use_are_shared_out(zookeeper: EmbeddedZooKeeper, fabric: str) -> None:
    async def scenario() -> None:
        topics = [f"rt/robot {n}/pose" for n in range(40)]
        async with (
            candidate(zookeeper.address, fabric, "r1") as leader,
            session(zookeeper.address, fabric) as worker,
            session(zookeeper.address, fabric) as edge,
        ):
            await register(worker, "r2")
            await until(lambda: "r2" in leader.watcher.view.routers)
            for topic in topics:
                await use(edge, topic)
            found = await wait_assigned(edge, topics)
            assert Counter(a.primary for a in found.values()) == {"r1": 20, "r2": 20}
            assert all({a.primary, a.standby} == {"r1", "r2"} for a in found.values())
            leadership = leader.election.leadership
            assert leadership is not None
            assert {a.epoch for a in found.values()} == {leadership.epoch}
            assert b'ddswan_assignments{router="r2"} 20.0' in leader.metrics.render()

    asyncio.run(scenario())


def test_a_lost_worker_is_replaced_by_the_standby(
    zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    async def scenario() -> None:
        topics = [f"t{n}" for n in range(12)]
        async with (
            candidate(zookeeper.address, fabric, "r1"),
            session(zookeeper.address, fabric) as r3,
            session(zookeeper.address, fabric) as edge,
        ):
            await register(r3, "r3")
            async with session(zookeeper.address, fabric) as r2:
                await register(r2, "r2")
                for topic in topics:
                    await use(edge, topic)
                before = await wait_assigned(edge, topics, lambda a: a.standby is not None)
            after = await wait_assigned(edge, topics, lambda a: "r2" not in (a.primary, a.standby))
            for topic in topics:
                kept = before[topic].primary
                assert after[topic].primary == (before[topic].standby if kept == "r2" else kept)

    asyncio.run(scenario())


def test_a_draining_worker_is_relieved_while_it_lives(
    zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    async def scenario() -> None:
        async with (
            candidate(zookeeper.address, fabric, "r1"),
            session(zookeeper.address, fabric) as r2,
        ):
            await register(r2, "r2")
            await use(r2, "t")
            await use(r2, "u")
            await wait_assigned(r2, ["t", "u"], lambda a: a.standby is not None)
            await register(r2, "r2", draining=True)
            after = await wait_assigned(r2, ["t", "u"], lambda a: a.standby is None)
            assert {a.primary for a in after.values()} == {"r1"}

    asyncio.run(scenario())


def test_a_new_leader_touches_no_valid_assignment(
    zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    async def scenario() -> None:
        topics = [f"t{n}" for n in range(10)]
        async with (
            session(zookeeper.address, fabric) as edge,
            session(zookeeper.address, fabric) as workers,
        ):
            for name in ("w1", "w2"):
                await register(workers, name)
            async with (
                lone_candidate(zookeeper.address, fabric, "c1") as first,
                lone_candidate(zookeeper.address, fabric, "c2") as second,
            ):
                await until(lambda: first.leader.is_leading or second.leader.is_leading)
                if second.leader.is_leading:
                    first, second = second, first
                for topic in topics:
                    await use(edge, topic)
                await wait_assigned(edge, topics, lambda a: a.standby is not None)
                before = await versions(edge, topics)
                old = first.election.leadership
                assert old is not None
                await first.zk.stop()  # as sudden as a crash once its session has expired
                await until(lambda: second.leader.is_leading)
                new = second.election.leadership
                assert new is not None
                assert new.epoch > old.epoch
                await use(edge, "new")
                assert (await wait_assigned(edge, ["new"]))["new"].epoch == new.epoch
                assert await versions(edge, topics) == before
                assert not first.leader.is_leading

    asyncio.run(scenario())


def test_a_deposed_leader_writes_nothing(
    zookeeper: EmbeddedZooKeeper, fabric: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It still believes: its election has not noticed."""

    async def scenario() -> None:
        async with session(zookeeper.address, fabric) as zk:
            await register(zk, "r1")
            await use(zk, "t")
            await make(zk, zk.paths.leader)
            node = await zk.create_sequential(f"{zk.paths.leader}/x-", b"")
            found = await zk.get(node)
            assert found is not None
            stale = SimpleNamespace(
                leadership=Leadership(node, found[1].czxid), on_change=lambda callback: None
            )
            await zk.delete(node)
            watcher = FabricWatcher(zk, zk.paths)
            deposed = Leader(
                zk,
                cast(Election, stale),
                watcher,
                strategy=LeastTopics(),
                rebalancing=Rebalancing(),
                metrics=BrokerMetrics("router", "test"),
                patience=QUICK,
            )
            async with running(watcher.run(), deposed.run()):
                await until(lambda: deposed.is_leading)
                await until(lambda: "t" in watcher.view.topics)
                await until(lambda: "assignments wait for ZooKeeper" in caplog.text)
                assert await assignment_of(zk, "t") is None
            async with candidate(zookeeper.address, fabric, "r2"):
                await wait_assigned(zk, ["t"])

    asyncio.run(scenario())


def test_topics_nobody_uses_are_deleted_and_nothing_else(
    zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    async def scenario() -> None:
        async with (
            candidate(zookeeper.address, fabric, "r1") as leader,
            session(zookeeper.address, fabric) as edge,
        ):
            used = await use(edge, "used")
            gone = await use(edge, "gone")
            again = await use(edge, "again")
            before = await wait_assigned(edge, ["used", "gone", "again"])
            await edge.delete(gone)
            await edge.delete(again)
            await until(lambda: not leader.watcher.view.topics["again"].pubs)
            await use(edge, "again", edge="e2")
            await until(lambda: "gone" not in leader.watcher.view.topics)
            assert await edge.get(edge.paths.topic("gone")) is None
            assert await edge.get(used) is not None
            assert await wait_assigned(edge, ["used", "again"]) == {
                topic: before[topic] for topic in ("used", "again")
            }
            # And it comes back as a topic like any other.
            await use(edge, "gone")
            await wait_assigned(edge, ["gone"])

    asyncio.run(scenario())


class SlowToDelete(ZooKeeper):
    """Holds deletions back until told; knows what was asked for, in order."""

    def __init__(self, address: str, fabric: str) -> None:
        super().__init__(address, fabric, session_timeout_s=4.0)
        self.asked: list[str] = []
        self.may_delete = asyncio.Event()

    async def transaction(self, operations: Sequence[Operation]) -> None:
        is_deletion = isinstance(operations[-1], Delete)
        self.asked.append("delete" if is_deletion else "assign")
        if is_deletion:
            await self.may_delete.wait()
        await super().transaction(operations)


def test_an_assignment_does_not_wait_for_all_deletions(
    zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    async def scenario() -> None:
        zk = SlowToDelete(zookeeper.address, fabric)
        await zk.start(timeout_s=10.0)
        try:
            await register(zk, "r1")
            for number in range(120):
                await make(zk, zk.paths.topic(f"unused{number}"))
            member = candidate_of(zk, "r1")
            async with running(member.watcher.run(), member.election.run(), member.leader.run()):
                await until(lambda: len(zk.asked) >= 50)
                await use(zk, "new")
                await until(lambda: "new" in member.watcher.view.topics)
                assert zk.asked == ["delete"] * 50
                zk.may_delete.set()
                await wait_assigned(zk, ["new"])
                assert zk.asked.index("assign") == 50
                await until(lambda: set(member.watcher.view.topics) == {"new"})
                assert zk.asked.count("delete") == 120
        finally:
            await zk.stop()

    asyncio.run(scenario())


class RefusesToDelete(ZooKeeper):
    """As if a node were closed to this router."""

    def __init__(self, address: str, fabric: str, on_refusal: Callable[[], None]) -> None:
        super().__init__(address, fabric, session_timeout_s=4.0)
        self.on_refusal = on_refusal

    async def transaction(self, operations: Sequence[Operation]) -> None:
        if isinstance(operations[-1], Delete):
            self.on_refusal()
            raise CoordinationError("not allowed")
        await super().transaction(operations)


def test_news_does_not_wait_for_what_is_refused_again_and_again(
    zookeeper: EmbeddedZooKeeper, fabric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it has been refused so often that it would be tried again after an hour."""
    monkeypatch.setattr(leader_module, "_FIRST_RETRY_S", 3600.0)
    monkeypatch.setattr(leader_module, "_LAST_RETRY_S", 3600.0)
    refused = asyncio.Event()

    def on_refusal() -> None:
        monkeypatch.setattr(leader_module, "_FIRST_RETRY_S", 0.01)
        refused.set()

    async def scenario() -> None:
        zk = RefusesToDelete(zookeeper.address, fabric, on_refusal)
        await zk.start(timeout_s=10.0)
        try:
            await register(zk, "r1")
            await make(zk, zk.paths.topic("unused"))
            member = candidate_of(zk, "r1")
            async with running(member.watcher.run(), member.election.run(), member.leader.run()):
                await until(refused.is_set)
                await use(zk, "new")
                await wait_assigned(zk, ["new"])
        finally:
            await zk.stop()

    asyncio.run(scenario())


def test_topics_wait_for_a_router(zookeeper: EmbeddedZooKeeper, fabric: str) -> None:
    async def scenario() -> None:
        async with session(zookeeper.address, fabric) as zk:
            await use(zk, "t")
            member = candidate_of(zk, "r1")
            async with running(member.watcher.run(), member.election.run(), member.leader.run()):
                await until(lambda: member.leader.unserved == 1)
                await register(zk, "r1")
                await wait_assigned(zk, ["t"])
                await until(lambda: member.leader.unserved == 0)

    asyncio.run(scenario())


def test_a_joining_router_is_given_its_share(zookeeper: EmbeddedZooKeeper, fabric: str) -> None:
    async def scenario() -> None:
        topics = [f"t{n}" for n in range(8)]
        eager = Patience(rebalance_interval_s=0.2)
        balance = Rebalancing(factor=1.3)
        async with (
            candidate(zookeeper.address, fabric, "r1", patience=eager, rebalancing=balance) as r1,
            session(zookeeper.address, fabric) as zk,
        ):
            for topic in topics:
                await use(zk, topic)
            await wait_assigned(zk, topics)
            await register(zk, "r2")
            found: Counter[str] = Counter()
            async with asyncio.timeout(10):
                while found["r2"] < 3:
                    found = Counter(a.primary for a in (await wait_assigned(zk, topics)).values())
            # Mean 4, bound 5.2: three moves are enough, and no more are made.
            assert found == {"r1": 5, "r2": 3}
            await until(lambda: b'moves_total{reason="rebalancing"} 3.0' in r1.metrics.render())

    asyncio.run(scenario())


def test_an_assignment_nobody_can_read_is_written_anew(
    zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    async def scenario() -> None:
        async with (
            candidate(zookeeper.address, fabric, "r1"),
            session(zookeeper.address, fabric) as zk,
        ):
            await use(zk, "t")
            await wait_assigned(zk, ["t"])
            await zk.set(zk.paths.topic("t"), b"\xff not JSON")
            async with asyncio.timeout(10):
                while (found := await zk.get(zk.paths.topic("t"))) and found[0][:1] == b"\xff":
                    await asyncio.sleep(0.02)
            found_now: Assignment | None = await assignment_of(zk, "t")
            assert found_now is not None
            assert found_now.primary == "r1"

    asyncio.run(scenario())


def test_the_leader_applies_what_is_recommended_by_itself(
    zookeeper: EmbeddedZooKeeper, fabric: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And moves topics off a router that is to be relieved, and logs each change and why. What
    makes no sense is left alone."""
    caplog.set_level("INFO", "ddswan")
    file = tmp_path / "recommendations.json"
    settings = Advice(mode="auto", file=str(file), most_changes=1, interval_s=0.05)

    async def scenario() -> None:
        async with (
            session(zookeeper.address, fabric) as zk,
            session(zookeeper.address, fabric) as edge,
        ):
            for router in ("r1", "r2"):
                await register(zk, router)
            election = Election(zk, zk.paths, "r1")
            watcher = FabricWatcher(zk, zk.paths)
            leader = Leader(
                zk,
                election,
                watcher,
                strategy=LeastTopics(),
                rebalancing=Rebalancing(),
                metrics=BrokerMetrics("router", "0", fabric=fabric, broker="r1"),
                patience=QUICK,
                adviser=Adviser(zk, settings, fabric),
            )
            async with running(election.run(), watcher.run(), leader.run()):
                await use(edge, "slow")
                before = (await wait_assigned(edge, ["slow"]))["slow"].primary
                kinds: list[dict[str, object]] = [
                    {"kind": "relieve", "router": before, "topics": 5},
                    {"kind": "relieve", "router": before, "topics": ["slow"]},
                    {"kind": "promote", "topic": "late", "evidence": {"late": 7, "n": 10**400}},
                    {"kind": "demote", "topic": "late"},
                ]
                reason = {"fabric": fabric, "text": "why", "evidence": {"late": 7}}
                found = [reason | each for each in kinds]
                file.write_text(json.dumps({"version": 1, "recommendations": found}))

                def primary() -> str | None:
                    assignment = watcher.view.topics["slow"].assignment
                    return None if assignment is None else assignment.primary

                await until(lambda: primary() not in (None, before))
                await until(lambda: watcher.view.advice.express() == {"late": True})

    asyncio.run(scenario())
    applied = [
        vars(record)["fields"] for record in caplog.records if record.msg == "advice applied"
    ]
    assert [each["topic"] for each in applied] == ["slow", "late"]
    assert all(json.loads(each["evidence"]) == {"late": 7} for each in applied)
