"""The router's process: what it survives, how it leaves, what it says when it cannot start."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from gateway.config import Config
from gateway.coordination.embedded import EmbeddedZooKeeper, free_port
from gateway.coordination.records import encode_edge
from gateway.coordination.registrar import Registrar
from gateway.coordination.zookeeper import ZooKeeper
from gateway.errors import ConfigError
from gateway.model import Assignment, EdgeInfo
from routing_broker.app import advertised_address
from tests.routing.members import announcement_of, running, session, until, use, wait_assigned
from tests.routing.processes import RouterProcess, routers

pytestmark = pytest.mark.zookeeper

Start = Callable[..., RouterProcess]
SESSION_TIMEOUT_S = 4.0
TOPICS = [f"t{n}" for n in range(6)]


@pytest.fixture
def start(zookeeper: EmbeddedZooKeeper, fabric: str, tmp_path: Path) -> Iterator[Start]:
    with routers(
        tmp_path, zookeeper.address, fabric, session_timeout_s=SESSION_TIMEOUT_S
    ) as start_router:
        yield start_router


def start_ready(start: Start, *names: str) -> list[RouterProcess]:
    """Started at once, registered in this order: the first leads."""
    processes = []
    for name in names:
        process = start(name)
        process.wait_for_line("router registered")
        processes.append(process)
    processes[0].wait_for_line("router.leader leading")
    return processes


@contextlib.asynccontextmanager
async def topics_in_use(
    zookeeper: EmbeddedZooKeeper, fabric: str, *present: str
) -> AsyncIterator[tuple[ZooKeeper, dict[str, Assignment]]]:
    """A session that uses TOPICS, and how they are assigned once these routers share them."""
    async with session(zookeeper.address, fabric) as zk:
        for topic in TOPICS:
            await use(zk, topic)
        yield (
            zk,
            await wait_assigned(zk, TOPICS, lambda a: {a.primary, a.standby} <= {*present}),
        )


async def nodes(zk: ZooKeeper) -> dict[str, tuple[bytes, int]]:
    found = {topic: await zk.get(zk.paths.topic(topic)) for topic in TOPICS}
    return {topic: (f[0], f[1].version) for topic, f in found.items() if f is not None}


def test_a_killed_worker_is_replaced_within_the_session_timeout(
    zookeeper: EmbeddedZooKeeper, fabric: str, start: Start
) -> None:
    processes = dict(zip(("r1", "r2", "r3"), start_ready(start, "r1", "r2", "r3"), strict=True))

    async def scenario() -> None:
        async with topics_in_use(zookeeper, fabric, *processes) as (zk, before):
            await asyncio.to_thread(processes["r2"].kill)
            after = await wait_assigned(
                zk,
                TOPICS,
                lambda a: "r2" not in (a.primary, a.standby) and a.standby is not None,
                # ZooKeeper rounds up to its tick, and processes share two cores.
                timeout_s=SESSION_TIMEOUT_S + 3,
            )
            for topic, old in before.items():
                heir = old.standby if old.primary == "r2" else old.primary
                assert after[topic].primary == heir

    asyncio.run(scenario())
    processes["r1"].wait_for_line('why="router left"')


def test_a_killed_leader_is_replaced_and_what_works_is_kept(
    zookeeper: EmbeddedZooKeeper, fabric: str, start: Start
) -> None:
    leader, second, third = start_ready(start, "r1", "r2", "r3")

    async def scenario() -> None:
        async with topics_in_use(zookeeper, fabric, "r1", "r2", "r3") as (zk, before):
            unconcerned = [t for t, a in before.items() if "r1" not in (a.primary, a.standby)]
            assert 0 < len(unconcerned) < len(TOPICS)
            old_nodes = await nodes(zk)
            await asyncio.to_thread(leader.kill)
            after = await wait_assigned(
                zk,
                TOPICS,
                lambda a: "r1" not in (a.primary, a.standby),
                timeout_s=SESSION_TIMEOUT_S + 3,
            )
            new_nodes = await nodes(zk)
            for topic, old in before.items():
                if topic in unconcerned:
                    assert new_nodes[topic] == old_nodes[topic]
                elif old.primary == "r1":
                    assert after[topic].primary == old.standby
                else:
                    assert after[topic].primary == old.primary
            assert max(a.epoch for a in after.values()) > max(a.epoch for a in before.values())

    asyncio.run(scenario())
    assert sum(process.status()["leader"] for process in (second, third)) == 1


def test_a_restarted_router_serves_again(
    zookeeper: EmbeddedZooKeeper, fabric: str, start: Start
) -> None:
    """It comes back while its old session still holds its place, and waits for that to end."""
    _, worker = start_ready(start, "r1", "r2")

    async def scenario() -> None:
        async with topics_in_use(zookeeper, fabric, "r1", "r2") as (zk, _):
            await asyncio.to_thread(worker.kill)
            again = await asyncio.to_thread(start, "r2")
            await asyncio.to_thread(again.wait_for_line, "router registered")
            assert "waiting for the previous session of this id" in again.text()
            await wait_assigned(zk, TOPICS, lambda a: {a.primary, a.standby} == {"r1", "r2"})

    asyncio.run(scenario())


def test_sigterm_hands_over_before_leaving(
    zookeeper: EmbeddedZooKeeper, fabric: str, start: Start
) -> None:
    """Also when it leads, as here: the last it does is move its own topics."""
    leader, _ = start_ready(start, "r1", "r2")

    async def scenario() -> None:
        async with topics_in_use(zookeeper, fabric, "r1", "r2") as (zk, before):
            assert {a.primary for a in before.values()} == {"r1", "r2"}
            assert await asyncio.to_thread(leader.terminate) == 0
            # No waiting: all of it was done before the process ended.
            after = await wait_assigned(zk, TOPICS, timeout_s=1)
            assert set(after.values()) == {Assignment("r2", None, a.epoch) for a in after.values()}
            assert await zk.children(zk.paths.routers) == ["r2"]
            await use(zk, "new", edge="e7")
            await wait_assigned(zk, ["new"])

    asyncio.run(scenario())
    assert 'why="router drains"' in leader.text()


def test_the_only_router_leaves_without_waiting(start: Start) -> None:
    (router,) = start_ready(start, "r1")
    began_s = time.monotonic()
    assert router.terminate() == 0
    assert time.monotonic() - began_s < 3


def test_health_and_status(start: Start) -> None:
    (router,) = start_ready(start, "r1")
    router.wait_for_line("router.leader leading")
    assert router.ask("/healthz") == (200, "ok\n")
    assert router.ask("/readyz") == (200, "ok\n")
    status = router.status()
    assert status["router"] == "r1"
    assert status["leader"] is True
    assert status["zookeeper"] == "connected"
    assert status["edges"] == []
    metrics = router.ask("/metrics")[1]
    assert re.search(r"^ddswan_leader\{.*\} 1.0$", metrics, re.MULTILINE)
    epoch = re.escape(str(float(status["epoch"])))
    assert re.search(rf"^ddswan_leader_epoch\{{.*\}} {epoch}$", metrics, re.MULTILINE)


def test_without_zookeeper_it_waits_and_can_be_stopped(tmp_path: Path) -> None:
    with routers(tmp_path, f"127.0.0.1:{free_port()}", "f") as start_router:
        router = start_router("r1")
        router.wait_for_line(r"waiting for ZooKeeper; .* hosts=127.0.0.1")
        code, reasons = router.ask("/readyz")
        assert code == 503
        assert "ZooKeeper" in reasons
        assert router.terminate() == 0


def test_a_router_that_starts_before_zookeeper_joins_when_it_comes(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(free_port(), tmp_path / "zk")
    with routers(tmp_path, server.address, "f") as start_router:
        router = start_router("r1")
        router.wait_for_line("waiting for ZooKeeper")
        try:
            server.start()
            router.wait_for_line("router.leader leading")
        finally:
            server.stop()


def test_an_outage_of_zookeeper_moves_nothing(
    private_zookeeper: EmbeddedZooKeeper, fabric: str, tmp_path: Path
) -> None:
    """Sessions expire, everybody comes back, one a little before the other."""
    server = private_zookeeper

    async def scenario(processes: list[RouterProcess]) -> None:
        async with session(server.address, fabric, session_timeout_s=2.0) as zk:
            registrar = Registrar(zk, zk.paths, zk.paths.edge("e1"))
            edge = encode_edge(EdgeInfo("e1", "a", 1))
            announced = dict(announcement_of(zk, topic) for topic in TOPICS)
            registrar.declare({zk.paths.edge("e1"): edge, **announced})
            async with running(registrar.run()):
                await wait_assigned(zk, TOPICS, lambda a: a.standby is not None)
                before = await nodes(zk)
                assert server.pid is not None
                os.kill(server.pid, signal.SIGSTOP)
                try:
                    await until(lambda: not zk.is_connected)
                    await asyncio.sleep(3.0)  # the outage: longer than any session
                finally:
                    os.kill(server.pid, signal.SIGCONT)
                await until(lambda: zk.is_connected)
                await registrar.settled(10.0)
                await until(lambda: all(p.ask("/readyz")[0] == 200 for p in processes))
                await until(lambda: any(p.status()["leader"] for p in processes))
                await use(zk, "new", edge="e7")
                await wait_assigned(zk, ["new"], lambda a: a.standby is not None)
                assert await nodes(zk) == before

    with routers(tmp_path, server.address, fabric, session_timeout_s=2.0) as start_router:
        asyncio.run(scenario(start_ready(start_router, "r1", "r2")))


def test_a_silent_zookeeper_does_not_hold_up_the_end(
    private_zookeeper: EmbeddedZooKeeper, fabric: str, tmp_path: Path
) -> None:
    server = private_zookeeper
    assert server.pid is not None
    with routers(tmp_path, server.address, fabric, session_timeout_s=30.0) as start_router:
        router, _ = start_ready(start_router, "r1", "r2")
        os.kill(server.pid, signal.SIGSTOP)
        try:
            assert router.terminate() == 0
        finally:
            os.kill(server.pid, signal.SIGCONT)


def last_line(process: RouterProcess) -> str:
    return process.text().strip().splitlines()[-1]


def test_a_second_router_of_the_same_id_is_refused(
    zookeeper: EmbeddedZooKeeper, fabric: str, tmp_path: Path
) -> None:
    with routers(tmp_path, zookeeper.address, fabric, session_timeout_s=2.0) as start_router:
        first, second = start_router("r1"), None
        first.wait_for_line("router.leader leading")
        second = start_router("r1")
        assert second.wait(20) == 1
        assert last_line(second).startswith("ddswan: router id 'r1' is already in use")
        assert first.ask("/readyz")[0] == 200


def test_a_taken_port_is_one_line(start: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        router = start("r1", "--listen", address)
        assert router.wait() == 1
        assert last_line(router).startswith("ddswan: ")
        assert address in last_line(router)
        assert "Traceback" not in router.text()


def test_a_taken_metrics_port_is_one_line(start: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        router = start("r1", "--metrics-port", str(taken.getsockname()[1]))
        assert router.wait() == 1
        assert "choose another --metrics-port" in last_line(router)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--listen", "0.0.0.0:0"), "pass --advertise HOST:PORT"),
        (("--listen", "nonsense"), "must be host:port"),
        (("--id", "a/b"), "must be 1 to 64"),
        (("--strategy", "best"), "strategy"),
    ],
)
def test_misuse_is_one_line_and_code_2(
    start: Start, arguments: tuple[str, ...], complaint: str
) -> None:
    router = start("r1", *arguments)
    assert router.wait() == 2
    assert len(router.text().strip().splitlines()) == 1
    assert complaint in router.text()


def advertised(listen: str, advertise: str | None = None) -> str:
    config = Config.model_validate({"router": {"listen": listen, "advertise": advertise}})
    return advertised_address(config, 7001)


def test_what_edges_are_told_to_dial() -> None:
    assert advertised("10.0.0.1:7447") == "10.0.0.1:7447"
    assert advertised("10.0.0.1:0") == "10.0.0.1:7001"
    assert advertised("0.0.0.0:7447", "gw.example.org:443") == "gw.example.org:443"
    assert advertised("[::]:7447", "[fd00::1]:0") == "[fd00::1]:7001"
    for everywhere in ("0.0.0.0:7447", "[::]:7447"):
        with pytest.raises(ConfigError, match="--advertise"):
            advertised(everywhere)
