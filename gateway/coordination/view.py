"""Keeps a FabricView of the tree: watches mark paths dirty, one task rereads them and tells its
listeners when something differs. Used by both brokers and by `status`; decides nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from gateway.coordination.nodes import NodeExists, SessionState
from gateway.coordination.paths import FabricPaths
from gateway.coordination.reader import TreeReader
from gateway.coordination.zookeeper import ZooKeeper, together
from gateway.errors import CoordinationError, CoordinationLost
from gateway.model import FabricView
from gateway.observe.logs import get_logger

log = get_logger("coordination")

_DEBOUNCE_S = 0.02
_SWEEP_SLICES = 10
"""The periodic pass is spread over its period, because a burst of thousands of reads would
delay the samples of the same process."""


class FabricWatcher:
    """Follows one fabric. While ZooKeeper is away the last view stays."""

    def __init__(
        self,
        zk: ZooKeeper,
        paths: FabricPaths,
        *,
        full_pass_s: float = 10.0,
        makes_fabric: bool = True,
    ) -> None:
        """`makes_fabric`: whether `run` makes the fabric's directories when they are missing, to
        learn at once what comes; who only looks on leaves no trace, and learns it later."""
        self._zk = zk
        self._paths = paths
        self._makes_fabric = makes_fabric
        self._sweep_s = full_pass_s / _SWEEP_SLICES
        self._slice = 0
        self._reader = TreeReader(zk, paths, self._mark)
        self._view = FabricView()
        self._callbacks: list[Callable[[FabricView], None]] = []
        self._dirty: set[str] = set()
        self._wake = asyncio.Event()
        self._told = ""
        self._is_read = False
        self._pass_lock = asyncio.Lock()

    @property
    def view(self) -> FabricView:
        return self._view

    @property
    def is_read(self) -> bool:
        """Whether everything followed has been read once: what the view lacks is not there, or is
        a record that cannot be read."""
        return self._is_read

    @property
    def malformed(self) -> Counter[str]:
        """Records that could not be read so far, by kind: edge, router, topic, assignment,
        announcement."""
        return self._reader.malformed.counts

    def on_change(self, callback: Callable[[FabricView], None]) -> None:
        """Calls back on the loop with the first view that was read, and with every one that differs
        from the one before."""
        self._callbacks.append(callback)

    def follow(self, topics: frozenset[str] | None) -> None:
        """Chooses the topics that are read, existing or not yet; None: all there are. Nothing is
        followed until this is called."""
        if topics != self._reader.followed:
            self._reader.followed = topics
            self._mark(self._paths.topics)

    async def run(self) -> None:
        """Keeps the view fresh until cancelled."""
        loop = asyncio.get_running_loop()
        unsubscribe = self._zk.subscribe(self._on_state)
        self._mark_all()
        try:
            next_sweep = loop.time() + self._sweep_s
            while True:
                try:
                    async with asyncio.timeout_at(next_sweep):
                        await self._wake.wait()
                except TimeoutError:
                    next_sweep = loop.time() + self._sweep_s
                    self._mark_slice()
                else:
                    await asyncio.sleep(_DEBOUNCE_S)
                self._wake.clear()
                if self._zk.is_connected:
                    await self._pass()
        finally:
            unsubscribe()

    async def refresh(self) -> FabricView:
        """Reads everything now; raises CoordinationError when that is not possible. Single records
        that may not be read do not count, they are reported and skipped."""
        self._mark_all()
        await self._read_dirty()
        return self._view

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._mark_all()  # the watches went with the connection

    def _mark(self, path: str) -> None:
        self._dirty.add(path)
        self._wake.set()

    def _mark_all(self) -> None:
        self._dirty |= self._reader.common_paths()
        for topic in self._reader.topics:
            self._dirty.update(self._reader.topic_paths(topic))
        self._wake.set()

    def _mark_slice(self) -> None:
        """The periodic pass: repairs what a lost watch left behind."""
        self._slice = (self._slice + 1) % _SWEEP_SLICES
        if self._slice == 0:
            self._dirty |= self._reader.common_paths()
        for topic in self._reader.topics[self._slice :: _SWEEP_SLICES]:
            self._dirty.update(self._reader.topic_paths(topic))

    async def _pass(self) -> None:
        try:
            await self._read_dirty()
            if self._reader.is_fabric_missing and self._makes_fabric:
                await self._make_fabric()
        except CoordinationLost:
            return  # what was dirty still is; the connection's return wakes the task
        except CoordinationError as error:
            if str(error) != self._told:
                self._told = str(error)
                log.warning(
                    "the view is incomplete; what could be read is used, the rest read again",
                    fabric=self._paths.fabric,
                    error=error,
                )

    async def _read_dirty(self) -> None:
        """Rereads what is dirty and what that leads to, then publishes the view; what could not be
        read stays dirty, and why is raised then."""
        async with self._pass_lock:
            pending, self._dirty = self._dirty, set()
            seen = set(pending)
            failed: dict[str, CoordinationError] = {}
            try:
                while pending:
                    found = await together(self._read(path, failed) for path in pending)
                    # Also what was read before: a new topic's paths were passed over then.
                    pending = set().union(*found)
                    seen |= pending
            except CoordinationLost:
                self._dirty |= seen
                raise
            self._dirty |= failed.keys()
            self._publish(is_whole=not failed)
            if failed:
                raise next(iter(failed.values()))

    async def _read(self, path: str, failed: dict[str, CoordinationError]) -> set[str]:
        try:
            return await self._reader.read(path)
        except CoordinationLost:
            raise
        except CoordinationError as error:
            failed[path] = error
            return set()

    def _publish(self, *, is_whole: bool) -> None:
        is_first = is_whole and not self._is_read
        self._is_read |= is_whole
        view = self._reader.view()
        if is_first or view != self._view:
            self._view = view
            for callback in list(self._callbacks):
                callback(view)

    async def _make_fabric(self) -> None:
        """A watch cannot be left on a directory that does not exist."""
        for path in self._paths.skeleton:
            try:
                await self._zk.create(path, parents=True)
            except NodeExists:
                continue
        self._reader.is_fabric_missing = False
        self._mark_all()
