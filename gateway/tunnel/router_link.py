"""An edge's link to one router: dials, greets, redials for ever, keeps the list of edges the router
has, measures the way. Called by the edge broker; what frames say to edges stays out.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence

from gateway.errors import FrameError, LinkError
from gateway.observe.logs import get_logger
from gateway.shared_loop import running_loop
from gateway.tunnel import messages
from gateway.tunnel.conversation import (
    GREETING_TIMEOUT_S,
    QUEUE_LIMIT_BYTES,
    SILENT_TICKS,
    TICK_S,
    Conversation,
    first_end,
)
from gateway.tunnel.express_greeting import Candidate
from gateway.tunnel.express_link import ExpressLink
from gateway.tunnel.frames import Frame, decode, unbundle
from gateway.tunnel.grpc_link import dial
from gateway.tunnel.lane import Lane
from gateway.tunnel.messages import Hello, Peers, Pong, Refused, Welcome
from gateway.tunnel.pump import Pump

log = get_logger("tunnel")

_FIRST_BACKOFF_S = 0.1
_LAST_BACKOFF_S = 2.0


class RouterLink:
    """One edge's link to one router: dials, greets, and redials for ever until closed.

    `on_state` is called when the link comes up, goes down, or `peers` changes. What was queued
    when the link went down is gone: resending is the business of the streams.
    """

    def __init__(
        self,
        address: str,
        hello: Hello,
        *,
        on_frame: Callable[[RouterLink, Frame], None],
        on_state: Callable[[RouterLink], None],
        on_drained: Callable[[RouterLink], None] | None = None,
    ) -> None:
        self.address = address
        self.is_up = False
        self.router: str | None = None
        """Id the router gave itself when the link was last up."""
        self.peers: dict[str, int] = {}
        """Edges this router has now, with their incarnations; empty while down."""
        self.rtt_s: float | None = None
        self.clock: tuple[int, int, int] | None = None
        """Last ping as wall clocks in ns: sent here, seen there, answer received here."""
        self.last_error = ""
        self.express: tuple[str, Candidate] | None = None
        """As what and where the router takes an express link, as it said last."""
        self._connects = 0
        self.garbage = 0
        self.dropped = 0
        """Frames that found the link down or its queue full."""
        self._hello = hello
        self._on_frame = on_frame
        self._on_state = on_state
        self._pump = Pump(
            limit_bytes=QUEUE_LIMIT_BYTES,
            on_drained=None if on_drained is None else lambda: on_drained(self),
        )
        self._lane = Lane(self._pump)
        self._ping_nonce = 0
        self._ping_sent_s = 0.0
        self._silent_ticks = 0
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = f"up to {self.router}" if self.is_up else f"down: {self.last_error or 'not yet'}"
        return f"<RouterLink {self.address} {state}>"

    @property
    def connects(self) -> int:
        """Grows whenever what was on its way may be lost."""
        return self._connects + self._lane.losses

    @property
    def queued_bytes(self) -> int:
        return self._lane.queued_bytes

    @property
    def is_congested(self) -> bool:
        """Producers stop until `on_drained`."""
        return self._lane.is_congested

    @property
    def has_express(self) -> bool:
        """Whether frames go over an express link while this one is up."""
        return self._lane.has_express

    @property
    def is_read_ahead(self) -> bool:
        """Whether frames that come may be read ahead of turns."""
        return self._lane.has_express

    @property
    def open_descriptor(self) -> int | None:
        """What frames may be written on ahead of turns, now; None: they may not."""
        return self._lane.open_descriptor if self.is_up else None

    @property
    def task(self) -> asyncio.Task[None] | None:
        """Runs from start to close; ends earlier only by a bug, which its owner should notice."""
        return self._task

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"router link {self.address}"
        )

    async def close(self) -> None:
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait({self._task})

    def send(self, frame: bytes) -> bool:
        """Queue a frame; False when it was dropped because the link is down or its queue full."""
        if self.is_up and self._lane.send(frame):
            return True
        self.dropped += 1
        return False

    def send_together(self, frames: Sequence[bytes]) -> bool:
        """Small frames, at the price of one; False when some did not go."""
        if self.is_up and self._lane.send_together(frames):
            return True
        self.dropped += len(frames)
        return False

    def gather(self, is_gathered: bool) -> None:
        """What is sent from now on leaves together, when that is over."""
        self._lane.gather(is_gathered)

    def send_rest(self) -> bool:
        """A frame has gone ahead, perhaps only in part; False when the link is over."""
        if self.is_up and self._lane.send_rest():
            return True
        self.dropped += 1
        return False

    def attach(self, express: ExpressLink | None) -> None:
        """Frames go over this express link to the router from now on; None: there is none."""
        self._lane.attach(express)

    async def _run(self) -> None:
        backoff_s = _FIRST_BACKOFF_S
        while True:
            connects = self._connects
            error = await self._hold_one_call()
            if self._connects != connects:
                backoff_s = _FIRST_BACKOFF_S
            if error != self.last_error:
                self.last_error = error
                log.warning("no link to the router; redialling", address=self.address, reason=error)
            await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))
            backoff_s = min(_LAST_BACKOFF_S, 2 * backoff_s)

    async def _hold_one_call(self) -> str:
        """Dial once and stay until the call ends; returns why it ended."""
        async with dial(self.address) as conversation:
            error = await self._greet(conversation)
            if error:
                return error
            try:
                self._set_up()
                return await first_end(
                    f"router link {self.address}",
                    {
                        "read": self._read(conversation),
                        "write": self._pump.run(conversation.write),
                        "heartbeat": self._beat(),
                    },
                )
            finally:
                self._set_down()

    async def _greet(self, conversation: Conversation) -> str:
        """Why no link came of it; empty when one did."""
        try:
            async with asyncio.timeout(GREETING_TIMEOUT_S):
                await conversation.write(messages.hello(*self._hello))
                answer = await conversation.read()
            if answer is None:
                return "the router hung up before greeting"
            message = messages.decode_message(answer)
        except TimeoutError:
            return f"no answer within {GREETING_TIMEOUT_S:g} s"
        except (FrameError, LinkError) as error:
            return str(error)
        if isinstance(message, Refused):
            return f"refused: {message.reason}"
        if not isinstance(message, Welcome):
            return f"expected a welcome, got {type(message).__name__}"
        self.router = message.router
        self.express = None
        if message.express is not None:
            name, incarnation = message.express
            self.express = name, Candidate(incarnation, message.express_addresses)
        return ""

    def _set_up(self) -> None:
        self.is_up = True
        self._connects += 1
        self.last_error = ""
        self._silent_ticks = 0
        self._on_state(self)

    def _set_down(self) -> None:
        self._pump.clear()
        self.peers = {}
        self.rtt_s = None
        if self.is_up:
            self.is_up = False
            self._on_state(self)

    async def _read(self, conversation: Conversation) -> str:
        on_frame = self._on_frame
        while True:
            message = await conversation.read()
            if message is None:
                return "the router hung up"
            self._silent_ticks = 0
            try:
                frames = unbundle(message)
            except FrameError as error:
                self._on_garbage(error)
                continue
            for frame in frames:
                try:
                    decoded = decode(frame)
                    if decoded.envelope.to:
                        on_frame(self, decoded)
                    else:
                        self._on_neighbour(messages.interpret(decoded))
                except FrameError as error:
                    self._on_garbage(error)

    def _on_garbage(self, error: FrameError) -> None:
        self.garbage += 1
        if self.garbage == 1:
            log.warning(
                "garbage from a router, it is skipped and later counted only; "
                "do both run the same version?",
                router=self.router,
                reason=str(error),
            )

    def _on_neighbour(self, message: messages.Message) -> None:
        if isinstance(message, Peers):
            self.peers = dict(message.peers)
            self._on_state(self)
        elif isinstance(message, Pong) and message.nonce == self._ping_nonce:
            self.rtt_s = time.monotonic() - self._ping_sent_s
            self.clock = (message.sent_ns, message.seen_ns, time.time_ns())
        elif isinstance(message, Refused):
            log.warning(
                "a router refused something; see the reason",
                router=self.router,
                reason=message.reason,
            )

    async def _beat(self) -> str:
        while self._silent_ticks < SILENT_TICKS:
            self._silent_ticks += 1
            self._ping_nonce += 1
            self._ping_sent_s = time.monotonic()
            self._pump.put(messages.ping(self._ping_nonce, time.time_ns()))
            await running_loop().at_leisure(TICK_S)
        return f"nothing heard for {SILENT_TICKS * TICK_S:g} s"
