"""All express links of one broker: listens, dials, and keeps one connection to each other one that
either side wants, within bounds. A router is one more edge here. Bytes on sockets and what frames
say stay out. Called by both brokers.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from gateway.config import split_address
from gateway.errors import FrameError, LinkError
from gateway.observe.logs import get_logger
from gateway.shared_loop import running_loop
from gateway.tunnel import messages
from gateway.tunnel.conversation import QUEUE_LIMIT_BYTES, TICK_S
from gateway.tunnel.datagram_port import DatagramPort
from gateway.tunnel.datagrams import DatagramLink
from gateway.tunnel.express_greeting import (
    Candidate,
    Dialled,
    dial,
    heard,
    objection,
    own_addresses,
)
from gateway.tunnel.express_link import ExpressLink
from gateway.tunnel.frames import Frame
from gateway.tunnel.messages import Hello
from gateway.tunnel.wire import Listener, Wire
from gateway.tunnel.wire_reader import WireReader

log = get_logger("tunnel")

_FIRST_BACKOFF_S = 0.1
_LAST_BACKOFF_S = 2.0
_FULL_BACKOFF_S = 5.0
"""While there are as many links as may be."""
_HEAD_START_S = 0.3
"""So long the edge of the higher id leaves dialling to the other, whose connection is preferred."""
_OWN_GREETING_S = 2.0
"""So long an edge that has dialled another one, and may keep what it dialled, lets that one's call
wait for the answer: less than callers wait."""
_UNWANTED_TICKS = 10
_MOST_LINKS = 64
_MOST_STRANGERS = 64
"""Accepted connections that have not greeted yet."""


@dataclass(slots=True, eq=False)
class _Peer:
    """What is known of one other edge while it is wanted or linked."""

    wanted: Candidate | None = None
    link: ExpressLink | None = None
    problem: str = ""
    dialling: asyncio.Task[None] | None = None
    greets: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Locked while an address that was dialled has been greeted and has not answered."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def live_link(self) -> ExpressLink | None:
        return self.link if self.link is not None and self.link.is_up else None


class ExpressLinks:
    """The express links of one broker.

    `is_known(edge, incarnation)` says whether that life of an edge is in the tree. `on_state(edge)`
    is called when `link(edge)` came, went or is another one, and when datagrams beside it begin or
    cease to pass. What was queued on a connection that
    ended is gone: resending is the business of the streams. Frames arrive in turns of the reader's
    thread; everything else happens on the loop.
    """

    def __init__(
        self,
        hello: Hello,
        *,
        listen: str | None,
        advertise: Sequence[str] | None,
        is_known: Callable[[str, int], bool],
        on_frame: Callable[[ExpressLink, Frame], None],
        on_state: Callable[[str], None],
        on_drained: Callable[[str], None],
        on_failure: Callable[[Exception], None],
        reader: WireReader,
        most_links: int = _MOST_LINKS,
        last_backoff_s: float = _LAST_BACKOFF_S,
        on_garbage: Callable[[FrameError], None] | None = None,
        on_datagram_frame: Callable[[DatagramLink, Frame], None] | None = None,
    ) -> None:
        """`reader` is its owner's, who starts it before and ends it afterwards. `on_garbage`: told
        of what is no frame, which is skipped; else it ends its link. `on_datagram_frame`: there may
        be datagrams beside the links."""
        self.refused = 0
        """Connections of others that were turned away."""
        self.garbage = 0
        """Connections that ended because of what came over them."""
        self._hello = hello
        self._edge = hello.peer.edge
        self._listen = listen
        self._advertise = advertise
        self._is_known = is_known
        self._on_frame = on_frame
        self._on_state = on_state
        self._on_drained = on_drained
        self._on_failure = on_failure
        self._most_links = most_links
        self._peers: dict[str, _Peer] = {}
        self._has_enough = True
        """Links for all that are wanted."""
        self._calls = 0
        """Edges that are being dialled now."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._strangers = 0
        self._listener: Listener | None = None
        self._last_backoff_s = last_backoff_s
        self._reader = reader
        self._on_garbage = on_garbage
        self._on_datagram_frame = on_datagram_frame
        self._datagram_port = (
            None if on_datagram_frame is None else DatagramPort(hello.peer, reader)
        )

    def start(self) -> None:
        """Raises LinkError when the address cannot be listened on."""
        if self._listen is not None:
            host, port = split_address(self._listen)
            self._listener = Listener(host, port, QUEUE_LIMIT_BYTES, self._on_accepted)
            if self._datagram_port is not None:
                self._datagram_port.listen(host, self._listener.port)
        self._spawn("express heartbeat", self._tick())

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for peer in self._peers.values():
            if peer.link is not None:
                peer.link.end("this broker stops")
        self._peers.clear()
        if self._datagram_port is not None:
            self._datagram_port.close()

    def candidates(self) -> tuple[str, ...]:
        """Addresses to tell other edges, once started; those of the host as they are now."""
        if self._listen is None or self._listener is None:
            return ()
        host, _ = split_address(self._listen)
        return tuple(self._advertise or own_addresses(host, self._listener.port))

    @property
    def port(self) -> int:
        """The port bound, once started; 0: it does not listen."""
        return 0 if self._listener is None else self._listener.port

    def link(self, edge: str) -> ExpressLink | None:
        """The link to this edge when it is up."""
        peer = self._peers.get(edge)
        return None if peer is None else peer.live_link()

    def converge(self, wanted: Mapping[str, Candidate]) -> None:
        """Hold links to these edges; of more than `most_links` to those that could be reached
        first."""
        others = wanted.keys() - {self._edge}
        for edge in self._peers.keys() - others:
            self._want(edge, None)
        for edge in sorted(others):
            self._want(edge, wanted[edge])
        had_enough, self._has_enough = self._has_enough, len(others) <= self._most_links
        if had_enough and not self._has_enough:
            log.warning(
                "more express links are wanted than may be; the rest stays routed",
                wanted=len(others),
                most=self._most_links,
            )

    def summary(self) -> list[dict[str, Any]]:
        """For status."""
        rows = []
        for edge, peer in sorted(self._peers.items()):
            link = peer.live_link()
            row: dict[str, Any] = {
                "edge": edge,
                "up": link is not None,
                "wanted": peer.wanted is not None,
                "problem": peer.problem,
            }
            if link is not None:
                row |= {
                    "address": link.remote,
                    "dialled": link.is_dialled,
                    "rtt_ms": None if link.rtt_s is None else round(link.rtt_s * 1e3, 3),
                    "queued_bytes": link.queued_bytes,
                    "datagrams": link.datagrams is not None,
                }
            rows.append(row)
        return rows

    # ------------------------------------------------------------ wanting

    def _want(self, edge: str, candidate: Candidate | None) -> None:
        peer = self._peers.setdefault(edge, _Peer())
        link = peer.live_link()
        if link and candidate and link.incarnation != candidate.incarnation:
            link.end("that process of the edge is over")
        if candidate != peer.wanted:
            peer.wanted = candidate
            if peer.dialling is not None:
                peer.dialling.cancel()
                peer.dialling = None
            if candidate is not None and candidate.addresses:
                peer.dialling = self._spawn(
                    f"express link to {edge}", self._keep_dialling(edge, peer, candidate)
                )
        self._forget_if_idle(edge, peer)

    def _forget_if_idle(self, edge: str, peer: _Peer) -> None:
        if peer.wanted is None and peer.link is None and self._peers.get(edge) is peer:
            del self._peers[edge]

    async def _keep_dialling(self, edge: str, peer: _Peer, candidate: Candidate) -> None:
        """Dials whenever there is no link, for as long as the edge is wanted."""
        backoff_s = _FIRST_BACKOFF_S
        answered = ""
        while True:
            if edge < self._edge:
                await _linked_within(peer, _HEAD_START_S)
            while peer.live_link() is not None:
                backoff_s = _FIRST_BACKOFF_S
                peer.changed.clear()
                await peer.changed.wait()
            # Whoever cannot be reached must not keep others from being dialled: each has a try.
            if problem := self._fullness(self._calls):
                peer.problem = problem
                await _linked_within(peer, _FULL_BACKOFF_S * random.uniform(0.5, 1.0))
                continue
            dialled = await self._dial(edge, peer, candidate, answered)
            answered = dialled.address or answered
            if peer.live_link() is None:
                self._note(edge, peer, dialled.problem)
                await _linked_within(peer, backoff_s * random.uniform(0.5, 1.0))
                backoff_s = min(self._last_backoff_s, 2 * backoff_s)

    async def _dial(self, edge: str, peer: _Peer, candidate: Candidate, first: str) -> Dialled:
        self._calls += 1
        try:
            return await dial(
                self._hello,
                edge,
                candidate,
                peer.greets,
                is_linked=lambda: peer.live_link() is not None,
                on_greeted=lambda wire, greeting: self._admit(wire, greeting, is_dialled=True),
                first=first,
            )
        finally:
            self._calls -= 1

    def _note(self, edge: str, peer: _Peer, problem: str) -> None:
        if problem and problem != peer.problem:
            peer.problem = problem
            log.warning("no express link; redialling", edge=edge, reason=problem)

    # ------------------------------------------------------------ accepting

    def _on_accepted(self, wire: Wire) -> None:
        if self._strangers >= _MOST_STRANGERS:
            self.refused += 1
            wire.close()
            return
        self._strangers += 1
        task = self._spawn(f"express greeting {wire.remote}", self._greet(wire))
        task.add_done_callback(self._on_greeted)

    def _on_greeted(self, _: asyncio.Task[None]) -> None:
        self._strangers -= 1

    async def _greet(self, wire: Wire) -> None:
        try:
            refusal = await self._answer(wire)
        except LinkError as error:
            log.info("a connection brought no express link", remote=wire.remote, reason=str(error))
            wire.close()
            return
        except BaseException:
            wire.close()
            raise
        if refusal:
            self.refused += 1
            log.warning(
                "an express link was refused; see the reason at the other end",
                remote=wire.remote,
                reason=refusal,
            )
            wire.send(messages.refused(refusal))
            wire.close()

    async def _answer(self, wire: Wire) -> str:
        """Makes a link of an accepted connection; returns why not."""
        try:
            greeting = await heard(wire, self._hello)
        except FrameError as error:
            self.garbage += 1
            return str(error)
        await self._own_greeting_over(greeting.peer.edge)
        refusal = objection(greeting, self._hello, self._is_known)
        if refusal:
            return refusal
        present = self.link(greeting.peer.edge)
        if present is None:
            refusal = self._fullness()
        elif not self._yields(present, greeting, is_dialled=False):
            refusal = f"edges {self._edge} and {present.edge} have a link already"
        if not refusal:
            wire.send(messages.hello(*self._hello))
            self._admit(wire, greeting, is_dialled=False)
        return refusal

    async def _own_greeting_over(self, edge: str) -> None:
        """Of two calls that cross one is kept, and which is known before anything goes over the
        other: what went there would be lost with it."""
        peer = self._peers.get(edge)
        if peer is not None and self._edge < edge and peer.greets.locked():
            with suppress(TimeoutError):
                async with asyncio.timeout(_OWN_GREETING_S), peer.greets:
                    pass

    # ------------------------------------------------------------ keeping one of each

    def _yields(self, present: ExpressLink, greeting: Hello, *, is_dialled: bool) -> bool:
        """Whether the link there is gives way to a new connection. When both edges have dialled
        they come to the same answer: what the one of the lower id dialled stays."""
        if present.incarnation != greeting.peer.incarnation or present.is_dialled == is_dialled:
            return True
        return is_dialled == (self._edge < present.edge)

    def _fullness(self, expected: int = 0) -> str:
        """Why there may be no further link than those there are and those `expected`; gives up one
        that neither side wants for it."""
        links = [link for peer in self._peers.values() if (link := peer.live_link())]
        if len(links) + expected < self._most_links:
            return ""
        useless = [link for link in links if link.unwanted_ticks]
        if useless:
            useless[0].end("neither side wants it and another one is wanted")
            return ""
        return f"edge {self._edge} has {self._most_links} express links, which is the most"

    def _admit(self, wire: Wire, greeting: Hello, *, is_dialled: bool) -> None:
        edge = greeting.peer.edge
        peer = self._peers.setdefault(edge, _Peer())
        before = peer.live_link()
        if before is None:
            peer.problem = self._fullness()
            is_kept = not peer.problem
        else:
            is_kept = self._yields(before, greeting, is_dialled=is_dialled)
        if not is_kept:
            wire.close()
            self._forget_if_idle(edge, peer)
            return
        link = peer.link = ExpressLink(
            wire,
            greeting,
            self._reader,
            is_dialled=is_dialled,
            on_frame=self._on_frame,
            on_drained=lambda link: self._on_drained(link.edge),
            on_end=self._on_end,
            on_garbage=self._on_garbage,
            datagram_port=self._datagram_port,
            on_datagram_frame=self._on_datagram_frame,
            on_datagrams=lambda link: self._on_state(link.edge),
        )
        peer.problem = ""
        if before is not None:
            before.end("another connection took its place")
        log.info("express link up", edge=edge, remote=link.remote, dialled=is_dialled)
        peer.changed.set()
        self._on_state(edge)
        link.beat(peer.wanted is not None)
        link.start()

    def _on_end(self, link: ExpressLink, reason: str, error: Exception | None) -> None:
        self.garbage += link.garbage
        if error is not None:
            self._on_failure(error)
        peer = self._peers.get(link.edge)
        if peer is None or peer.link is not link:
            return
        peer.link = None
        peer.problem = reason
        if peer.wanted is None and not link.is_wanted_there:
            log.info("express link closed", edge=link.edge, remote=link.remote, reason=reason)
        else:
            log.warning(
                "an express link ended; it is dialled again while it is wanted",
                edge=link.edge,
                remote=link.remote,
                reason=reason,
            )
        peer.changed.set()
        self._on_state(link.edge)
        self._forget_if_idle(link.edge, peer)

    async def _tick(self) -> None:
        loop = running_loop()
        while True:
            await loop.at_leisure(TICK_S)
            for peer in list(self._peers.values()):
                link = peer.live_link()
                if link is None:
                    continue
                link.beat(peer.wanted is not None)
                if link.unwanted_ticks > _UNWANTED_TICKS:
                    link.end("neither side wants it")

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._report)
        return task

    def _report(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._on_failure(error)


async def _linked_within(peer: _Peer, seconds: float) -> None:
    """Waits so long at most for a link."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while peer.live_link() is None:
                peer.changed.clear()
                await peer.changed.wait()
