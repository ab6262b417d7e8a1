"""When the copies leave that wait for a confirmation."""

from __future__ import annotations

import asyncio
import time
from typing import cast

from edge_broker.hedges import Hedges
from edge_broker.known_path import OpenPath, Path
from edge_broker.links import EXPRESS, ROUTED, Way

_LONG_S = 60.0
_SECOND = 1_000_000_000


def test_a_copy_waits_from_the_time_its_batch_was_sent() -> None:
    """What has gone ahead is told of a while later."""
    copies: list[int] = []

    def send_copy(edge: str, number: int, over: OpenPath, now_ns: int) -> bool:
        copies.append(number)
        return True

    async def test() -> None:
        hedges = Hedges(send_copy)
        first = Path(EXPRESS)
        second = OpenPath(Path(ROUTED), cast(Way, None))
        sent_ns = time.time_ns() - int(_LONG_S * _SECOND)
        hedges.arm(first, sent_ns, "e-b", 7, second, _LONG_S)
        async with asyncio.timeout(_LONG_S / 2.0):
            while not copies:
                await asyncio.sleep(0.001)
        assert copies == [7]

    asyncio.run(test())
