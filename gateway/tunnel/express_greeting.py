"""How two edges meet on a new connection: dialling the addresses of one edge, and what each side
says and objects to before a link exists. Called by express.py; which link is kept stays out.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple

import psutil

from gateway.config import split_address
from gateway.errors import FrameError, LinkError
from gateway.tunnel import messages
from gateway.tunnel.conversation import GREETING_TIMEOUT_S, QUEUE_LIMIT_BYTES
from gateway.tunnel.frames import decode
from gateway.tunnel.messages import Hello, Refused
from gateway.tunnel.names import Address, resolve
from gateway.tunnel.wire import Wire, connect

_STAGGER_S = 0.1
"""Between one address of an edge and the next, while none has answered."""
_STALE_S = 1.0
"""A connection that waited for so long to be greeted is made anew: whoever accepted it has little
patience left."""
_MOST_ADDRESSES = 8


class Candidate(NamedTuple):
    """Where one life of an edge may be reached; without addresses it can only be waited for."""

    incarnation: int
    addresses: tuple[str, ...]


def own_addresses(host: str, port: int) -> tuple[str, ...]:
    """Where a listener on this host and port may be reached from elsewhere."""
    try:
        listening = ipaddress.ip_address(host)
    except ValueError:
        return (f"{host}:{port}",)
    if not listening.is_unspecified:
        return (_join(listening, port),)
    found = []
    for entries in psutil.net_if_addrs().values():
        for entry in entries:
            try:
                address = ipaddress.ip_address(entry.address)
            except ValueError:  # of the hardware, or bound to one link
                continue
            if not (address.is_loopback or address.is_link_local):
                found.append(address)
    # The wildcard of IPv6 is that of both families.
    usable = [each for each in found if each.version <= listening.version]
    return tuple(_join(each, port) for each in usable[:_MOST_ADDRESSES])


def _join(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> str:
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


# ---------------------------------------------------------------- dialling


class Dialled(NamedTuple):
    """What came of dialling an edge."""

    address: str
    """That answered; empty when none did or none was asked to the end."""
    problem: str
    """Why there is no link; empty when there is one."""


async def dial(
    hello: Hello,
    edge: str,
    candidate: Candidate,
    greets: asyncio.Lock,
    *,
    is_linked: Callable[[], bool],
    on_greeted: Callable[[Wire, Hello], None],
    first: str = "",
) -> Dialled:
    """Dials all addresses, each a moment after the one before it, until the edge answers at one or
    `is_linked` says that it came by itself. `greets` is locked from saying hello until the answer
    is there. `first`: of the addresses, where it answered before."""
    call = _Call(hello, edge, candidate.incarnation, greets, is_linked, on_greeted)
    addresses = sorted(candidate.addresses[:_MOST_ADDRESSES], key=lambda each: each != first)
    problem = await _until_one_succeeds([partial(call.at_name, each) for each in addresses])
    return Dialled(call.answered, problem)


Attempt = Callable[[], Coroutine[Any, Any, str]]
"""Returns why it failed."""


async def _until_one_succeeds(attempts: Sequence[Attempt]) -> str:
    """Begins each a moment after the one before it; returns why all failed."""
    loop = asyncio.get_running_loop()
    problems: list[str] = []
    pending: set[asyncio.Task[str]] = set()
    left = list(attempts)
    try:
        while left or pending:
            if left:
                pending.add(loop.create_task(left.pop(0)(), name="express dialling"))
            done, pending = await asyncio.wait(
                pending,
                timeout=_STAGGER_S if left else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            problems += [task.result() for task in done]
            if "" in problems:
                return ""
    finally:
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending)
    return "; ".join(problems)


class _Call:
    """To one life of an edge. Several addresses may connect, but only one at a time is greeted, and
    none when there is a link: the other edge would take a greeting for a redial."""

    def __init__(
        self,
        hello: Hello,
        edge: str,
        incarnation: int,
        greets: asyncio.Lock,
        is_linked: Callable[[], bool],
        on_greeted: Callable[[Wire, Hello], None],
    ) -> None:
        self._hello = hello
        self._edge = edge
        self._incarnation = incarnation
        self._greets = greets
        self._is_linked = is_linked
        self._on_greeted = on_greeted
        self.answered = ""

    async def at_name(self, address: str) -> str:
        """Dials every address the name has; returns why no link came of it."""
        try:
            async with asyncio.timeout(GREETING_TIMEOUT_S):
                found = await resolve(*split_address(address))
        except TimeoutError:
            return f"{address}: the name was not found within {GREETING_TIMEOUT_S:g} s"
        except (LinkError, ValueError) as error:
            return f"{address}: {error}"
        attempts = [partial(self._at, address, *each) for each in found[:_MOST_ADDRESSES]]
        problem = await _until_one_succeeds(attempts)
        return f"{address}: {problem}" if problem else ""

    async def _at(self, name: str, family: int, address: Address) -> str:
        try:
            wire = await _connect(family, address)
            try:
                connected_s = time.monotonic()
                async with self._greets:
                    if self._is_linked():
                        wire.close()
                        return ""
                    if time.monotonic() - connected_s > _STALE_S:
                        wire.close()
                        wire = await _connect(family, address)
                    problem = await self._greet(wire, name)
            except BaseException:
                wire.close()
                raise
            if problem:
                wire.close()
            return problem
        except TimeoutError:
            return f"no answer within {GREETING_TIMEOUT_S:g} s"
        except (FrameError, LinkError) as error:
            return str(error)

    async def _greet(self, wire: Wire, name: str) -> str:
        async with asyncio.timeout(GREETING_TIMEOUT_S):
            wire.send(messages.hello(*self._hello, to=(self._edge,)))
            answer = messages.decode_message(await wire.greeting())
        problem = _answer_problem(answer, self._hello, self._edge, self._incarnation)
        if not problem:
            assert isinstance(answer, Hello)
            self.answered = name
            self._on_greeted(wire, answer)
        return problem


async def _connect(family: int, address: Address) -> Wire:
    async with asyncio.timeout(GREETING_TIMEOUT_S):
        return await connect(family, address, QUEUE_LIMIT_BYTES)


def _answer_problem(answer: messages.Message, hello: Hello, edge: str, incarnation: int) -> str:
    if isinstance(answer, Refused):
        return f"refused: {answer.reason}"
    if not isinstance(answer, Hello):
        return f"expected a hello, got {type(answer).__name__}"
    if answer.peer != (edge, incarnation) or answer.fabric != hello.fabric:
        return "another process of that edge answers there"
    return ""


# ---------------------------------------------------------------- accepting


async def heard(wire: Wire, own: Hello) -> Hello:
    """What a dialling edge says first; raises FrameError when it means somebody else or talks
    nonsense, LinkError when it says nothing."""
    try:
        async with asyncio.timeout(GREETING_TIMEOUT_S):
            frame = decode(await wire.greeting())
    except TimeoutError as error:
        raise LinkError(f"no hello within {GREETING_TIMEOUT_S:g} s") from error
    message = messages.interpret(frame)
    if not isinstance(message, Hello):
        raise FrameError(f"expected a hello, got {type(message).__name__}")
    meant = ", ".join(frame.envelope.to)
    if meant != own.peer.edge:
        # Private addresses are the same in many places. Taken for the one it means, the caller
        # would lose the link it has with this edge.
        raise FrameError(f"edge {own.peer.edge} answers here, not {meant!r}")
    return message


def objection(greeting: Hello, own: Hello, is_known: Callable[[str, int], bool]) -> str:
    """Why this edge may not be linked; empty when it may."""
    if greeting.fabric != own.fabric:
        return (
            f"edge {own.peer.edge} is of fabric {own.fabric!r}, not {greeting.fabric!r}: "
            "start both edges with the same --fabric"
        )
    if greeting.peer.edge == own.peer.edge:
        return f"this edge is called {own.peer.edge!r} too: give each edge its own --id"
    if not is_known(*greeting.peer):
        return f"edge {greeting.peer.edge[:80]!r} is not in the tree with that incarnation (yet)"
    return ""
