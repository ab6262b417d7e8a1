"""The queue in front of one link and the loop that writes it: bounded, and frames that wait
together travel together. Used by both ends of a link; which transport writes stays out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Never

from gateway.tunnel.frames import (
    MAX_BUNDLE_BYTES,
    MAX_FRAME_BYTES,
    MAX_MEMBER_BYTES,
    bundle,
    is_bundle,
)


class Pump:
    """`put` never blocks: beyond `limit_bytes` the newest frame is refused, as is one larger than
    any link takes; the caller counts it. `on_drained` is called when the queue falls to `low_bytes`
    after it was above `high_bytes`.
    """

    def __init__(
        self,
        *,
        limit_bytes: int,
        high_bytes: int = 1 << 20,
        low_bytes: int = 1 << 18,
        on_drained: Callable[[], None] | None = None,
    ) -> None:
        self.queued_bytes = 0
        """Includes the message being written."""
        self.is_congested = False
        self._limit_bytes = limit_bytes
        self._high_bytes = high_bytes
        self._low_bytes = low_bytes
        self._on_drained = on_drained
        self._frames: deque[bytes] = deque()
        self._sleeper: asyncio.Future[None] | None = None

    def put(self, frame: bytes) -> bool:
        """`frame` may also be a whole bundle, which then travels as it is."""
        length = len(frame)
        size = self.queued_bytes + length
        if size > self._limit_bytes or length > MAX_FRAME_BYTES:
            return False
        self.queued_bytes = size
        if size > self._high_bytes:
            self.is_congested = True
        self._frames.append(frame)
        sleeper = self._sleeper
        if sleeper is not None:
            self._sleeper = None
            if not sleeper.done():
                sleeper.set_result(None)
        return True

    async def run(self, write: Callable[[bytes], Awaitable[None]]) -> Never:
        """Write what is queued until cancelled or until `write` raises."""
        frames = self._frames
        while True:
            if not frames:
                self._sleeper = asyncio.get_running_loop().create_future()
                await self._sleeper
            message, size = self._take()
            await write(message)
            self.queued_bytes -= size
            if self.is_congested and self.queued_bytes <= self._low_bytes:
                self.is_congested = False
                if self._on_drained is not None:
                    self._on_drained()

    def clear(self) -> None:
        """Forget everything queued: the link it was meant for is gone."""
        self._frames.clear()
        self.queued_bytes = 0
        self.is_congested = False

    def _take(self) -> tuple[bytes, int]:
        """The next message and the bytes of the frames in it."""
        frames = self._frames
        frame = frames.popleft()
        size = len(frame)
        if not frames or size > MAX_MEMBER_BYTES or is_bundle(frame):
            return frame, size
        members = [frame]
        while frames:
            more = len(frames[0])
            if more > MAX_MEMBER_BYTES or size + more > MAX_BUNDLE_BYTES or is_bundle(frames[0]):
                break
            members.append(frames.popleft())
            size += more
        if len(members) == 1:
            return frame, size
        return bundle(members), size
