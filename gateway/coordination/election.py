"""Elects one leader among the candidates of a fabric: the lowest ephemeral sequential node under
leader/ wins and each candidate watches only the one before it. Used by the routing broker (and
`read_leader` by `status`); what a leader does is elsewhere.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from gateway.coordination.nodes import NodeExists, NoNode, SessionState
from gateway.coordination.paths import FabricPaths
from gateway.coordination.records import decode_candidate, encode_candidate
from gateway.coordination.zookeeper import ZooKeeper
from gateway.errors import CoordinationError, CoordinationLost, RecordError
from gateway.observe.logs import get_logger

log = get_logger("coordination")

_NODE = re.compile(r"[A-Za-z0-9_-]+-(\d{10})")
_LOOK_S = 5.0
"""How often the election is looked at without being woken: repairs a lost watch."""
_RESIGN_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class Leadership:
    """The right to write assignments: it holds as long as the node exists."""

    node: str
    epoch: int


class Election:
    """One candidate. `leadership` is None unless it is known to hold right now."""

    def __init__(self, zk: ZooKeeper, paths: FabricPaths, candidate: str) -> None:
        self._zk = zk
        self._paths = paths
        self._candidate = candidate
        # Tells this life's nodes from all others: a node made by a request whose answer was lost
        # must be found again.
        self._prefix = f"{uuid.uuid4().hex}-"
        self._leadership: Leadership | None = None
        self._callbacks: list[Callable[[Leadership | None], None]] = []
        self._wake = asyncio.Event()

    @property
    def leadership(self) -> Leadership | None:
        return self._leadership

    def on_change(self, callback: Callable[[Leadership | None], None]) -> None:
        """Calls back on the loop when leadership is won, paused, resumed or lost."""
        self._callbacks.append(callback)

    async def run(self) -> None:
        """Stands for election until cancelled, then resigns."""
        unsubscribe = self._zk.subscribe(self._on_state)
        try:
            while True:
                await self._zk.connected()
                self._wake.clear()
                try:
                    self._become(await self._look())
                except CoordinationLost:
                    self._become(None)
                    continue
                except CoordinationError as error:
                    self._become(None)
                    log.warning("the election cannot go on; trying again", error=error)
                await self._wait()
        finally:
            unsubscribe()
            self._become(None)
            await self._resign()

    def _on_state(self, state: SessionState) -> None:
        if state is not SessionState.CONNECTED:
            self._become(None)
        self._wake.set()

    def _on_event(self, _path: str) -> None:
        self._wake.set()

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(_LOOK_S):
                await self._wake.wait()
        except TimeoutError:
            return

    def _become(self, leadership: Leadership | None) -> None:
        if leadership == self._leadership:
            return
        self._leadership = leadership
        if leadership is None:
            log.info("leading no longer", router=self._candidate)
        else:
            log.info("leading", router=self._candidate, epoch=leadership.epoch)
        for callback in list(self._callbacks):
            callback(leadership)

    async def _look(self) -> Leadership | None:
        """One pass: makes sure that one candidate node stands, and says whether it has won."""
        session = self._zk.session_id
        queue = await _queue(self._zk, self._paths)
        standing: list[Leadership] = []
        for path in queue:
            if not path.startswith(f"{self._paths.leader}/{self._prefix}"):
                continue
            found = await self._zk.get(path, self._on_event)
            if found is not None and found[1].ephemeral_owner == session and not standing:
                standing.append(Leadership(path, found[1].czxid))
            elif found is not None:
                await self._delete(path)  # of an older session, or one too many
        if not standing:
            await self._stand()
            self._wake.set()
            return None
        position = queue.index(standing[0].node)
        if position == 0:
            return standing[0] if self._zk.is_connected else None
        if await self._zk.get(queue[position - 1], self._on_event) is None:
            self._wake.set()
        return None

    async def _stand(self) -> None:
        data = encode_candidate(self._candidate)
        try:
            await self._zk.create_sequential(f"{self._paths.leader}/{self._prefix}", data)
        except NoNode:
            try:
                await self._zk.create(self._paths.leader, parents=True)
            except NodeExists:
                return

    async def _delete(self, path: str) -> None:
        try:
            await self._zk.delete(path)
        except NoNode:
            return

    async def _resign(self) -> None:
        """Lets the next candidate win at once; the end of the session would do it too."""
        try:
            async with asyncio.timeout(_RESIGN_TIMEOUT_S):
                for path in await _queue(self._zk, self._paths):
                    if path.startswith(f"{self._paths.leader}/{self._prefix}"):
                        await self._delete(path)
        except (CoordinationLost, TimeoutError):
            log.info("the candidacy ends with the session", router=self._candidate)


async def read_leader(zk: ZooKeeper, paths: FabricPaths) -> tuple[str, int] | None:
    """(candidate, epoch) of the current leader; None when there is none."""
    for path in await _queue(zk, paths):
        found = await zk.get(path)
        if found is not None:
            try:
                return decode_candidate(found[0], path), found[1].czxid
            except RecordError as error:
                log.warning("the leader cannot be named; trying again", error=error)
                return None
    return None


async def _queue(zk: ZooKeeper, paths: FabricPaths) -> list[str]:
    """The candidate nodes, the leader's first; other nodes do not count."""
    matches = [_NODE.fullmatch(name) for name in await zk.children(paths.leader) or []]
    numbered = sorted((int(match[1]), match[0]) for match in matches if match)
    return [f"{paths.leader}/{name}" for _, name in numbered]
