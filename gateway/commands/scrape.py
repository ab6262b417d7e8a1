"""Asks the edges of a fabric for their /metrics, all at once and again and again, and keeps what
rates are made from. Owned by live.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from gateway.commands.broker_page import PageError, fetch_page
from gateway.commands.rates import History, Increase, PageReader
from gateway.lifetime import end_tasks
from gateway.model import EdgeInfo

EVERY_S = 1.0
_SHARE = 0.1
"""At most this share of an edge's time goes into its answers, so that looking does not disturb."""
_AT_ONCE = 64
_LOST_AFTER = 3
"""So many failures in a row, and what an edge said last is no longer shown."""


class Scraper:
    """One task for each edge that has a metrics port."""

    def __init__(self) -> None:
        self._targets: dict[tuple[str, str, str], _Target] = {}
        self._tasks: dict[tuple[str, str, str], asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    def follow(self, edges: Iterable[EdgeInfo]) -> None:
        """These edges from now on."""
        wanted = {(edge.edge, edge.lan, edge.metrics) for edge in edges if edge.metrics is not None}
        for gone in self._tasks.keys() - wanted:
            task = self._tasks.pop(gone)
            del self._targets[gone]
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        for new in wanted - self._tasks.keys():
            target = self._targets[new] = _Target(new[2])
            self._tasks[new] = asyncio.create_task(target.run(self._slots), name=f"scrape-{new[0]}")

    def check(self) -> None:
        """Raises what a task failed with; none ends by itself."""
        for task in self._tasks.values():
            if task.done():
                task.result()

    def increases(self) -> list[tuple[str, Increase]]:
        """What each edge counted lately, by its LAN."""
        found = []
        for (_, lan, _), target in self._targets.items():
            increase = target.history.increase()
            if increase is not None:
                found.append((lan, increase))
        return found

    def problems(self) -> dict[str, str]:
        """Why edges that should tell something do not, by their id."""
        return {
            edge: target.problem
            for (edge, _, _), target in sorted(self._targets.items())
            if target.problem is not None
        }

    async def close(self) -> None:
        self.follow(())
        await end_tasks(self._ending)


class _Target:
    """One edge."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.history = History()
        self.problem: str | None = None
        self._pages = PageReader()
        self._failures = 0

    async def run(self, slots: asyncio.Semaphore) -> None:
        while True:
            begun_s = time.monotonic()
            async with slots:
                rest_s = await self._scrape() / _SHARE
            await asyncio.sleep(max(rest_s, EVERY_S - (time.monotonic() - begun_s)))

    async def _scrape(self) -> float:
        """Returns for how long the edge was busy with it."""
        try:
            page = await fetch_page(self._address, "/metrics")
            self.history.add(self._pages.read(page.body.decode(), time.monotonic()))
        except (PageError, ValueError) as error:
            self._failures += 1
            is_page = isinstance(error, PageError)
            self.problem = str(error) if is_page else f"{self._address} serves no metrics"
            if self._failures >= _LOST_AFTER:
                self.history.clear()
            return 0.0
        self._failures = 0
        self.problem = None
        return page.took_s
