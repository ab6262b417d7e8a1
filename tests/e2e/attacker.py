"""A program that joins a router's link as an edge and then breaks every rule of the tunnel. Run
in the cloud by test_attacks.py: `python -m tests.e2e.attacker ROUTER VICTIM INCARNATION TOPIC
PROFILE STREAMS`.
"""

from __future__ import annotations

import asyncio
import random
import sys
from array import array
from collections.abc import Iterator
from contextlib import suppress

from gateway.errors import LinkError
from gateway.tunnel import messages
from gateway.tunnel.columns import pack
from gateway.tunnel.conversation import Conversation
from gateway.tunnel.frames import Envelope, Peer, StreamKey, encode, encode_batch, write_stream
from gateway.tunnel.grpc_link import dial

ME = Peer("e-attacker", 666)
GHOST = Peer("e-ghost", 667)


def batch(
    stream: StreamKey, to: str, first: int, count: int, times: int, sizes: int, payload: bytes
) -> bytes:
    """A batch whose columns need not agree."""
    envelope = Envelope(to=(to,))
    write_stream(envelope.batch.stream, stream)
    envelope.batch.first = first
    envelope.batch.count = count
    envelope.batch.timestamps = array("q", [1] * times).tobytes()
    envelope.batch.uniform_size = sizes
    return encode(envelope, (payload,))


def attacks(
    victim: Peer, topic: str, profile: str, streams: int, chance: random.Random
) -> Iterator[bytes]:
    own = StreamKey(*ME, 1)
    to = victim.edge
    for _ in range(200):
        body = chance.randbytes(chance.randrange(60))
        yield encode(Envelope(to=(to,)), (body,))
        yield Envelope(to=(to,)).SerializeToString() + body
        yield body
        yield b"\x01\x00\x00\x00" + body
        yield b"\x01\x01\x00\x00\x00\x00\x00\x00" + body
    for first, count, times, sizes, payload in (
        (0, 1, 1, 4, b"abcd"),
        (1, 0, 0, 0, b""),
        (1, 1 << 31, 1, 4, b"abcd"),
        ((1 << 64) - 1, 1, 1, 4, b"abcd"),
        (1, 3, 1, 4, b"abcd"),
        (1, 1, 1, 1 << 31, b"abcd"),
    ):
        yield batch(own, to, first, count, times, sizes, payload)
    yield messages.open_stream(victim, own, topic, profile, 1, True)
    yield messages.open_stream(victim, own, topic, profile, 1 << 62, True, 7)
    for first in (1, 2, 1, 5, 3, 1 << 40):
        yield encode_batch(own, (to,), first, pack([1, 2, 3], [b"x", b"y", b"z"]))
    yield messages.close((to,), own, 1 << 50)
    yield messages.ping(1, 2, (to,))
    for number in range(streams + 10):
        theirs = StreamKey(victim.edge, victim.incarnation, number)
        for who in (ME, GHOST):
            yield messages.ack(to, who, theirs, 1 << 60)
            yield messages.ack(to, who, theirs, 0, ((5, 1), (1 << 50, 1 << 51)))
            yield messages.ack(to, who, theirs, 0, unknown=True)
            yield messages.ack(to, who, theirs, 0, finished=True)
        yield messages.refused("because", theirs, (to,))
    for number in range(2000):
        yield messages.subscribe(to, GHOST, victim.incarnation, topic, profile)
        yield messages.subscribe(to, ME, victim.incarnation, topic, f"{number:016x}")
        yield messages.subscribe(to, ME, victim.incarnation, f"none/{number}", profile)
        yield messages.unsubscribe(to, ME, f"none/{number}", profile)
        yield encode_batch(StreamKey(*ME, number), (to,), 1, pack([1], [b"x"]))
    # A subscriber that takes everything and acknowledges nothing, and says so often.
    for _ in range(50):
        yield messages.subscribe(to, ME, victim.incarnation, topic, profile)


async def main() -> int:
    router, edge, incarnation, topic, profile, streams = sys.argv[1:]
    victim = Peer(edge, int(incarnation, 16))
    left = list(attacks(victim, topic, profile, int(streams), random.Random(1)))
    while left:  # the router hangs up when it has enough; who is not impressed calls again
        async with dial(router) as link:
            await link.write(messages.hello(ME, "default", "nowhere", "0"))
            await link.read()
            reading = asyncio.create_task(_drain(link), name="drain")
            with suppress(LinkError):
                while left:
                    await link.write(left[0])
                    del left[0]
                await asyncio.sleep(1.0)  # the last are on their way
            left = left[1:]
            reading.cancel()
    return 0


async def _drain(link: Conversation) -> None:
    with suppress(LinkError):
        while await link.read() is not None:
            pass


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
