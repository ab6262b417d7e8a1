"""What tests of links and relays share: an edge's end of a link that notes what it gets, waiting
for a condition, and a run that fails when a task or a connection outlives it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Self

import psutil

from gateway.shared_loop import SharedLoop
from gateway.tunnel import messages
from gateway.tunnel.conversation import Conversation
from gateway.tunnel.frames import Peer
from gateway.tunnel.messages import Hello
from gateway.tunnel.router_link import RouterLink

FABRIC = "test"
DEADLINE_S = 20.0


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a test and see that nothing outlives it."""
    before = connections()

    async def supervised() -> None:
        await test
        # gRPC's own tasks and sockets end a moment after the call that ended them.
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})
        await until(lambda: not connections() - before)

    with asyncio.Runner(loop_factory=SharedLoop) as runner:
        runner.run(supervised())


def connections() -> set[Any]:
    """TCP connections of this process, listening sockets included."""
    own = psutil.Process().net_connections("tcp")
    return {each for each in own if each.status in ("ESTABLISHED", "LISTEN", "SYN_SENT")}


async def until(condition: Callable[[], Any], deadline_s: float = DEADLINE_S) -> None:
    end_s = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end_s, "the condition did not come true in time"
        await asyncio.sleep(0.005)


def hello(edge: str, incarnation: int = 1, fabric: str = FABRIC) -> Hello:
    return Hello(Peer(edge, incarnation), fabric, "lan", "0")


class Edge:
    """A link to a router that keeps the frames it gets."""

    def __init__(
        self,
        edge: str,
        port: int,
        incarnation: int = 1,
        fabric: str = FABRIC,
        on_frame: Callable[[bytes], None] | None = None,
    ) -> None:
        self.frames: list[bytes] = []
        self.states: list[bool] = []
        self.drained = 0
        take = on_frame or self.frames.append
        self.link = RouterLink(
            f"127.0.0.1:{port}",
            hello(edge, incarnation, fabric),
            on_frame=lambda _, frame: take(frame.raw),
            on_state=lambda link: self.states.append(link.is_up),
            on_drained=lambda _: self._note_drained(),
        )

    def _note_drained(self) -> None:
        self.drained += 1

    async def __aenter__(self) -> Self:
        self.link.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.link.close()

    async def up(self, *peers: str) -> None:
        """Until the link is up and the router has exactly these edges."""
        await until(lambda: self.link.is_up and (not peers or set(self.link.peers) == set(peers)))


async def greet(conversation: Conversation, edge: str, incarnation: int = 1) -> messages.Message:
    """Say hello by hand; returns the answer."""
    await conversation.write(messages.hello(*hello(edge, incarnation)))
    return await hear(conversation.read)


async def hear(read: Callable[[], Awaitable[bytes | None]]) -> messages.Message:
    answer = await asyncio.wait_for(read(), DEADLINE_S)
    assert answer is not None
    return messages.decode_message(answer)
