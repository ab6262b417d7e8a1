"""How a broker's process lives: named tasks none of which may end by itself, signals that ask it to
stop, an orderly end. Used by the brokers' app.py; what the tasks do stays out.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from gateway.errors import DdswanError
from gateway.observe.logs import get_logger

_log = get_logger("lifetime")


class Lifetime:
    """The tasks of one process and its wish to end."""

    def __init__(self) -> None:
        self.is_stopping = False
        self._stop_or_failure = asyncio.Event()
        self._tasks: dict[asyncio.Task[Any], str] = {}
        self._failure: Exception | None = None

    def spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        """Runs a part of the process that is to last as long as the process."""
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(lambda _: self._stop_or_failure.set())
        self._tasks[task] = name

    def stop(self) -> None:
        """Asks the process to end."""
        self.is_stopping = True
        self._stop_or_failure.set()

    def fail(self, error: Exception) -> None:
        """A part without a task of its own cannot go on."""
        self._failure = self._failure or error
        self._stop_or_failure.set()

    async def until_stop_or_failure(self) -> None:
        """Returns when asked to stop; raises DdswanError when a part failed or ended."""
        await self._stop_or_failure.wait()
        self._tell_failure()

    def _tell_failure(self) -> None:
        if self._failure is not None:
            _raise(self._failure, "a part of the broker")
        for task, name in self._tasks.items():
            if task.done():
                _raise(task.exception(), name)

    async def wait_or_stop(self, work: Awaitable[Any]) -> bool:
        """Waits for something that may take for ever; False when told to stop meanwhile. Raises
        DdswanError when a part failed or ended meanwhile."""
        task = asyncio.ensure_future(work)
        stop = asyncio.create_task(self._stop_or_failure.wait(), name="stop")
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self._tell_failure()
                return False
            task.result()
            return True
        finally:
            await end_tasks([task, stop])

    async def end(self, *, except_for: Iterable[str] = ()) -> None:
        """Ends the tasks, all but those named."""
        kept = set(except_for)
        await end_tasks(task for task, name in self._tasks.items() if name not in kept)


def _raise(error: BaseException | None, name: str) -> None:
    if isinstance(error, DdswanError):
        raise error
    _log.error(
        "a task ended unexpectedly; the broker stops, its supervisor should start it again",
        task=name,
        error=error,
    )
    raise DdswanError(f"{name} ended unexpectedly; the log says why") from error


async def end_tasks(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Ends tasks; what they still have to say goes to the log."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            _log.debug("task failed on the way out", error=str(result))


def _report_unclaimed(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What failed without anybody who waits for it."""
    error = context.get("exception")
    if type(error).__module__.startswith("grpc"):
        # It leaves futures behind of calls that are over; the link has told of its loss itself.
        _log.debug("left behind by gRPC", error=str(error))
        return
    _log.error(
        "something failed unnoticed; please report this", error=error, what=context["message"]
    )


async def run_until_signalled(life: Callable[[], Awaitable[None]], lifetime: Lifetime) -> int:
    """Runs a broker until SIGTERM or SIGINT; a second signal cuts its good-bye short."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(life())

    def end() -> None:
        if lifetime.is_stopping:
            task.cancel()
        lifetime.stop()

    loop.set_exception_handler(_report_unclaimed)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    try:
        await task
    except asyncio.CancelledError:
        _log.warning("stopped without good-bye; others notice when the ZooKeeper session expires")
        return 1
    return 0
