"""The one door to ZooKeeper, with kazoo_words.py: nothing else imports kazoo. Used by everybody in
gateway/coordination and built by the brokers' app modules; knows nothing of what nodes mean.

kazoo lives in threads of its own; they only wake the loop. Requests are handed to kazoo from the
loop: that is one append and one byte on a socket pair, and it cannot block because at most
`_WINDOW` requests are under way (the pair holds 277 unread bytes before a write would wait).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from kazoo import exceptions as kz
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.hosts import collect_hosts
from kazoo.protocol.states import EventType, KazooState
from kazoo.retry import KazooRetry

from gateway import slices
from gateway.coordination.kazoo_words import is_refusal, request_of, translated
from gateway.coordination.nodes import (
    ANY_VERSION,
    NodeStat,
    NoNode,
    Operation,
    SessionState,
)
from gateway.coordination.paths import FabricPaths
from gateway.errors import ConfigError, CoordinationError, CoordinationLost
from gateway.observe.logs import get_logger

log = get_logger("coordination")

_T = TypeVar("_T")

_WINDOW = 64
_LARGEST_REQUEST = 1_000_000
"""ZooKeeper cuts the connection of whoever sends more than 1,048,575 bytes."""
_REMINDER_S = 30.0
_STOP_TIMEOUT_S = 3.0
_GREETING_S = 2.0
"""How long a server may take to open a session before it is asked anew."""


def _silence_kazoo() -> None:
    """This module reports what kazoo does, once and in one line; kazoo itself warns at every
    attempt and prints tracebacks."""
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo gives one host that cannot be reached, or does not greet, the whole session timeout,
    which costs the session. A server that is just starting may never greet who came too early."""

    def __init__(self, connect_timeout_s: float) -> None:
        super().__init__()
        self._connect_timeout_s = connect_timeout_s
        self._is_greeting = False

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        self._is_greeting = True
        return super().create_connection(*args, **{**kwargs, "timeout": self._connect_timeout_s})

    def select(self, reading: Any, writing: Any, failing: Any, timeout: float | None) -> Any:
        if len(reading) > 1:  # answers and requests: a conversation
            self._is_greeting = False
        if self._is_greeting and timeout is not None:
            timeout = min(timeout, _GREETING_S)
        return super().select(reading, writing, failing, timeout)


@dataclass(frozen=True, slots=True)
class _Watch:
    """Equal for equal callbacks, so that re-arming a watch that has not fired adds nothing."""

    loop: asyncio.AbstractEventLoop
    callback: Callable[[str], None]

    def __call__(self, event: Any) -> None:
        # A lost connection fires every watch without a path; the state change tells that better.
        if event.type != EventType.NONE:
            self.loop.call_soon_threadsafe(self.callback, event.path)


class ZooKeeper:
    """A session with ZooKeeper that is reopened for ever. Every method belongs on the loop."""

    def __init__(
        self,
        hosts: str,
        fabric: str,
        *,
        session_timeout_s: float = 10.0,
        on_answer: Callable[[str, float], None] | None = None,
    ) -> None:
        """`on_answer` is told of each request: its name, and the seconds it took."""
        try:
            listed, _ = collect_hosts(hosts)
            for host, _ in listed:
                host.encode("idna")  # the resolver would raise this in kazoo's thread
        except ValueError as error:
            raise ConfigError(
                f"ZooKeeper address {hosts!r} cannot be read; write host:port[,host:port…]"
            ) from error
        self.hosts = hosts
        self.paths = FabricPaths(fabric)
        self.session_timeout_s = session_timeout_s
        self._connect_timeout_s = max(1.0, session_timeout_s / (1 + len(listed)))
        self._on_answer = on_answer
        self._state = SessionState.CLOSED
        self._session_id: int | None = None
        self._client: Any = None
        self._callbacks: list[Callable[[SessionState], None]] = []
        self._pending: set[asyncio.Future[Any]] = set()
        self._window = asyncio.Semaphore(_WINDOW)
        self._connected = asyncio.Event()
        self._monitor: asyncio.Task[None] | None = None

    @property
    def state(self) -> SessionState:
        return self._state

    @property
    def is_connected(self) -> bool:
        return self._state is SessionState.CONNECTED

    @property
    def session_id(self) -> int | None:
        """The session that is open or suspended; its ephemeral nodes have it as their owner."""
        return self._session_id

    def subscribe(self, callback: Callable[[SessionState], None]) -> Callable[[], None]:
        """Calls back on the loop after every change of state. Returns what ends it."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    async def start(self, timeout_s: float | None = None) -> None:
        """Returns when the first session is open; without a timeout that may take for ever."""
        if self._monitor is not None:
            raise CoordinationError("this ZooKeeper session was started before")
        _silence_kazoo()
        self._state = SessionState.LOST
        self._open_client()
        self._monitor = asyncio.create_task(self._watch_over(), name="zookeeper-monitor")
        try:
            async with asyncio.timeout(timeout_s):
                await self._connected.wait()
        except TimeoutError as error:
            await self.stop()
            raise CoordinationError(
                f"no ZooKeeper answers at {self.hosts}; start it or correct --zookeeper"
            ) from error

    async def stop(self) -> None:
        """Closes the session, which deletes its ephemeral nodes at once. Bounded in time."""
        if self._monitor is None or self._state is SessionState.CLOSED:
            return
        self._monitor.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._monitor
        client, self._client = self._client, None
        await self._close_client(client)
        self._enter(SessionState.CLOSED)

    async def connected(self) -> None:
        """Returns when a session is open."""
        await self._connected.wait()

    async def get(
        self, path: str, watch: Callable[[str], None] | None = None
    ) -> tuple[bytes, NodeStat] | None:
        """Data and facts of a node, None when there is none. The watch is called once with the
        path when the node changes or goes; it is not armed when there is no node."""
        try:
            data, stat = await self._call(
                "get", path, lambda client: client.get_async(path, self._watch(watch))
            )
        except NoNode:
            return None
        return data or b"", NodeStat(stat.version, stat.czxid, stat.ephemeralOwner)

    async def children(
        self, path: str, watch: Callable[[str], None] | None = None
    ) -> list[str] | None:
        """Names of the children, None when there is no node. The watch is called once with the
        path when a child comes or goes; it is not armed when there is no node."""
        try:
            names: list[str] = await self._call(
                "children",
                path,
                lambda client: client.get_children_async(path, self._watch(watch)),
            )
        except NoNode:
            return None
        return names

    async def create(self, path: str, data: bytes = b"", *, parents: bool = False) -> None:
        """Makes a persistent node; raises NodeExists or NoNode (no parent)."""
        self._check_size(path, len(data))
        await self._call(
            "create", path, lambda client: client.create_async(path, data, makepath=parents)
        )

    async def create_ephemeral(self, path: str, data: bytes) -> None:
        """Makes a node that lives as long as the session; raises NodeExists or NoNode."""
        self._check_size(path, len(data))
        await self._call(
            "create", path, lambda client: client.create_async(path, data, ephemeral=True)
        )

    async def create_sequential(self, prefix: str, data: bytes) -> str:
        """Makes an ephemeral node whose name is the prefix and a growing number; its path."""
        self._check_size(prefix, len(data))
        path: str = await self._call(
            "create",
            prefix,
            lambda client: client.create_async(prefix, data, ephemeral=True, sequence=True),
        )
        return path

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> None:
        self._check_size(path, len(data))
        await self._call("set", path, lambda client: client.set_async(path, data, version))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._call("delete", path, lambda client: client.delete_async(path, version))

    async def transaction(self, operations: Sequence[Operation]) -> None:
        """All or nothing; a NodeRefused names the path of the operation that failed."""
        size = sum(len(getattr(op, "data", b"")) + len(op.path) + 64 for op in operations)
        self._check_size(operations[0].path, size)
        results = await self._call(
            "transaction",
            operations[0].path,
            lambda client: request_of(client, operations).commit_async(),
        )
        for operation, result in zip(operations, results, strict=False):
            if is_refusal(result):
                raise translated(result, operation.path) from result

    async def _call(self, operation: str, path: str, issue: Callable[[Any], Any]) -> Any:
        async with self._window:
            if self._client is None or self._state is not SessionState.CONNECTED:
                raise CoordinationLost(f"ZooKeeper at {self.hosts} is {self._state}")
            loop = asyncio.get_running_loop()
            answer: asyncio.Future[Any] = loop.create_future()
            self._pending.add(answer)
            asked_s = time.monotonic()
            try:
                issue(self._client).rawlink(
                    lambda result: loop.call_soon_threadsafe(_settle, answer, result)
                )
                return await answer
            except kz.KazooException as error:
                raise translated(error, path) from error
            finally:
                self._pending.discard(answer)
                if self._on_answer is not None:
                    self._on_answer(operation, time.monotonic() - asked_s)

    def _watch(self, callback: Callable[[str], None] | None) -> _Watch | None:
        return None if callback is None else _Watch(asyncio.get_running_loop(), callback)

    def _check_size(self, path: str, size: int) -> None:
        if size > _LARGEST_REQUEST:
            raise CoordinationError(
                f"{size} bytes for {path} are more than ZooKeeper takes ({_LARGEST_REQUEST})"
            )

    def _open_client(self) -> None:
        loop = asyncio.get_running_loop()
        handler = _Handler(self._connect_timeout_s)
        client = KazooClient(
            hosts=self.hosts,
            timeout=self.session_timeout_s,
            handler=handler,
            # kazoo's own default lets the pause between attempts grow to an hour.
            connection_retry=KazooRetry(
                max_tries=-1, delay=0.1, max_delay=0.5, sleep_func=handler.sleep_func
            ),
        )

        def listener(state: str) -> None:
            identity = client.client_id
            loop.call_soon_threadsafe(
                self._on_kazoo_state, client, state, identity[0] if identity else None
            )

        client.add_listener(listener)
        self._client = client
        with slices.unhurried():
            client.start_async()

    async def _close_client(self, client: Any) -> None:
        """kazoo joins its threads here, and one of them may hang in a connect for the session
        timeout: hence a thread of its own that a process may end without."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def close() -> None:
            try:
                client.stop()
                client.close()
            except kz.KazooException as error:
                log.warning(
                    "closing the ZooKeeper session failed; it is left to expire", error=error
                )
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
                loop.call_soon_threadsafe(done.set)

        threading.Thread(target=close, name="zookeeper-close", daemon=True).start()
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await done.wait()
        except TimeoutError:
            log.warning("no answer to the closing of the ZooKeeper session; it is left to expire")

    def _on_kazoo_state(self, client: Any, state: str, session_id: int | None) -> None:
        if client is not self._client:
            return
        if state == KazooState.CONNECTED:
            self._session_id = session_id
            log.info("connected to ZooKeeper", hosts=self.hosts, session=f"{session_id or 0:#x}")
            self._enter(SessionState.CONNECTED)
        elif state == KazooState.SUSPENDED:
            log.warning("ZooKeeper does not answer; keeping the last view", hosts=self.hosts)
            self._enter(SessionState.SUSPENDED)
        else:
            log.warning("ZooKeeper session has expired; opening a new one", hosts=self.hosts)
            self._enter(SessionState.LOST)

    def _enter(self, state: SessionState) -> None:
        self._state = state
        if state is SessionState.CONNECTED:
            self._connected.set()
        else:
            self._connected.clear()
            # kazoo keeps what was asked a moment too late until it is connected again.
            for answer in self._pending:
                if not answer.done():
                    answer.set_exception(kz.ConnectionLoss())
        if state in (SessionState.LOST, SessionState.CLOSED):
            self._session_id = None
        for callback in list(self._callbacks):
            callback(state)

    async def _watch_over(self) -> None:
        """Says now and then that it waits, and replaces a client whose thread has died (kazoo
        gives up for ever on a refused login and on any answer it cannot read)."""
        loop = asyncio.get_running_loop()
        next_reminder = connected_s = loop.time()
        dead_looks = 0
        while True:
            await asyncio.sleep(1.0)
            if self._state is SessionState.CONNECTED:
                next_reminder = loop.time() + _REMINDER_S
                connected_s = loop.time()
                dead_looks = 0
                continue
            if loop.time() > connected_s + self.session_timeout_s:
                # A server that knows less than this client has seen refuses it, without a word and
                # for ever if it has come back empty. The session is over by now anyway.
                self._client.last_zxid = 0
            if loop.time() >= next_reminder:
                next_reminder = loop.time() + _REMINDER_S
                log.warning("waiting for ZooKeeper; is it running and reachable?", hosts=self.hosts)
            dead_looks = dead_looks + 1 if _is_dead(self._client) else 0
            if dead_looks > 1:
                dead_looks = 0
                old = self._client
                if self._state is not SessionState.LOST:
                    self._enter(SessionState.LOST)
                self._open_client()
                await self._close_client(old)


def _is_dead(client: Any) -> bool:
    """kazoo's own state does not tell: it is CLOSED as well for as long as the names of the hosts
    are being looked up for the first time."""
    thread = client._connection._connection_routine
    return thread is None or not thread.is_alive()


async def together(calls: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Has calls under way at the same time and returns their results in order. All have ended
    before the first failure is raised, so that none acts behind the caller's back."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return cast(list[_T], results)


def _settle(answer: asyncio.Future[Any], result: Any) -> None:
    if answer.done():
        return
    if result.exception is None:
        answer.set_result(result.value)
    else:
        answer.set_exception(result.exception)
