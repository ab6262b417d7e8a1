"""Datagrams beside express links over real sockets: when they pass, what is made again, what goes
over TCP instead, strangers and garbage.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from random import Random

import pytest

from gateway.config import split_address
from gateway.tunnel import datagrams, express, express_link, messages
from gateway.tunnel.datagram_port import DatagramPort, UdpAddress
from gateway.tunnel.datagrams import DatagramLink
from gateway.tunnel.express_greeting import Candidate
from gateway.tunnel.parcels import MOST_FRAME_BYTES
from gateway.tunnel.repair import Heard, Sealer
from tests.tunnel.express_parts import Edge, Turn, frame_to, run
from tests.tunnel.parts import hello, until

Send = Callable[[DatagramPort, DatagramLink, bytes, UdpAddress], None]


@pytest.fixture(autouse=True)
def _quick_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (express, express_link):
        monkeypatch.setattr(module, "TICK_S", 0.05)


class Loss:
    """Of what is sent by any edge, while it is told to lose."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.share = 0.0
        self.deaf: str = ""
        """Nothing comes to this edge."""
        self._random = Random(5)
        self._send: Send = DatagramPort.send
        monkeypatch.setattr(DatagramPort, "send", lambda *what: self._pass(*what))

    def _pass(
        self, port: DatagramPort, link: DatagramLink, octets: bytes, address: UdpAddress
    ) -> None:
        if link.edge != self.deaf and self._random.random() >= self.share:
            self._send(port, link, octets, address)


@pytest.fixture
def loss(monkeypatch: pytest.MonkeyPatch) -> Loss:
    return Loss(monkeypatch)


def pair(turn: Turn) -> tuple[Edge, Edge]:
    return Edge("a", turn, has_datagrams=True), Edge("b", turn, has_datagrams=True)


def pair_on(turn: Turn, listen: str) -> tuple[Edge, Edge]:
    return Edge("a", turn, has_datagrams=True), Edge("b", turn, listen=listen, has_datagrams=True)


@asynccontextmanager
async def linked_pair(turn: Turn) -> AsyncIterator[tuple[Edge, Edge]]:
    """Datagrams pass between them; a has dialled."""
    a, b = pair(turn)
    async with a, b:
        a.want(b)
        await a.datagrams_pass(b)
        yield a, b


def have_come(*edges: Edge) -> bool:
    return all(edge.datagram_frames for edge in edges)


def test_datagrams_pass_both_ways_whoever_dialled() -> None:
    async def test(turn: Turn) -> None:
        for dialler in (0, 1):
            a, b = pair(turn)
            async with a, b:
                (a, b)[dialler].want((b, a)[dialler])
                await a.datagrams_pass(b)
                for here, there in ((a, b), (b, a)):
                    assert here.beside(there).send(frame_to(there.edge, 40))
                await until(partial(have_come, a, b))
                assert a.datagram_frames == [frame_to("a", 40)]
                assert b.datagram_frames == [frame_to("b", 40)]
                assert not a.frames and not b.frames

    run(test)


def test_an_edge_that_cannot_be_dialled_has_them_too() -> None:
    async def test(turn: Turn) -> None:
        a, b = Edge("a", turn, listen=None, has_datagrams=True), Edge("b", turn, has_datagrams=True)
        async with a, b:
            a.want(b)
            await a.datagrams_pass(b)
            b.beside(a).send(frame_to("a"))
            await until(lambda: a.datagram_frames)

    run(test)


def test_an_edge_without_them_has_its_link() -> None:
    async def test(turn: Turn) -> None:
        async with Edge("a", turn, has_datagrams=True) as a, Edge("b", turn) as b:
            a.want(b)
            await a.linked(b)
            assert a.link(b).send(frame_to("b"))
            await b.got(frame_to("b"))
            assert a.link(b).datagrams is None and b.link(a).datagrams is None
            assert a.links.garbage == b.links.garbage == 0

    run(test)


def test_what_is_lost_is_made_again_and_counted(loss: Loss) -> None:
    count = 2000

    async def test(turn: Turn) -> None:
        async with linked_pair(turn) as (a, b):
            link = a.beside(b)
            link.within_s = 0.002
            loss.share = 0.02
            sent = []
            for number in range(count):
                is_long = number % 200 == 199  # in several datagrams
                sent.append(messages.refused(f"{number:>{3000 if is_long else 10}}", to=["b"]))
                assert link.send(sent[-1])
                await asyncio.sleep(0.0005)
            loss.share = 0.0
            await until(lambda: len(b.datagram_frames) >= count - count // 200)
            await until(lambda: link.lost > 10)
            got = set(b.datagram_frames)
            assert len(got) == len(b.datagram_frames), "each once"
            missing = [frame for frame in sent if frame not in got]
            assert len(missing) <= count // 200
            assert b.beside(a).counts.repaired > 10
            assert not b.frames, "nothing went over TCP"

    run(test)


def test_what_is_sent_together_travels_together() -> None:
    async def test(turn: Turn) -> None:
        async with linked_pair(turn) as (a, b):
            link = a.beside(b)
            link.within_s = 60.0
            before = link.counts.sent
            link.gather(True)
            for number in range(30):
                link.send(frame_to("b", 100 + number))
            link.gather(False)
            assert link.counts.sent - before <= 5
            await until(lambda: len(b.datagram_frames) == 30)
            assert b.datagram_frames == [frame_to("b", 100 + number) for number in range(30)]
            link.send_together([frame_to("b", 1), frame_to("b", 2)])
            await until(lambda: b.datagram_frames[30:] == [frame_to("b", 1), frame_to("b", 2)])

    run(test)


def test_the_last_ones_are_made_again_although_nothing_follows(loss: Loss) -> None:
    async def test(turn: Turn) -> None:
        async with linked_pair(turn) as (a, b):
            loss.share = 1.0
            a.beside(b).send(frame_to("b", 9))
            loss.share = 0.0
            await until(lambda: b.datagram_frames == [frame_to("b", 9)])

    run(test)


def test_what_is_too_large_or_too_much_goes_over_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(turn: Turn) -> None:
        async with linked_pair(turn) as (a, b):
            link = a.beside(b)
            large = frame_to("b", MOST_FRAME_BYTES + 1)
            assert link.send(large)
            await b.got(large)
            assert not link.overflows
            monkeypatch.setattr(datagrams, "MOST_BYTES_S", 40_000)
            sent = [large]
            for number in range(30):
                sent.append(frame_to("b", 1000 + number))
                assert link.send(sent[-1])
            await until(lambda: len(b.frames) + len(b.datagram_frames) == len(sent))
            assert link.overflows == len(b.frames) - 1 > 0
            assert b.datagram_frames, "what there is room for went"
            assert sorted(b.frames + b.datagram_frames) == sorted(sent)

    run(test)


def test_where_udp_is_blocked_all_goes_over_tcp_and_later_not(loss: Loss) -> None:
    async def test(turn: Turn) -> None:
        a, b = pair(turn)
        loss.share = 1.0
        async with a, b:
            a.want(b)
            await a.linked(b)
            assert a.link(b).datagrams is None and b.link(a).datagrams is None
            loss.share = 0.0
            await a.datagrams_pass(b)
            kept = a.beside(b)
            states = len(a.states)
            loss.share = 1.0
            await until(lambda: a.link(b).datagrams is None and b.link(a).datagrams is None)
            await until(lambda: len(a.states) > states)
            assert kept.send(frame_to("b", 7)), "who still holds it loses nothing"
            await b.got(frame_to("b", 7))
            loss.share = 0.0
            await a.datagrams_pass(b)

    run(test)


@pytest.mark.parametrize("deaf", ["a", "b"])
def test_where_udp_is_blocked_one_way_both_ends_use_tcp_and_later_not(
    loss: Loss, deaf: str
) -> None:
    async def test(turn: Turn) -> None:
        async with linked_pair(turn) as (a, b):
            loss.deaf = deaf
            talker = a if deaf == "b" else b
            await until(lambda: talker.link(b if talker is a else a).datagrams is None)
            loss.deaf = ""
            await a.datagrams_pass(b)

    run(test)


def test_a_host_of_several_addresses_answers_from_the_one_that_was_dialled() -> None:
    sources: set[str] = set()

    async def test(turn: Turn) -> None:
        a, b = pair_on(turn, "0.0.0.0:0")
        async with a, b:
            candidate = Candidate(1, (f"127.0.0.7:{b.links.port}",))
            a.links.converge({"b": candidate})
            await a.datagrams_pass(b)
            token = a.beside(b).token
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as moved:
                moved.bind(("127.0.0.1", 0))
                moved.settimeout(10)
                (greeting,) = Sealer(token).plain(b"", Heard(1, 1))
                # As if it came from another port now; the number is beyond those so far.
                number = (1 << 16).to_bytes(8, "little")
                moved.sendto(greeting[:10] + number + greeting[18:], ("127.0.0.7", b.links.port))
                loop = asyncio.get_running_loop()
                got = await loop.run_in_executor(None, moved.recvfrom, 2048)
                sources.add(str(got[1][0]))

    run(test)
    assert sources == {"127.0.0.7"}


def test_they_end_with_their_link() -> None:
    async def test(turn: Turn) -> None:
        async with linked_pair(turn) as (a, b):
            old = a.beside(b)
            b.link(a).end("for a test")
            await until(lambda: not old.is_up)
            await a.datagrams_pass(b)
            assert a.beside(b) is not old
            assert not old.send(frame_to("b"))

    run(test)


def test_what_is_told_goes_over_datagrams_or_not_at_all(loss: Loss) -> None:
    """Over TCP it would be taken for news of that."""

    async def test(turn: Turn) -> None:
        async with linked_pair(turn) as (a, b):
            link = a.beside(b)
            told = [frame_to("b", size) for size in (10, 5000, 20, 1100, 1100, 30)]
            assert link.send_together(told)
            await until(lambda: sorted(b.datagram_frames) == sorted(told))
            loss.share = 1.0
            await until(lambda: not link.is_up)
            assert not link.send_together(told)
            loss.share = 0.0
            await a.datagrams_pass(b)
            assert not b.frames

    run(test)


def test_an_offer_behind_the_end_of_its_link_leaves_nothing() -> None:
    async def test(turn: Turn) -> None:
        async with Edge("a", turn, listen=None, has_datagrams=True) as a:
            loop = asyncio.get_running_loop()
            with socket.create_server(("127.0.0.1", 0)) as server:
                server.setblocking(False)
                address = f"127.0.0.1:{server.getsockname()[1]}"
                a.links.converge({"b": Candidate(1, (address,))})
                other, _ = await loop.sock_accept(server)
                await loop.sock_recv(other, 4096)
                await loop.sock_sendall(other, record(messages.hello(*hello("b"))))
                await until(lambda: a.links.link("b"))
                link = a.links.link("b")
                assert link is not None
                offer = record(messages.ping(1, 1)) + record(messages.datagrams(77))
                await loop.sock_sendall(other, offer)
                other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                other.close()
                await until(lambda: not link.is_up)
                port = a.links._datagram_port
                assert port is not None
                await until(lambda: not port._links)

    run(test)


def record(frame: bytes) -> bytes:
    return struct.pack("<I", len(frame)) + frame


def test_strangers_and_garbage_change_nothing() -> None:
    async def test(turn: Turn) -> None:
        async with linked_pair(turn) as (a, b):
            token = a.beside(b).token
            address = split_address(b.address)
            random = Random(3)
            (stranger,) = Sealer(token ^ 1).plain(b"\1\0\0x", Heard(5, 5))
            garbled = Sealer(token).plain(b"\1\0\0x", Heard(5, 5))[0]
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as attacker:
                for size in range(0, 2000, 20):
                    attacker.sendto(random.randbytes(size), address)
                    attacker.sendto(garbled[:10] + random.randbytes(size), address)
                attacker.sendto(stranger, address)
                for number in range(100, 200):  # of this link, soon, and nothing that can be read
                    body = random.randbytes(40)
                    soon = number.to_bytes(8, "little")
                    attacker.sendto(garbled[:10] + soon + garbled[18:26] + body, address)
            for number in range(20):
                a.beside(b).send(frame_to("b", number))
                await asyncio.sleep(0.01)
            await until(lambda: frame_to("b", 19) in b.datagram_frames)
            assert b.datagram_frames == [frame_to("b", number) for number in range(20)]
            assert a.link(b).is_up and not a.failures and not b.failures
            assert b.beside(a).garbage > 50

    run(test)


def test_a_port_that_is_taken_leaves_only_tcp(caplog: pytest.LogCaptureFixture) -> None:
    async def test(turn: Turn) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            a = Edge("a", turn, listen=None, has_datagrams=True)
            b = Edge("b", turn, listen=address, has_datagrams=True)
            async with a, b:
                a.want(b)
                await a.linked(b)
                a.link(b).send(frame_to("b"))
                await b.got(frame_to("b"))
                assert a.link(b)._datagrams is None and b.link(a)._datagrams is None

    run(test)
    assert "no datagrams to this edge" in caplog.text
