"""The reconciler as a task: how it ends."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from edge_broker.reconcile import Reconciler


class _Idle(Reconciler):
    """Needs nothing, for it converges nothing."""

    def __init__(self) -> None:
        nothing = cast(Any, None)
        super().__init__(*(nothing,) * 12)
        self.passes = 0

    def converge(self) -> None:
        self.passes += 1


@pytest.mark.parametrize("steps", range(6))
def test_it_ends_when_news_and_its_end_come_together(steps: int) -> None:
    async def scenario() -> None:
        reconciler = _Idle()
        task = asyncio.create_task(reconciler.run(), name="reconcile")
        while reconciler.passes < 1:
            await asyncio.sleep(0)
        # It now rests a moment, then waits for news.
        await asyncio.sleep(0.05)
        reconciler.mark()
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        ended, _ = await asyncio.wait({task}, timeout=5)
        assert ended, "the reconciler goes on for ever"

    asyncio.run(scenario())
