"""The queue in front of one link and the loop that writes it: bounded, and frames that wait
together travel together. Used by both ends of a link; which transport writes stays out.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Never

from gateway.tunnel.frames import (
    MAX_BUNDLE_BYTES,
    MAX_FRAME_BYTES,
    MAX_MEMBER_BYTES,
    bundle,
    is_bundle,
)
from gateway.tunnel.traced import PassingFrame


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
        self._write: Callable[[bytes], Coroutine[Any, Any, None]] | None = None
        self._writing: Coroutine[Any, Any, None] | None = None
        self._writing_bytes = 0
        self._end: asyncio.Future[None] | None = None

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
        if self._writing is None:
            self._start()
        return True

    async def run(self, write: Callable[[bytes], Coroutine[Any, Any, None]]) -> Never:
        """Write what is queued until cancelled or until `write` raises."""
        self._write = write
        self._end = asyncio.get_running_loop().create_future()
        try:
            self._start()
            await self._end
            raise AssertionError("it ends by an exception only")
        finally:
            self._write = None
            writing, self._writing = self._writing, None
            if writing is not None:
                writing.close()

    def clear(self) -> None:
        """Forget everything queued: the link it was meant for is gone."""
        self._frames.clear()
        self.queued_bytes = 0
        self.is_congested = False

    def _start(self) -> None:
        """Begins to write the next message, here and now: a task that did it would cost a turn of
        the loop, which is a good part of the way of a lone sample."""
        if self._write is not None and self._frames:
            message, self._writing_bytes = self._take()
            self._writing = self._write(message)
            self._step()

    def _step(self, _awaited: asyncio.Future[Any] | None = None) -> None:
        """Runs the write, and the ones after it, up to the next wait, as a task would."""
        while (writing := self._writing) is not None:
            try:
                awaited = writing.send(None)
            except StopIteration:
                self._on_written()
            except BaseException as error:
                self._writing = None
                if self._end is not None and not self._end.done():
                    self._end.set_exception(error)
            else:
                awaited._asyncio_future_blocking = False
                awaited.add_done_callback(self._step)
                return

    def _on_written(self) -> None:
        # What `on_drained` puts must wait in the queue, not start a write of its own.
        self.queued_bytes = max(0, self.queued_bytes - self._writing_bytes)
        if self.is_congested and self.queued_bytes <= self._low_bytes:
            self.is_congested = False
            if self._on_drained is not None:
                self._on_drained()
        self._writing = None
        if self._write is not None and self._frames:
            message, self._writing_bytes = self._take()
            self._writing = self._write(message)

    def _take(self) -> tuple[bytes, int]:
        """The next message and the bytes of the frames in it."""
        frames = self._frames
        frame = self._next()
        size = len(frame)
        if not frames or size > MAX_MEMBER_BYTES or is_bundle(frame):
            return frame, size
        members = [frame]
        while frames:
            more = len(frames[0])
            if more > MAX_MEMBER_BYTES or size + more > MAX_BUNDLE_BYTES or is_bundle(frames[0]):
                break
            members.append(self._next())
            size += more
        if len(members) == 1:
            return frame, size
        return bundle(members), size

    def _next(self) -> bytes:
        frame = self._frames.popleft()
        return frame.left(time.time_ns()) if type(frame) is PassingFrame else frame
