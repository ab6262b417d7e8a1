"""Gets types where they are needed: from local applications into the tree, and from the tree (or
from local applications) into something a DDS topic can be made of. Works in a thread of its own,
because asking may wait for the network; wakes its owner when something became available.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from edge_broker.dds import types
from edge_broker.dds.discovery import Discovery
from edge_broker.dds.domain import LanDomain
from edge_broker.dds.types import TopicType
from gateway.errors import CoordinationError, TypeUnavailable
from gateway.observe.logs import get_logger
from gateway.observe.metrics import BrokerMetrics

_log = get_logger("edge.types")

_FETCH_TIMEOUT_NS = 5_000_000_000
_RETRY_AFTER_S = 5.0
_MOST_KNOWN = 10_000


class TypeStore(Protocol):
    """Where types are kept for other LANs (`gateway.coordination.types`)."""

    def is_stored(self, hash: str) -> bool: ...

    async def put(self, hash: str, blob: bytes) -> None: ...

    async def get(self, hash: str) -> bytes | None: ...


class TypeShop:
    """Answers at once with what it has and otherwise sees to getting it."""

    def __init__(
        self,
        domain: LanDomain,
        discovery: Discovery,
        store: TypeStore,
        *,
        on_change: Callable[[], None],
        metrics: BrokerMetrics,
    ) -> None:
        self._domain = domain
        self._discovery = discovery
        self._store = store
        self._on_change = on_change
        self._metrics = metrics
        self._blobs: dict[str, bytes] = {}
        self._published: set[str] = set()
        self._built: dict[tuple[str, str | None, bool], TopicType] = {}
        self._problems: dict[str, str] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._reported: set[str] = set()
        # Fetching may wait for an application that does not answer; the others need not.
        self._fetchers = ThreadPoolExecutor(max_workers=4, thread_name_prefix="type-fetch")
        self._builder = ThreadPoolExecutor(max_workers=1, thread_name_prefix="type-build")

    def is_published(self, hash_: str) -> bool:
        """Whether other LANs can read this type of a local application; sees to it when not. One
        that has to be stored again stays published meanwhile: nothing announced is taken back."""
        if not self._store.is_stored(hash_) and hash_ in self._discovery.type_identifiers:
            self._work(f"publish {hash_}", lambda: self._publish(hash_))
        return hash_ in self._published

    def topic_type(self, name: str, hash_: str | None, keyed: bool) -> TopicType | None:
        """The type of a topic; None when it is not available (yet)."""
        key = (name, hash_, keyed)
        built = self._built.get(key)
        if built is None:
            self._work(f"build {name} {hash_}", lambda: self._build(name, hash_, keyed))
        return built

    def problem(self, name: str, hash_: str | None) -> str | None:
        """Why a type is not available, when its last attempt failed."""
        return self._problems.get(f"build {name} {hash_}") or self._problems.get(f"publish {hash_}")

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values())
        self._fetchers.shutdown(wait=False, cancel_futures=True)
        self._builder.shutdown(wait=False, cancel_futures=True)

    def _work(self, what: str, start: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if what in self._tasks:
            return
        task = asyncio.get_running_loop().create_task(
            self._attempt(what, start()), name=f"type shop: {what}"
        )
        self._tasks[what] = task
        task.add_done_callback(lambda _: self._tasks.pop(what, None))

    async def _attempt(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        """One attempt. A failed one keeps its place for a while, so that it is not repeated with
        every change of the LAN."""
        try:
            await work
            self._problems.pop(what, None)
            self._reported.discard(what)
        except (TypeUnavailable, CoordinationError) as error:
            self._problems[what] = str(error)
            self._metrics.bad_types.labels(reason=type(error).__name__).inc()
            if what not in self._reported:
                self._reported.add(what)
                _log.warning(
                    "a type is not available, its topics wait; see the reason",
                    what=what,
                    reason=str(error),
                )
            if len(self._problems) > _MOST_KNOWN:
                del self._problems[next(iter(self._problems))]
            await asyncio.sleep(_RETRY_AFTER_S)
        finally:
            work.close()
        # After the task has left its place: the owner may ask at once.
        asyncio.get_running_loop().call_soon(self._on_change)

    async def _publish(self, hash_: str) -> None:
        blob = await self._local_blob(hash_)
        await self._store.put(hash_, blob)
        self._published.add(hash_)

    async def _build(self, name: str, hash_: str | None, keyed: bool) -> None:
        if hash_ is None:
            built = types.opaque(name, keyed)
        else:
            blob = self._blobs.get(hash_) or await self._store.get(hash_)
            if blob is None and hash_ in self._discovery.type_identifiers:
                blob = await self._local_blob(hash_)
            if blob is None:
                raise TypeUnavailable(f"type {name} ({hash_}) is not in the tree yet")
            built = await asyncio.get_running_loop().run_in_executor(
                self._builder, types.rebuild, name, hash_, blob
            )
        if len(self._built) >= _MOST_KNOWN:
            del self._built[next(iter(self._built))]
        self._built[name, hash_, keyed] = built

    async def _local_blob(self, hash_: str) -> bytes:
        blob = self._blobs.get(hash_)
        if blob is None:
            identifier = self._discovery.type_identifiers[hash_]
            blob = await asyncio.get_running_loop().run_in_executor(
                self._fetchers,
                types.fetch,
                self._domain.participant._ref,
                identifier,
                _FETCH_TIMEOUT_NS,
            )
            self._blobs[hash_] = blob
        return blob
