"""A router and its edges over real gRPC: frames arrive untouched where they are meant to, and
nowhere else, whatever neighbours do.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.errors import LinkError
from gateway.observe.metrics import BrokerMetrics
from gateway.tunnel import messages
from gateway.tunnel.columns import pack
from gateway.tunnel.frames import Peer, StreamKey, bundle, encode_batch
from gateway.tunnel.grpc_link import dial
from routing_broker import relay as relaying
from routing_broker.relay import Relay
from tests.tunnel.parts import FABRIC, Edge, greet, run, until


@asynccontextmanager
async def routing(port: int = 0) -> AsyncIterator[Relay]:
    relay = Relay(
        f"127.0.0.1:{port}",
        router="r1",
        fabric=FABRIC,
        version="0",
        metrics=BrokerMetrics("router", "0"),
    )
    await relay.start()
    try:
        yield relay
    finally:
        await relay.close()


def batch(*to: str, first: int = 1, size: int = 64, count: int = 3) -> bytes:
    samples = [bytes([n % 256]) * size for n in range(count)]
    return encode_batch(StreamKey("a", 1, 1), to, first, pack(range(count), samples))


def test_frames_reach_their_destinations_untouched() -> None:
    async def test() -> None:
        async with (
            routing() as relay,
            Edge("a", relay.port) as a,
            Edge("b", relay.port) as b,
            Edge("c", relay.port) as c,
        ):
            for edge in (a, b, c):
                await edge.up("a", "b", "c")
            both, one = batch("b", "c"), batch("c", first=4)
            a.link.send(both)
            a.link.send(one)
            answer = messages.ack("a", Peer("c", 1), StreamKey("a", 1, 1), 6)
            await until(lambda: c.frames == [both, one])
            c.link.send(answer)
            await until(lambda: a.frames == [answer])
            assert b.frames == [both]
            assert not relay.dropped

    run(test())


def test_peers_follow_who_comes_and_goes() -> None:
    async def test() -> None:
        async with routing() as relay, Edge("a", relay.port, incarnation=5) as a:
            await a.up("a")
            async with Edge("b", relay.port, incarnation=6) as b:
                await a.up("a", "b")
                await b.up("a", "b")
                assert a.link.peers == {"a": 5, "b": 6}
                assert relay.edges == (("a", 5), ("b", 6))
            await a.up("a")
            async with Edge("b", relay.port, incarnation=7):
                await until(lambda: a.link.peers == {"a": 5, "b": 7})

    run(test())


def test_round_trip_is_measured() -> None:
    async def test() -> None:
        async with routing() as relay, Edge("a", relay.port) as a:
            await until(lambda: a.link.rtt_s is not None)
            assert a.link.rtt_s is not None
            assert 0 < a.link.rtt_s < 5
            assert a.link.clock is not None
            sent_ns, seen_ns, received_ns = a.link.clock
            assert sent_ns <= seen_ns <= received_ns

    run(test())


def test_what_cannot_be_forwarded_is_counted_by_reason() -> None:
    async def test() -> None:
        async with routing() as relay, Edge("a", relay.port) as a, Edge("b", relay.port) as b:
            await a.up("a", "b")
            a.link.send(batch("nobody", "b", "a", "b"))
            a.link.send(messages.refused("for you, router"))
            await until(lambda: relay.dropped[relaying.NOT_FOR_ROUTERS])
            assert relay.dropped == {
                relaying.NO_SUCH_EDGE: 1,
                relaying.TO_ITS_SENDER: 1,
                relaying.NOT_FOR_ROUTERS: 1,
            }
            await until(lambda: len(b.frames) == 1)
            assert a.frames == []

    run(test())


def test_garbage_is_counted_and_the_rest_still_forwarded() -> None:
    async def test() -> None:
        async with (
            routing() as relay,
            Edge("b", relay.port) as b,
            dial(f"127.0.0.1:{relay.port}") as call,
        ):
            await b.up("b")
            await greet(call, "a")
            good = batch("b")
            crowd = [f"e{n}" for n in range(10_001)]
            await call.write(b"x")
            await call.write(b"\x01\x01broken bundle")
            await call.write(b"\x01\x00\x00\x00\x05\x00\x00\x00\xff\xff\xff\xff\xff")
            await call.write(bundle([good[:-1], b"\x01\x00\x00\x00\xff\xff\xff\xff", good]))
            await call.write(batch(*crowd))
            await call.write(good)
            await until(lambda: len(b.frames) == 3)
            assert b.frames == [good[:-1], good, good], "a payload is not the router's business"
            assert relay.garbage == 5

    run(test())


def test_bundles_arrive_whole_or_split_as_their_destinations_want() -> None:
    async def test() -> None:
        async with (
            routing() as relay,
            Edge("b", relay.port) as b,
            Edge("c", relay.port) as c,
            dial(f"127.0.0.1:{relay.port}") as call,
        ):
            for edge in (b, c):
                await edge.up("b", "c")
            await greet(call, "a")
            to_b = [batch("b", first=n) for n in range(1, 4)]
            to_c, to_both = batch("c"), batch("b", "c", first=7)
            await call.write(bundle(to_b))
            await until(lambda: b.frames == to_b)
            await call.write(bundle([to_b[0], to_c, to_both]))
            await until(lambda: len(b.frames) == 5 and len(c.frames) == 2)
            assert b.frames[3:] == [to_b[0], to_both]
            assert c.frames == [to_c, to_both]
            await call.write(bundle([batch("nobody"), batch("nobody", first=2)]))
            await call.write(bundle([batch("a"), batch("a", first=2)]))
            await until(lambda: relay.dropped[relaying.TO_ITS_SENDER])
            assert relay.dropped == {relaying.NO_SUCH_EDGE: 2, relaying.TO_ITS_SENDER: 2}
            assert relay.garbage == 0

    run(test())


def test_another_protocol_version_ends_the_link() -> None:
    async def test() -> None:
        async with routing() as relay, dial(f"127.0.0.1:{relay.port}") as call:
            await greet(call, "a")
            await call.write(b"\x02" + batch("b")[1:])
            await until(lambda: relay.edges == ())

    run(test())


def test_large_frame_passes() -> None:
    async def test() -> None:
        async with routing() as relay, Edge("a", relay.port) as a, Edge("b", relay.port) as b:
            await a.up("a", "b")
            frame = batch("b", size=8 << 20, count=1)
            a.link.send(frame)
            await until(lambda: b.frames == [frame])

    run(test())


def test_deaf_edge_stalls_nobody() -> None:
    async def test() -> None:
        async with (
            routing() as relay,
            Edge("a", relay.port) as a,
            Edge("b", relay.port) as b,
            dial(f"127.0.0.1:{relay.port}") as call,
        ):
            await greet(call, "deaf")
            await a.up("a", "b", "deaf")
            frame = batch("b", "deaf", size=1 << 20, count=1)
            for number in range(1, 101):
                a.link.send(frame)
                await until(lambda n=number: len(b.frames) == n)  # type: ignore[misc]
            assert relay.dropped.keys() <= {relaying.QUEUE_FULL}
            assert relay.dropped[relaying.QUEUE_FULL] >= 100 - 64 - 16

    run(test())


def test_router_restart_and_edge_loss_are_survived() -> None:
    async def test() -> None:
        async with routing() as relay:
            port = relay.port
            async with Edge("a", port) as a, Edge("b", port) as b:
                await a.up("a", "b")
                await relay.close()
                await until(lambda: not a.link.is_up and not b.link.is_up)
                assert a.link.peers == {}
                async with routing(port):
                    await a.up("a", "b")
                    await b.link.close()
                    await a.up("a")
                    async with Edge("b", port) as again:
                        await a.up("a", "b")
                        frame = batch("b")
                        a.link.send(frame)
                        await until(lambda: again.frames == [frame])

    run(test())


def test_taken_port_is_one_clear_error() -> None:
    async def test() -> None:
        async with routing() as relay:
            with pytest.raises(LinkError, match="--listen"):
                async with routing(relay.port):
                    pass

    run(test())


def test_load_and_metrics_show_what_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaying, "_TICK_S", 0.05)

    async def test() -> None:
        metrics = BrokerMetrics("router", "0")
        relay = Relay("127.0.0.1:0", router="r1", fabric=FABRIC, version="0", metrics=metrics)
        await relay.start()

        def reported(line: str) -> bool:
            return line in metrics.render().decode()

        async with Edge("a", relay.port) as a:
            async with Edge("b", relay.port) as b, Edge("c", relay.port):
                await a.up("a", "b", "c")
                key = StreamKey("a", 1, 1)
                a.link.send(messages.open_stream(Peer("b", 2), key, "rt/chatter", "p", 1, True))
                for _ in range(10):
                    a.link.send(batch("b", "c", "gone"))
                await until(lambda: len(b.frames) == 11)
                await until(lambda: relay.load().topics)
                load = relay.load()
                assert load.connections == 3
                assert load.topics[0][0] == "rt/chatter"
                assert load.bytes_per_s > 0
                await until(lambda: reported('ddswan_relayed_frames_total{peer="a"} 11.0'))
                assert reported('ddswan_relay_dropped_frames_total{reason="no such edge"} 10.0')
            await until(lambda: not reported('ddswan_queue_bytes{peer="b"}'))
        await relay.close()

    run(test())
