"""The live view of `ddswan status`: follows the tree, has the edges scraped and draws once a second
and after every key. Called by status.py; what is drawn is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import signal
import sys
import time
from dataclasses import replace

from gateway.commands.live_notices import Coordination, Departures, make_notices
from gateway.commands.live_screen import Scene, draw, rows_shown
from gateway.commands.live_table import Controls, Routes, arrange, make_rows, press, read_keys
from gateway.commands.live_terminal import Terminal
from gateway.commands.rates import traffic_of
from gateway.commands.scrape import Scraper
from gateway.config import Config
from gateway.coordination.election import read_leader
from gateway.coordination.view import FabricWatcher
from gateway.coordination.zookeeper import ZooKeeper
from gateway.errors import CoordinationError
from gateway.lifetime import Lifetime, run_until_signalled
from gateway.model import FabricView
from gateway.observe.logs import set_up_logging
from gateway.observe.metric_labels import OTHER_TOPICS

_EVERY_S = 1.0
_UNTIL_READ_EVERY_S = 0.1
_LEADER_EVERY_S = 2.0
_LOG_SHOWN_S = 10.0


def watch(config: Config, log_level: str) -> int:
    """Shows the fabric until the user has enough; returns the exit code."""
    log = _LogTail()
    if sys.stderr.isatty():  # else it does not get in the way of the screen
        set_up_logging(log_level, config.log.format, log)
    try:
        return asyncio.run(_watch(config, log))
    except Exception:
        sys.stderr.write(log.getvalue())  # what led to it
        raise


async def _watch(config: Config, log: _LogTail) -> int:
    lifetime = Lifetime()
    return await run_until_signalled(LiveView(config, lifetime, log).run, lifetime)


class LiveView:
    """One view from start to end."""

    def __init__(self, config: Config, lifetime: Lifetime, log: _LogTail) -> None:
        self._fabric = config.fabric
        self._lifetime = lifetime
        self._log = log
        self._zk = ZooKeeper(
            ",".join(config.zookeeper.hosts),
            config.fabric,
            session_timeout_s=config.zookeeper.session_timeout_s,
        )
        self._watcher = FabricWatcher(self._zk, self._zk.paths, makes_fabric=False)
        self._scraper = Scraper()
        self._routes = Routes()
        self._departures = Departures()
        self._leader: str | None = None
        self._is_leader_known = False
        self._controls = Controls()
        self._scene = Scene()
        self._terminal = Terminal(self._on_input, self._draw)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        self._watcher.follow(None)
        self._watcher.on_change(self._on_view)
        try:
            with self._terminal:
                loop.add_signal_handler(signal.SIGHUP, self._lifetime.stop)
                self._lifetime.spawn("tree", self._follow_tree())
                self._lifetime.spawn("screen", self._refresh())
                await self._lifetime.until_stop_or_failure()
        finally:
            await self._lifetime.end()
            await self._scraper.close()
            await self._zk.stop()

    # ------------------------------------------------------------ the fabric

    async def _follow_tree(self) -> None:
        await self._zk.start()
        await asyncio.gather(self._watcher.run(), self._follow_leader())

    async def _follow_leader(self) -> None:
        while True:
            # While ZooKeeper is away the leader is who it was.
            with contextlib.suppress(CoordinationError):
                found = await read_leader(self._zk, self._zk.paths)
                self._leader = found and found[0]
                self._is_leader_known = True
            await asyncio.sleep(_LEADER_EVERY_S)

    def _on_view(self, view: FabricView) -> None:
        self._routes.update(view)
        self._departures.update(view, time.monotonic())
        self._scraper.follow(view.edges.values())

    @property
    def _is_read(self) -> bool:
        return self._watcher.is_read and self._is_leader_known

    def _compose(self) -> Scene:
        view = self._watcher.view
        traffic = traffic_of(self._scraper.increases())
        states = self._routes.states
        title = [
            f"fabric {self._fabric}",
            f"leader {self._leader or '-'}",
            f"routers {len(view.routers)}",
            f"edges {len(view.edges)}",
            f"routes {len(states)}",
            f"local topics {self._routes.local_topics}",
        ]
        return Scene(
            "  ".join(title),
            tuple(self._notices(view)),
            tuple(make_rows(states, traffic, OTHER_TOPICS)),
        )

    def _notices(self, view: FabricView) -> list[str]:
        now_s = time.monotonic()
        coordination = Coordination(
            self._zk.hosts, self._zk.is_connected, self._is_read, self._leader
        )
        gone = self._departures.recent(now_s)
        has_routes = bool(self._routes.states)
        notices = make_notices(coordination, view, has_routes, gone, self._scraper.problems())
        if now_s - self._log.written_s < _LOG_SHOWN_S:
            notices.append(self._log.last)
        return notices

    # ------------------------------------------------------------ screen and keys

    async def _refresh(self) -> None:
        while True:
            self._scraper.check()
            if not self._controls.is_paused:
                self._scene = self._compose()
            self._draw()
            await asyncio.sleep(_EVERY_S if self._is_read else _UNTIL_READ_EVERY_S)

    def _on_input(self, text: str) -> None:
        """Keys; nothing at all: the terminal is gone."""
        for key in read_keys(text):
            rows = len(arrange(self._scene.rows, self._controls))
            width, height = self._terminal.size
            page = rows_shown(self._scene, height)
            self._controls = press(self._controls, key, rows, page, width)
        if not text:
            self._controls = replace(self._controls, is_done=True)
        if self._controls.is_done:
            self._lifetime.stop()
        else:
            self._draw()

    def _draw(self) -> None:
        size = self._terminal.size
        self._terminal.show(draw(self._scene, self._controls, *size), size)


class _LogTail(io.StringIO):
    """What would be logged while the screen is taken: the last line to show, all of it to print
    if the view ends by an error."""

    _MOST = 100_000

    def __init__(self) -> None:
        super().__init__()
        self.last = ""
        self.written_s = float("-inf")

    def write(self, text: str) -> int:
        if text.strip():
            self.last = text.strip()
            self.written_s = time.monotonic()
        if self.tell() > self._MOST:
            self.seek(0)
            self.truncate()
        return super().write(text)
