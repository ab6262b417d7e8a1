"""Keeps this process's own ephemeral nodes in the tree: who it is and what it announces. Used by
both brokers, which declare the whole set; what the nodes say is decided elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from gateway.coordination.nodes import (
    Create,
    Delete,
    NodeExists,
    NodeRefused,
    Operation,
    SessionState,
    SetData,
)
from gateway.coordination.paths import FabricPaths
from gateway.coordination.records import incarnation_of
from gateway.coordination.zookeeper import ZooKeeper, together
from gateway.errors import CoordinationError, CoordinationLost
from gateway.model import Direction
from gateway.observe.logs import get_logger

log = get_logger("coordination")

_DEBOUNCE_S = 0.01
_FIRST_RETRY_S = 0.01
_LAST_RETRY_S = 1.0
_WORTH_TELLING_S = 0.1
_EXPIRY_MARGIN_S = 2.0
_CLAIM_LOOK_S = 0.5
_WITHDRAW_TIMEOUT_S = 3.0
_MOST_OPERATIONS = 128
_MOST_BYTES = 500_000


class Registrar:
    """Converges the tree to the declared nodes. `identity` is the path of the node that stands
    for the process (edges/<id> or routers/<id>): nobody else may hold it, it comes first and
    goes last."""

    def __init__(
        self, zk: ZooKeeper, paths: FabricPaths, identity: str, *, verify_s: float = 30.0
    ) -> None:
        self._zk = zk
        self._paths = paths
        self._identity = identity
        self._verify_s = verify_s
        self._desired: dict[str, bytes] = {}
        self._session: int | None = None
        self._known: dict[str, bytes] = {}
        """What stands in the tree under this session."""
        self._unsure: set[str] = set()
        """What has to be read before it can be compared."""
        self._places: set[str] = set()
        """Topics and directories that were there when last looked at."""
        self._failure: CoordinationError | None = None
        self._wake = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self._pass_lock = asyncio.Lock()

    def declare(self, nodes: dict[str, bytes]) -> None:
        """Sets the whole set of nodes this process has, by path."""
        if nodes != self._desired:
            self._desired = dict(nodes)
            self._settled.clear()
            self._wake.set()

    async def settled(self, timeout_s: float) -> None:
        """Returns when the tree holds what was declared; raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            await self._settled.wait()

    async def run(self) -> None:
        """Converges until cancelled. Raises CoordinationError when the identity belongs to
        another live process."""
        unsubscribe = self._zk.subscribe(self._on_state)
        self._wake.set()
        retry_s = _FIRST_RETRY_S
        told = ""
        try:
            while True:
                await self._wait()
                await self._zk.connected()
                self._wake.clear()
                try:
                    is_settled = await self._pass()
                except CoordinationLost:
                    self._wake.set()
                    continue
                if is_settled:
                    retry_s = _FIRST_RETRY_S
                else:
                    # The first refusals are races with others, not worth a word.
                    if retry_s > _WORTH_TELLING_S and self._failure and str(self._failure) != told:
                        told = str(self._failure)
                        log.warning("announcements are incomplete; trying again", error=told)
                    await asyncio.sleep(retry_s)
                    retry_s = min(2 * retry_s, _LAST_RETRY_S)
                    self._wake.set()
        finally:
            unsubscribe()

    async def withdraw(self) -> None:
        """Deletes every own node, whether `run` is still running or not. Bounded in time: what is
        left then goes with the session."""
        self.declare({})
        try:
            async with asyncio.timeout(_WITHDRAW_TIMEOUT_S):
                while True:
                    if await self._pass():
                        return
                    await asyncio.sleep(_FIRST_RETRY_S)
        except (CoordinationError, TimeoutError) as error:
            log.warning("announcements cannot be withdrawn; they go with the session", error=error)

    def _on_state(self, state: SessionState) -> None:
        if state is not SessionState.CONNECTED:
            # What was under way may or may not have happened.
            self._unsure |= self._known.keys()
            self._settled.clear()
        self._wake.set()

    def _on_event(self, _path: str) -> None:
        self._wake.set()

    async def _wait(self) -> None:
        """Until woken, or until it is time to look whether everything still stands."""
        try:
            async with asyncio.timeout(self._verify_s):
                await self._wake.wait()
        except TimeoutError:
            self._unsure |= self._known.keys()
        else:
            await asyncio.sleep(_DEBOUNCE_S)

    async def _pass(self) -> bool:
        """Compares and mends once; True when the tree holds what was declared."""
        async with self._pass_lock:
            desired, session = self._desired, self._zk.session_id
            if self._session != session:
                self._session = session
                self._unsure |= self._known.keys() | desired.keys()
                self._known.clear()
            if self._identity in desired:
                await self._claim(desired[self._identity])
            stale = await self._resolve()
            try:
                await self._mend(desired, stale)
            except (CoordinationError, asyncio.CancelledError):
                self._unsure |= stale
                raise
            if self._known.keys() == {self._identity} and self._identity not in desired:
                await self._perform([Delete(self._identity)])
            self._places &= {self._place(path) for path in desired} | {self._paths.topics}
            is_settled = (
                self._known == self._desired
                and not self._unsure
                and self._zk.is_connected
                and self._zk.session_id == session
            )
            if is_settled:
                self._settled.set()
            return is_settled

    async def _claim(self, data: bytes) -> None:
        """Makes the identity node this session's, or waits for whoever left it behind."""
        path = self._identity
        if self._known.get(path) == data and path not in self._unsure:
            return
        loop = asyncio.get_running_loop()
        patience_s = self._zk.session_timeout_s + _EXPIRY_MARGIN_S
        deadline: float | None = None
        while True:
            found = await self._zk.get(path, self._on_event if deadline else None)
            try:
                if found is None:
                    await self._prepare(self._place(path))
                    await self._zk.create_ephemeral(path, data)
                    break
                there, stat = found
                if stat.ephemeral_owner == self._session:
                    if there != data:
                        await self._zk.set(path, data)
                    break
                if incarnation_of(there) == incarnation_of(data) is not None:
                    await self._zk.transaction(
                        [Delete(path, stat.version), Create(path, data, ephemeral=True)]
                    )
                    break
            except NodeRefused:
                await asyncio.sleep(_FIRST_RETRY_S)  # somebody was quicker: look again
                continue
            kind, name = self._paths.parts(path)
            kind = kind.removesuffix("s")
            if deadline is None:
                deadline = loop.time() + patience_s
                log.warning(
                    "waiting for the previous session of this id to expire; "
                    "is it in use elsewhere?",
                    kind=kind,
                    id=name,
                )
            if loop.time() > deadline:
                raise CoordinationError(
                    f"{kind} id {name!r} is already in use by another live process "
                    f"(session {stat.ephemeral_owner:#x}); choose another --id"
                )
            self._wake.clear()
            try:
                async with asyncio.timeout(_CLAIM_LOOK_S):
                    await self._wake.wait()
            except TimeoutError:
                continue
        self._known[path] = data
        self._unsure.discard(path)

    async def _resolve(self) -> set[str]:
        """Reads what is unsure; returns the paths of own nodes that older sessions left. Whoever
        holds the identity owns every node that carries its name."""
        unsure, self._unsure = self._unsure, set()
        stale = set()
        try:
            for path, found in zip(
                unsure, await together(self._zk.get(path) for path in unsure), strict=True
            ):
                self._known.pop(path, None)
                if found is not None and found[1].ephemeral_owner == self._session:
                    self._known[path] = found[0]
                elif found is not None and path != self._identity:
                    stale.add(path)
        except (CoordinationError, asyncio.CancelledError):
            self._unsure |= unsure
            raise
        return stale

    async def _mend(self, desired: dict[str, bytes], stale: set[str]) -> None:
        """Performs what is missing, a chunk of places per transaction. The operations of one place
        stay together, so that a replaced announcement is never absent."""
        groups: dict[str, list[Operation]] = {}
        for path in sorted((self._known.keys() | stale | desired.keys()) - {self._identity}):
            operations = _operations(
                path, self._known.get(path), desired.get(path), is_stale=path in stale
            )
            if operations:
                groups.setdefault(self._place(path), []).extend(operations)
        making = [
            place
            for place, operations in groups.items()
            if any(isinstance(operation, Create) for operation in operations)
        ]
        for place, missing in zip(
            making, await together(self._prepare(place) for place in making), strict=True
        ):
            groups[place][:0] = missing
        await together(self._perform_groups(chunk) for chunk in _chunks(groups.values()))

    async def _perform_groups(self, groups: list[list[Operation]]) -> None:
        """One transaction for all; when that is refused, one for each, so that one bad node does
        not hold up its neighbours."""
        if not await self._perform([operation for group in groups for operation in group]):
            for group in groups if len(groups) > 1 else []:
                await self._perform(group)

    async def _perform(self, operations: list[Operation]) -> bool:
        own = {operation.path for operation in operations if not _is_persistent(operation)}
        places = {self._place(path) for path in own}
        try:
            await self._zk.transaction(operations)
        except (CoordinationLost, asyncio.CancelledError):
            self._unsure |= own
            raise
        except CoordinationError as error:
            self._unsure |= own
            self._places -= places | {self._paths.topics}
            self._failure = error
            return False
        self._places |= places
        for operation in operations:
            match operation:
                case Create(path, data, True) | SetData(path, data):
                    self._known[path] = data
                case Delete(path):
                    self._known.pop(path, None)
        return True

    def _place(self, path: str) -> str:
        """What has to be there before the node: its topic, else its directory."""
        match self._paths.parts(path):
            case ("topics", topic, _, _):
                return f"{self._paths.topics}/{topic}"
        return _parent(path)

    async def _prepare(self, place: str) -> list[Operation]:
        """What makes the place. A topic and its two directories come and go together (whoever
        sees the one relies on the others), and come in one transaction with their first
        announcement: a leader that deletes empty topics cannot step in between."""
        if place in self._places:
            return []
        if _parent(place) != self._paths.topics:
            await self._ensure(place)
            return []
        names = await self._zk.children(place)
        if names is None and self._paths.topics not in self._places:
            await self._ensure(self._paths.topics)
            self._places.add(self._paths.topics)
        missing: list[Operation] = [
            Create(f"{place}/{direction}")
            for direction in Direction
            if direction.value not in (names or ())
        ]
        return [Create(place), *missing] if names is None else missing

    async def _ensure(self, path: str) -> None:
        try:
            await self._zk.create(path, parents=True)
        except NodeExists:
            return


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _is_persistent(operation: Operation) -> bool:
    return isinstance(operation, Create) and not operation.ephemeral


def _operations(
    path: str, have: bytes | None, want: bytes | None, *, is_stale: bool
) -> list[Operation]:
    operations: list[Operation] = []
    if is_stale or (have is not None and want is None):
        operations.append(Delete(path))
    if want is not None and have is None:
        operations.append(Create(path, want, ephemeral=True))
    elif want is not None and want != have:
        operations.append(SetData(path, want))
    return operations


def _chunks(groups: Iterable[list[Operation]]) -> Iterator[list[list[Operation]]]:
    chunk: list[list[Operation]] = []
    operations = size = 0
    for group in groups:
        group_size = sum(len(getattr(op, "data", b"")) + len(op.path) for op in group)
        if chunk and (
            operations + len(group) > _MOST_OPERATIONS or size + group_size > _MOST_BYTES
        ):
            yield chunk
            chunk, operations, size = [], 0, 0
        chunk.append(group)
        operations += len(group)
        size += group_size
    if chunk:
        yield chunk
