"""The door to ZooKeeper, against the real server."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.coordination.embedded import EmbeddedZooKeeper, free_port
from gateway.coordination.nodes import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionState,
    SetData,
)
from gateway.coordination.zookeeper import ZooKeeper
from gateway.errors import ConfigError, CoordinationError, CoordinationLost
from tests.coordination.parts import eventually, expire, session

pytestmark = pytest.mark.zookeeper


def test_nodes_are_made_read_changed_and_deleted(zookeeper: EmbeddedZooKeeper, fabric: str) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk:
            root = zk.paths.root
            with pytest.raises(NoNode):
                await zk.create(f"{root}/a/b", b"1")
            await zk.create(f"{root}/a/b", b"1", parents=True)
            with pytest.raises(NodeExists) as refused:
                await zk.create(f"{root}/a/b")
            assert refused.value.path == f"{root}/a/b"
            assert refused.value.__cause__ is not None
            await zk.set(f"{root}/a/b", b"2", 0)
            with pytest.raises(BadVersion):
                await zk.set(f"{root}/a/b", b"3", 0)
            found = await zk.get(f"{root}/a/b")
            assert found is not None
            assert found[0] == b"2"
            assert (found[1].version, found[1].ephemeral_owner) == (1, 0)
            assert await zk.children(f"{root}/a") == ["b"]
            with pytest.raises(NotEmpty):
                await zk.delete(f"{root}/a")
            await zk.delete(f"{root}/a/b", 1)
            assert await zk.get(f"{root}/a/b") is None
            assert await zk.children(f"{root}/gone") is None
            await zk.create_ephemeral(f"{root}/a/me", b"")
            mine = await zk.get(f"{root}/a/me")
            assert mine is not None
            assert mine[1].ephemeral_owner == zk.session_id
            first = await zk.create_sequential(f"{root}/a/n-", b"")
            second = await zk.create_sequential(f"{root}/a/n-", b"")
            assert first < second

    asyncio.run(scenario())


def test_a_transaction_happens_wholly_or_not_at_all(
    zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk:
            root = zk.paths.root
            await zk.create(f"{root}/guard", parents=True)
            await zk.transaction(
                [Check(f"{root}/guard", 0), Create(f"{root}/x", b"1"), SetData(f"{root}/x", b"2")]
            )
            with pytest.raises(NodeExists) as refused:
                await zk.transaction([Delete(f"{root}/guard"), Create(f"{root}/x"), Create("/y")])
            assert refused.value.path == f"{root}/x"
            assert await zk.get(f"{root}/guard") is not None
            with pytest.raises(NoNode) as missing:
                await zk.transaction([Check(f"{root}/nobody"), SetData(f"{root}/x", b"3")])
            assert missing.value.path == f"{root}/nobody"
            found = await zk.get(f"{root}/x")
            assert found is not None
            assert found[0] == b"2"

    asyncio.run(scenario())


def test_a_watch_fires_once_on_the_loop(zookeeper: EmbeddedZooKeeper, fabric: str) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk:
            path = f"{zk.paths.root}/w"
            await zk.create(path, parents=True)
            seen: list[str] = []
            # Armed three times before it fires: still one watch.
            for _ in range(3):
                await zk.get(path, seen.append)
                await zk.children(path, seen.append)
            await zk.set(path, b"1")
            await eventually(lambda: len(seen) == 1)
            await zk.create(f"{path}/child")
            await eventually(lambda: len(seen) == 2)
            await zk.set(path, b"2")
            await zk.get(path)
            assert seen == [path, path]

    asyncio.run(scenario())


def test_hundreds_of_requests_at_once(zookeeper: EmbeddedZooKeeper, fabric: str) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk:
            await zk.create(zk.paths.root, parents=True)
            paths = [f"{zk.paths.root}/{number}" for number in range(600)]
            await asyncio.gather(*(zk.create(path, path.encode()) for path in paths))
            found = await asyncio.gather(*(zk.get(path) for path in paths))
            assert [data for data, _ in filter(None, found)] == [p.encode() for p in paths]

    asyncio.run(scenario())


def test_what_is_too_large_is_refused_and_the_session_stays(
    zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk:
            before = zk.session_id
            with pytest.raises(CoordinationError, match="more than ZooKeeper takes"):
                await zk.create(zk.paths.root, b"x" * 1_100_000, parents=True)
            with pytest.raises(CoordinationError, match="more than ZooKeeper takes"):
                await zk.transaction([Create(f"/{n}", b"x" * 600_000) for n in range(2)])
            await zk.create(zk.paths.root, b"x" * 990_000, parents=True)
            assert zk.session_id == before

    asyncio.run(scenario())


def test_an_expired_session_is_followed_by_a_new_one(
    zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk:
            await zk.create(zk.paths.root, parents=True)
            await zk.create_ephemeral(f"{zk.paths.root}/me", b"")
            before = zk.session_id
            states: list[SessionState] = []
            zk.subscribe(states.append)
            await expire(zk)
            await eventually(lambda: zk.is_connected and zk.session_id != before)
            assert states == [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]
            assert await zk.get(f"{zk.paths.root}/me") is None

    asyncio.run(scenario())


def test_requests_fail_at_once_while_the_server_is_away(
    private_zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    async def scenario() -> None:
        async with session(private_zookeeper, fabric, 2.0) as zk:
            before = zk.session_id
            assert private_zookeeper.pid is not None
            os.kill(private_zookeeper.pid, signal.SIGSTOP)
            # Asked before anybody knows: ended by the suspension, not left hanging.
            asked = [asyncio.create_task(zk.get("/")) for _ in range(200)]
            await eventually(lambda: zk.state is SessionState.SUSPENDED)
            for result in await asyncio.gather(*asked, return_exceptions=True):
                assert isinstance(result, CoordinationLost)
            for _ in range(500):
                with pytest.raises(CoordinationLost):
                    await zk.get("/")
            os.kill(private_zookeeper.pid, signal.SIGCONT)
            await eventually(lambda: zk.is_connected)
            assert await zk.get("/") is not None
            assert before is not None

    asyncio.run(scenario())


def test_a_restarted_server_is_found_again(
    private_zookeeper: EmbeddedZooKeeper, fabric: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with session(private_zookeeper, fabric, 2.0) as zk:
            await zk.create("/kept", b"1")
            private_zookeeper.stop()
            await eventually(lambda: not zk.is_connected)
            again = EmbeddedZooKeeper(private_zookeeper.port, private_zookeeper.data_dir)
            again.start()
            try:
                await eventually(lambda: zk.is_connected)
                found = await zk.get("/kept")
                assert found is not None
                assert found[0] == b"1"
            finally:
                again.stop()
                await eventually(lambda: not zk.is_connected)

    with caplog.at_level(logging.DEBUG):
        asyncio.run(scenario())
    assert not [record for record in caplog.records if record.exc_info]
    assert not [record for record in caplog.records if record.name.startswith("kazoo")]


def test_a_server_that_comes_back_empty_is_a_new_beginning(
    private_zookeeper: EmbeddedZooKeeper, fabric: str, tmp_path: Path
) -> None:
    """It knows less than clients have seen of it, and refuses them without a word."""

    async def scenario() -> None:
        async with session(private_zookeeper, fabric, 2.0) as zk:
            for number in range(10):
                await zk.create(f"/kept{number}", b"1")
            states: list[SessionState] = []
            zk.subscribe(states.append)
            private_zookeeper.stop()
            await eventually(lambda: not zk.is_connected)
            again = EmbeddedZooKeeper(private_zookeeper.port, tmp_path)
            again.start()
            try:
                await eventually(lambda: zk.is_connected)
                assert SessionState.LOST in states
                assert await zk.get("/kept1") is None
            finally:
                again.stop()

    asyncio.run(scenario())


def test_nobody_listening_is_waited_for_and_told_in_one_line(
    tmp_path: Path, fabric: str, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()

    async def scenario() -> None:
        zk = ZooKeeper(f"127.0.0.1:{port}", fabric, session_timeout_s=4.0)
        starting = asyncio.create_task(zk.start(), name="starting")
        await eventually(lambda: "waiting for ZooKeeper" in caplog.text)
        assert caplog.text.count("waiting for ZooKeeper") == 1
        server = EmbeddedZooKeeper(port, tmp_path)
        server.start()
        try:
            await starting
            assert zk.is_connected
            await zk.stop()
            assert zk.state is SessionState.CLOSED
        finally:
            server.stop()

    asyncio.run(scenario())


def test_a_start_with_a_timeout_says_what_to_do(fabric: str) -> None:
    async def scenario() -> None:
        zk = ZooKeeper(f"127.0.0.1:{free_port()}", fabric)
        with pytest.raises(CoordinationError, match="no ZooKeeper answers at"):
            await zk.start(0.3)
        with pytest.raises(CoordinationLost):
            await zk.get("/")

    asyncio.run(scenario())


def test_a_dead_host_in_the_list_costs_little(zookeeper: EmbeddedZooKeeper, fabric: str) -> None:
    async def scenario() -> None:
        hosts = f"127.0.0.1:{free_port()},{zookeeper.address}"
        zk = ZooKeeper(hosts, fabric)
        await zk.start(15.0)
        await zk.stop()

    asyncio.run(scenario())


def test_a_server_that_does_not_greet_is_asked_anew(
    zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    """As one that is just starting: the first connection stays without an answer."""

    async def scenario() -> None:
        callers = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal callers
            callers += 1
            if callers == 1:
                await pump(reader, None)
                writer.close()
                return
            there, here = await asyncio.open_connection(zookeeper.host, zookeeper.port)
            await asyncio.gather(pump(reader, here), pump(there, writer))

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        zk = ZooKeeper(f"127.0.0.1:{port}", fabric, session_timeout_s=60.0)
        await zk.start(timeout_s=20.0)
        assert callers == 2
        await zk.stop()
        server.close()

    asyncio.run(scenario())


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter | None) -> None:
    """Passes on what comes until the end; without a sink it is lost."""
    while data := await source.read(65_536):
        if sink is not None:
            sink.write(data)
    if sink is not None:
        sink.close()


def test_a_client_whose_thread_died_is_replaced(zookeeper: EmbeddedZooKeeper, fabric: str) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk:
            before = zk.session_id
            # kazoo ends its thread like this on a refused login or an unreadable answer.
            await asyncio.to_thread(zk._client.stop)
            await eventually(lambda: zk.state is SessionState.LOST)
            await eventually(lambda: zk.is_connected)
            assert zk.session_id not in (None, before)

    asyncio.run(scenario())


def test_names_that_are_looked_up_slowly_are_waited_for(
    zookeeper: EmbeddedZooKeeper, fabric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a dead nameserver before the one that answers."""
    look_up = socket.getaddrinfo
    asked: list[str] = []

    def slowly(host: str, *rest: Any) -> Any:
        if host == "slow.example":
            asked.append(host)
            time.sleep(4.5)
            host = zookeeper.host
        return look_up(host, *rest)

    monkeypatch.setattr(socket, "getaddrinfo", slowly)

    async def scenario() -> None:
        zk = ZooKeeper(f"slow.example:{zookeeper.port}", fabric)
        await zk.start(20.0)
        await zk.stop()

    asyncio.run(scenario())
    assert len(asked) == 1, "the client was replaced while it looked up names"


@pytest.mark.parametrize("hosts", ["", ":2181", "host:port", "a,,b", "x" * 70])
def test_addresses_that_cannot_be_read_are_misuse(hosts: str, fabric: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        ZooKeeper(hosts, fabric)
