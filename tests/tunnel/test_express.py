"""Express links between edges over real sockets: who dials, which connection stays, what is
refused, bounds.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import struct
from contextlib import suppress

import pytest

from gateway.errors import LinkError
from gateway.tunnel import express, express_greeting, express_link, messages, wire
from gateway.tunnel.express_greeting import Candidate, own_addresses
from tests.tunnel.express_parts import Caller, Edge, LongWay, Turn, frame_to, run
from tests.tunnel.parts import hello, until


@pytest.fixture
def quick_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (express, express_link):
        monkeypatch.setattr(module, "TICK_S", 0.05)


def test_when_both_dial_the_connection_of_the_lower_id_stays() -> None:
    async def test(turn: Turn) -> None:
        async with Edge("a", turn) as a, Edge("b", turn) as b:
            # b alone first: what it dialled gives way to what a dials.
            b.want(a)
            await a.linked(b)
            assert b.link(a).is_dialled
            kept = a.link(b)
            a.want(b)
            await a.linked(b)
            assert a.link(b) is kept, "what works stays"
        async with Edge("a", turn) as a, Edge("b", turn) as b:
            caller = await Caller.greeted(a, "b")
            assert not a.link(b).is_dialled
            await caller.hang_up()
            a.want(b)
            b.want(a)
            await a.linked(b)
            assert a.link(b).is_dialled
            for sender, receiver in ((a, b), (b, a)):
                frame = frame_to(receiver.edge)
                assert sender.link(receiver).send(frame)
                await receiver.got(frame)

    run(test)


def test_crossing_connections_come_down_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(express, "_HEAD_START_S", 0.0)

    async def test(turn: Turn) -> None:
        for _ in range(20):
            async with Edge("a", turn) as a, Edge("b", turn) as b:
                b.want(a)
                a.want(b)
                await a.linked(b)
                states = len(a.states)
                frame = frame_to("b")
                assert a.link(b).send(frame)
                await b.got(frame)
                assert len(a.states) == states <= 3

    run(test)


def test_nothing_is_sent_over_a_connection_that_gives_way_to_one_that_crosses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However far apart in time the edges begin, on a way longer than that."""
    monkeypatch.setattr(express, "_HEAD_START_S", 0.0)
    way_s = 0.1

    async def meet(turn: Turn, first: str, lead_s: float) -> None:
        sent: dict[str, list[bytes]] = {"a": [], "b": []}

        async def talk(sender: Edge, receiver: Edge) -> None:
            await until(lambda: sender.links.link(receiver.edge))
            for number in range(1, 100):
                frame = frame_to(receiver.edge, number)
                assert sender.link(receiver).send(frame)
                sent[receiver.edge].append(frame)
                await asyncio.sleep(way_s / 20)

        async with (
            Edge("a", turn) as a,
            Edge("b", turn) as b,
            LongWay(a.address, way_s) as to_a,
            LongWay(b.address, way_s) as to_b,
        ):
            wanted = {
                "a": (a, {"b": Candidate(1, (to_b.address,))}),
                "b": (b, {"a": Candidate(1, (to_a.address,))}),
            }
            edge, others = wanted.pop(first)
            edge.links.converge(others)
            await asyncio.sleep(lead_s)
            ((edge, others),) = wanted.values()
            edge.links.converge(others)
            await asyncio.gather(talk(a, b), talk(b, a))
            await asyncio.gather(a.got(*sent["a"]), b.got(*sent["b"]))
            assert (a.states, b.states) == (["b"], ["a"])

    async def test(turn: Turn) -> None:
        leads = [way_s / 4 * step for step in range(14)]
        await asyncio.gather(*(meet(turn, first, lead_s) for lead_s in leads for first in "ab"))

    run(test)


def test_edge_that_cannot_be_dialled_dials_itself() -> None:
    async def test(turn: Turn) -> None:
        async with Edge("a", turn) as a, Edge("b", turn, listen=None) as b:
            assert b.links.candidates() == ()
            a.want(b)
            b.want(a)
            await a.linked(b)
            assert b.link(a).is_dialled
            assert a.states == ["b"]

    run(test)


def test_first_address_that_answers_as_the_edge_is_taken() -> None:
    async def test(turn: Turn) -> None:
        silent = socket.create_server(("127.0.0.1", 0))
        async with Edge("a", turn) as a, Edge("b", turn) as b, Edge("c", turn) as c:
            mute = f"127.0.0.1:{silent.getsockname()[1]}"
            named = b.address.replace("127.0.0.1", "localhost")
            a.want(c)
            await a.linked(c)
            kept = c.link(a)
            addresses = ("127.0.0.1:1", c.address, a.address, named, mute)
            wanted = {"c": c.candidate, "b": Candidate(1, addresses)}
            a.links.converge(wanted)
            await a.linked(b)
            a.links.converge(wanted | {"b": Candidate(1, addresses[:3])})
            a.link(b).end("cut")
            await until(lambda: "edge c answers here, not 'b'" in a.problem("b"))
            assert "edge a answers here" in a.problem("b")
            assert c.link(a) is kept
        silent.close()

    run(test)


def test_an_address_that_says_nothing_keeps_the_right_one_waiting_once_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A proxy, or another host with the same private address, accepts and is silent."""
    monkeypatch.setattr(express_greeting, "GREETING_TIMEOUT_S", 1.0)
    monkeypatch.setattr(express_greeting, "_STALE_S", 0.2)

    async def test(turn: Turn) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            mute = f"127.0.0.1:{silent.getsockname()[1]}"
            async with Edge("a", turn) as a, Edge("b", turn) as b:
                a.links.converge({"b": Candidate(1, (mute, b.address))})
                await a.linked(b)
                # Whoever answered before is asked first.
                silent.settimeout(0.0)
                silent.accept()[0].close()
                a.link(b).end("cut")
                await a.linked(b)
                with pytest.raises(BlockingIOError):
                    silent.accept()

    run(test)


def test_a_host_without_addresses_of_a_family_dials_those_of_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def make(family: int, *arguments: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "no such family")
        return socket.socket(family, *arguments)

    class NoIpv6:
        """The module of sockets of such a host."""

        def __getattr__(self, name: str) -> object:
            return make if name == "socket" else getattr(socket, name)

    async def test(turn: Turn) -> None:
        async with Edge("a", turn) as a, Edge("b", turn) as b:
            monkeypatch.setattr(wire, "socket", NoIpv6())
            a.links.converge({"b": Candidate(1, ("[2001:db8::1]:7", b.address))})
            await a.linked(b)
            a.links.converge({"c": Candidate(1, ("[2001:db8::1]:7",))})
            await until(lambda: "address family not supported" in a.problem("c"))
            assert a.failures == []

    run(test)


def test_without_a_file_to_spare_it_is_dialled_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(turn: Turn) -> None:
        async with Edge("a", turn) as a, Edge("b", turn) as b:
            spare = resource.getrlimit(resource.RLIMIT_NOFILE)
            taken: list[socket.socket] = []
            try:
                # As many as there may be: what is open stays so.
                resource.setrlimit(resource.RLIMIT_NOFILE, (256, spare[1]))
                with suppress(OSError):
                    while True:
                        taken.append(socket.socket())
                a.want(b)
                await until(lambda: "too many open files" in a.problem("b"))
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, spare)
                for each in taken:
                    each.close()
            await a.linked(b)
            assert a.failures == []

    run(test)


def test_edges_that_cannot_be_reached_take_no_place_of_others() -> None:
    async def test(turn: Turn) -> None:
        refusing = socket.create_server(("127.0.0.1", 0))
        gone = f"127.0.0.1:{refusing.getsockname()[1]}"
        refusing.close()
        async with Edge("a", turn, most_links=2) as a, Edge("x", turn) as x, Edge("z", turn) as z:
            lost = {f"n{number}": Candidate(1, (gone,)) for number in range(6)}
            hidden = {f"m{number}": Candidate(1, ()) for number in range(6)}
            a.links.converge(lost | hidden | {"x": x.candidate, "z": z.candidate})
            await a.linked(x)
            await a.linked(z)
            await until(lambda: "2 express links, which is the most" in a.problem("n0"))

    run(test)


def test_address_without_listener_is_dialled_until_there_is_one() -> None:
    async def test(turn: Turn) -> None:
        async with Edge("b", turn) as b:
            address = b.address
        async with Edge("a", turn) as a:
            a.links.converge({"b": Candidate(1, (address,))})
            await until(lambda: "connection refused" in a.problem("b"))
            assert a.links.link("b") is None
            async with Edge("b", turn, listen=address) as b:
                await a.linked(b)
                assert a.problem("b") == ""
            await until(lambda: a.links.link("b") is None)
            async with Edge("b", turn, listen=address) as b:
                await a.linked(b)
                assert a.states == ["b"] * 3

    run(test)


def test_new_process_of_an_edge_replaces_the_old_one() -> None:
    async def test(turn: Turn) -> None:
        async with Edge("a", turn) as a, Edge("b", turn, 1) as older, Edge("b", turn, 2) as newer:
            older.want(a)
            await a.linked(older)
            newer.want(a)
            await until(lambda: a.link(newer).incarnation == 2)
            a.unknown.add(("b", 1))
            await until(lambda: "not in the tree with that incarnation" in older.problem("a"))
            assert a.link(newer).incarnation == 2
            # Told by the tree, not by the edge.
            a.links.converge({"b": Candidate(3, ())})
            await until(lambda: a.links.link("b") is None)

    run(test)


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (
            messages.hello(*hello("b", fabric="other"), to=["a"]),
            "a is of fabric 'test', not 'other'",
        ),
        (b"\x02" + messages.hello(*hello("b"))[1:], "protocol version 2 is not 1"),
        (messages.ping(1, 2), "expected a hello, got Ping"),
        (messages.hello(*hello("a", 2), to=["a"]), "this edge is called 'a' too"),
        (messages.hello(*hello("stranger"), to=["a"]), "'stranger' is not in the tree"),
        (bytes(5000), "no edge of ddswan"),
    ],
)
def test_wrong_greeting_is_refused_with_the_reason(first: bytes, reason: str) -> None:
    async def test(turn: Turn) -> None:
        async with Edge("a", turn) as a:
            a.unknown.add(("stranger", 1))
            caller = await Caller.dial(a.address)
            caller.say(first)
            answer = await caller.hear()
            assert isinstance(answer, messages.Refused)
            assert reason in answer.reason
            assert await caller.is_cut_off()
            await caller.hang_up()
            assert a.links.refused == 1
            assert a.states == []

    run(test)


def test_links_are_bounded_and_useless_ones_give_way(quick_ticks: None) -> None:
    async def test(turn: Turn) -> None:
        async with (
            Edge("a", turn, most_links=2) as a,
            Edge("b", turn) as b,
            Edge("c", turn) as c,
            Edge("d", turn) as d,
        ):
            a.want(b, c, d)
            await a.linked(b)
            await a.linked(c)
            d.want(a)
            await until(lambda: "has 2 express links, which is the most" in d.problem("a"))
            a.want(c)
            await a.linked(d)
            assert a.links.link("b") is None
            await a.linked(c)

    run(test)


def test_link_ends_when_neither_side_wants_it(quick_ticks: None) -> None:
    async def test(turn: Turn) -> None:
        async with Edge("a", turn) as a, Edge("b", turn) as b:
            a.want(b)
            await a.linked(b)
            b.want(a)
            a.want()
            await until(lambda: not b.link(a).is_wanted_there)
            # b still wants it: it outlives the time by far.
            await until(lambda: a.link(b).is_wanted_there)
            await asyncio.sleep(15 * 0.05)
            assert a.link(b).unwanted_ticks == 0
            b.want()
            await until(lambda: not a.links.summary() and not b.links.summary())

    run(test)


def test_strangers_who_say_nothing_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(express, "_MOST_STRANGERS", 3)

    async def test(turn: Turn) -> None:
        async with Edge("a", turn) as a:
            callers = [await Caller.dial(a.address) for _ in range(5)]
            await until(lambda: a.links.refused == 2)
            assert await callers[4].is_cut_off()
            await callers[0].hang_up()
            await until(lambda: a.links._strangers == 2)
            (await Caller.greeted(a, "b")).writer.close()
            for caller in callers[1:]:
                await caller.hang_up()

    run(test)


def test_taken_port_is_one_clear_error() -> None:
    async def test(turn: Turn) -> None:
        async with Edge("a", turn) as a:
            b = Edge("b", turn, listen=a.address)
            with pytest.raises(LinkError, match=f"cannot listen on {a.address}: .*in use"):
                b.links.start()
            await b.links.close()

    run(test)


def test_wildcard_is_advertised_as_every_address_of_the_host() -> None:
    assert own_addresses("10.0.0.1", 7) == ("10.0.0.1:7",)
    assert own_addresses("::1", 7) == ("[::1]:7",)
    assert own_addresses("gate.example", 7) == ("gate.example:7",)
    found = own_addresses("0.0.0.0", 7)
    assert set(found) <= set(own_addresses("::", 7))
    assert all(address.endswith(":7") and "[" not in address for address in found)
    assert not any(address.startswith("127.") for address in found)


def test_the_wildcard_of_both_families_is_listened_on_in_both() -> None:
    async def test(turn: Turn) -> None:
        async with Edge("b", turn, listen="[::]:0", has_datagrams=True) as b:
            for host in ("127.0.0.1", "[::1]"):
                async with Edge("a", turn, has_datagrams=True) as a:
                    a.links.converge({"b": Candidate(1, (f"{host}:{b.links.port}",))})
                    await a.datagrams_pass(b)
                await until(lambda: not b.links.summary())

    run(test)


def test_frame_before_the_greeting_is_over_is_not_lost() -> None:
    async def test(turn: Turn) -> None:
        async with Edge("a", turn) as a:
            caller = await Caller.dial(a.address)
            greeting, frame = messages.hello(*hello("b"), to=["a"]), frame_to("a")
            caller.writer.write(
                b"".join(struct.pack("<I", len(each)) + each for each in (greeting, frame))
            )
            await until(lambda: a.frames == [frame])
            await caller.hang_up()

    run(test)
