"""Both ends of a link over real gRPC: greeting, refusal, replacement, silence, loss."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.errors import LinkError
from gateway.tunnel import conversation as rules
from gateway.tunnel import messages, router_link, tunnel_server
from gateway.tunnel.conversation import Conversation
from gateway.tunnel.frames import MAX_FRAME_BYTES
from gateway.tunnel.grpc_link import GrpcServer, dial
from gateway.tunnel.tunnel_server import Neighbour, TunnelServer
from tests.tunnel.parts import FABRIC, Edge, greet, hear, hello, run, until


@asynccontextmanager
async def serving(
    port: int = 0, got: list[tuple[str, bytes]] | None = None
) -> AsyncIterator[TunnelServer]:
    def on_message(neighbour: Neighbour, message: bytes) -> None:
        if got is not None:
            got.append((neighbour.edge, message))

    server = TunnelServer(
        f"127.0.0.1:{port}",
        router="r1",
        fabric=FABRIC,
        version="0",
        on_message=on_message,
        on_change=lambda: None,
    )
    await server.start()
    try:
        yield server
    finally:
        await server.close()


@pytest.fixture
def quick_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (router_link, tunnel_server):
        monkeypatch.setattr(module, "TICK_S", 0.05)


def test_comes_up_and_knows_the_router() -> None:
    async def test() -> None:
        async with serving() as server, Edge("a", server.port) as edge:
            await edge.up()
            assert edge.link.router == "r1"
            neighbour = server.neighbours["a"]
            assert (neighbour.incarnation, neighbour.lan) == (1, "lan")

    run(test())


def test_taken_port_is_one_clear_error() -> None:
    async def test() -> None:
        async with serving() as server:
            with pytest.raises(LinkError, match=f"cannot listen on 127.0.0.1:{server.port}"):
                async with serving(server.port):
                    pass

    run(test())


def test_other_fabric_is_refused_with_the_reason() -> None:
    async def test() -> None:
        async with serving() as server, Edge("a", server.port, fabric="other") as edge:
            await until(lambda: edge.link.last_error)
            assert "serves fabric 'test', not 'other'" in edge.link.last_error
            assert not edge.link.is_up
            assert edge.states == []
            assert not server.neighbours

    run(test())


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"\x02" + messages.hello(*hello("a"))[1:], "protocol version 2 is not 1"),
        (b"garbage", "too few"),
        (messages.ping(1, 2), "expected a hello, got Ping"),
        (messages.hello(*hello("no spaces")), "edge id 'no spaces' is not"),
    ],
)
def test_wrong_greeting_is_refused(first: bytes, reason: str) -> None:
    async def test() -> None:
        async with serving() as server, dial(f"127.0.0.1:{server.port}") as call:
            await call.write(first)
            answer = await hear(call.read)
            assert isinstance(answer, messages.Refused)
            assert reason in answer.reason
            assert await call.read() is None
            assert not server.neighbours

    run(test())


def test_router_that_is_not_there_is_dialled_until_it_is() -> None:
    async def test() -> None:
        async with serving() as server:
            port = server.port
        async with Edge("a", port) as edge:
            await until(lambda: edge.link.last_error)
            assert not edge.link.send(b"frame")
            assert edge.link.dropped == 1
            async with serving(port):
                await edge.up()
                assert edge.link.last_error == ""

    run(test())


def test_router_restart_is_survived() -> None:
    async def test() -> None:
        async with serving() as server:
            port = server.port
            async with Edge("a", port) as edge:
                await edge.up()
                await server.close()
                await until(lambda: not edge.link.is_up)
                assert edge.link.peers == {}
                got: list[tuple[str, bytes]] = []
                async with serving(port, got):
                    await edge.up()
                    edge.link.send(b"frame")
                    await until(lambda: ("a", b"frame") in got)
                assert edge.states[:3] == [True, False, True]
                assert edge.link.connects == 2

    run(test())


def test_reconnecting_edge_replaces_its_old_link() -> None:
    async def test() -> None:
        async with serving() as server, dial(f"127.0.0.1:{server.port}") as call:
            await greet(call, "a")
            old = server.neighbours["a"]
            async with Edge("a", server.port) as edge:
                await edge.up()
                assert server.neighbours["a"] is not old
                assert await call.read() is None

    run(test())


def test_newest_process_keeps_a_disputed_edge_id() -> None:
    async def test() -> None:
        async with serving() as server, Edge("a", server.port, 1) as older:
            await older.up()
            async with Edge("a", server.port, 2) as newer:
                await newer.up()
                await until(lambda: "another process" in older.link.last_error)
                assert server.neighbours["a"].incarnation == 2
                assert newer.states == [True]
            await older.up()
            assert server.neighbours["a"].incarnation == 1

    run(test())


def test_silent_router_is_left(quick_ticks: None) -> None:
    async def test() -> None:
        calls = []

        async def mute(conversation: Conversation) -> None:
            calls.append(conversation)
            await conversation.read()
            await conversation.write(messages.welcome("mute", "0"))
            while await conversation.read() is not None:
                pass

        server = GrpcServer(mute)
        port = await server.start("127.0.0.1:0")
        async with Edge("a", port) as edge:
            await until(lambda: "nothing heard" in edge.link.last_error)
            await until(lambda: len(calls) > 1)
        await server.stop(0.1)

    run(test())


def test_silent_edge_is_cut_off(quick_ticks: None) -> None:
    async def test() -> None:
        async with serving() as server, dial(f"127.0.0.1:{server.port}") as call:
            await greet(call, "a")
            assert "a" in server.neighbours
            await until(lambda: not server.neighbours)
            assert await call.read() is None

    run(test())


def test_deaf_neighbour_fills_only_its_own_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel_server, "QUEUE_LIMIT_BYTES", 8 << 20)

    async def test() -> None:
        async with serving() as server, dial(f"127.0.0.1:{server.port}") as call:
            await greet(call, "deaf")
            deaf = server.neighbours["deaf"]
            async with Edge("b", server.port) as edge:
                await edge.up()
                frame = messages.refused("x" * (1 << 20), to=["b"])

                def fill() -> bool:
                    server.neighbours["b"].send(frame)
                    return not deaf.send(frame)

                await until(fill)
                assert deaf.queued_bytes <= 8 << 20
                sent = deaf.dropped
                await until(lambda: len(edge.frames) > sent)
            # The server closes with a write to the deaf one still pending.

    run(test())


def test_largest_frame_passes() -> None:
    async def test() -> None:
        got: list[tuple[str, bytes]] = []
        async with serving(0, got) as server, Edge("a", server.port) as edge:
            await edge.up()
            frame = b"\x01\x00" + bytes(MAX_FRAME_BYTES - 2)
            assert edge.link.send(frame)
            await until(lambda: ("a", frame) in got)

    run(test())


def test_producers_are_told_when_the_queue_has_drained() -> None:
    async def test() -> None:
        async with serving() as server, Edge("a", server.port) as edge:
            await edge.up()
            for _ in range(20):
                edge.link.send(bytes(100_000))
            assert edge.link.is_congested
            assert edge.link.queued_bytes >= 2_000_000
            await until(lambda: edge.drained == 1)
            assert not edge.link.is_congested

    run(test())


def test_garbage_from_the_router_is_counted_and_the_link_kept() -> None:
    async def test() -> None:
        async with serving() as server, Edge("a", server.port) as edge:
            await edge.up()
            frame = messages.refused("to an edge", to=["a"])
            garbage = [b"x", b"\x01\x01garbage", b"\x07" * 20]
            for each in garbage:
                server.neighbours["a"].send(each)
                server.neighbours["a"].send(frame)
            await until(lambda: edge.frames == [frame] * len(garbage))
            assert edge.link.garbage == len(garbage)
            assert edge.link.is_up

    run(test())


def test_exception_in_a_callback_ends_the_link_loudly() -> None:
    async def test() -> None:
        def bug(_: bytes) -> None:
            raise ZeroDivisionError

        async with serving() as server, Edge("a", server.port, on_frame=bug) as edge:
            await edge.up()
            server.neighbours["a"].send(messages.refused("", to=["a"]))
            task = edge.link.task
            assert task is not None
            await until(task.done)
            assert isinstance(task.exception(), ZeroDivisionError)
            assert not edge.link.is_up

    run(test())


def test_first_end_cancels_the_rest() -> None:
    async def test() -> None:
        async def never() -> str:
            await asyncio.Event().wait()
            return ""

        async def broken() -> str:
            raise LinkError("the wire is cut")

        assert await rules.first_end("test", {"a": never(), "b": broken()}) == "the wire is cut"

    run(test())
