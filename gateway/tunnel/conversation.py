"""What both ends of a link share: the shape of a two-way stream of messages, the rules of silence,
and how the tasks of one link end together. Called by router_link.py and tunnel_server.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from gateway.errors import LinkError

GREETING_TIMEOUT_S = 5.0
TICK_S = 1.0
SILENT_TICKS = 4
"""A link is dead after so many ticks without a byte. Ticks, not seconds: a loop that was stalled
itself must not blame its neighbours."""
QUEUE_LIMIT_BYTES = 64 * 1024 * 1024
"""What may wait for one link; end-to-end resending repairs what is dropped beyond it."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """`read` returns None at the orderly end; both raise LinkError when the stream broke."""

    read: Callable[[], Awaitable[bytes | None]]
    write: Callable[[bytes], Coroutine[Any, Any, None]]
    remote: str


async def first_end(name: str, parts: dict[str, Coroutine[Any, Any, str]]) -> str:
    """Run the parts of a link together until one of them ends; returns why. A LinkError is a
    reason like any other; any other exception is a bug and raised."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(part, name=f"{name}: {key}") for key, part in parts.items()]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    reasons = []
    for task in ended:
        try:
            reasons.append(task.result())
        except LinkError as error:
            reasons.append(str(error))
        except asyncio.CancelledError:
            reasons.append("the call was cancelled")
    return reasons[0]
