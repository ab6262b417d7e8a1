"""Runs child processes: prefixed output, restart of what crashes, an ordered stop, and nothing
left behind even when this process is killed. Called by `up` and `demo`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.errors import ConfigError, DdswanError
from gateway.observe.logs import get_logger

_log = get_logger("up")

_PR_SET_PDEATHSIG = 1
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 10.0
_STEADY_AFTER_S = 30.0
"""A child that ran this long starts again without delay."""
_MISUSE = ConfigError.exit_code
_LINE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Child:
    """A process to run. `stage` orders the stop: the highest stage goes first."""

    name: str
    arguments: Sequence[str]
    environment: dict[str, str]
    stage: int
    is_restarted: bool = True
    """False: its end, whatever the exit code, is what it was started for."""


class Supervisor:
    """Owns the processes; `show` receives every line they print, with the child's name."""

    def __init__(self, show: Callable[[str, str], None], stop_timeout_s: float = 12.0) -> None:
        self._show = show
        self._stop_timeout_s = stop_timeout_s
        self._tasks: dict[str, asyncio.Task[int]] = {}
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._stages: dict[str, int] = {}
        self._stopping = asyncio.Event()

    def start(self, child: Child) -> asyncio.Task[int]:
        """Keeps the child running. The task ends with its exit code if it is not restarted, and
        raises ConfigError if it cannot run as configured."""
        assert child.name not in self._tasks, child.name
        task = asyncio.create_task(self._keep_running(child), name=f"child-{child.name}")
        self._tasks[child.name] = task
        self._stages[child.name] = child.stage
        return task

    async def wait_failed(self) -> None:
        """Returns never; raises what the first child that is given up raises."""
        pending: set[asyncio.Task[int]] = set(self._tasks.values())
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        await asyncio.get_running_loop().create_future()

    async def stop(self) -> None:
        """Stops stage after stage, highest first; what does not end in time is killed."""
        self._stopping.set()
        for stage in sorted(set(self._stages.values()), reverse=True):
            names = [name for name, at in self._stages.items() if at == stage]
            for name in names:
                self._signal(name, signal.SIGTERM)
            tasks = [self._tasks[name] for name in names]
            _, late = await asyncio.wait(tasks, timeout=self._stop_timeout_s)
            for name in names:
                if self._tasks[name] in late:
                    _log.warning("a child does not stop; it is killed", child=name)
                    self._signal(name, signal.SIGKILL)
            await asyncio.gather(*tasks, return_exceptions=True)

    def kill(self) -> None:
        """Kills everything at once: for a second interrupt."""
        self._stopping.set()
        for name in self._processes:
            self._signal(name, signal.SIGKILL)

    async def _keep_running(self, child: Child) -> int:
        pause_s = _FIRST_PAUSE_S
        loop = asyncio.get_running_loop()
        while True:
            since = loop.time()
            code = await self._run_once(child)
            if self._stopping.is_set() or not child.is_restarted:
                return code
            if code == _MISUSE:
                raise ConfigError(f"{child.name} cannot run as configured; its last line says why")
            if loop.time() - since > _STEADY_AFTER_S:
                pause_s = _FIRST_PAUSE_S
            _log.warning(
                "a child ended; it is started again, its lines above say why",
                child=child.name,
                code=code,
                in_s=pause_s,
            )
            await self._pause(pause_s)
            if self._stopping.is_set():
                return code
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _pause(self, pause_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._stopping.wait()

    async def _run_once(self, child: Child) -> int:
        parent = os.getpid()
        output, childs_end = os.pipe()
        try:
            # The pipe is ours and not asyncio's: a child's end is then known even while a
            # grandchild still holds the other end.
            process = await asyncio.create_subprocess_exec(
                *child.arguments,
                env=child.environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=childs_end,
                stderr=childs_end,
                start_new_session=True,  # Ctrl-C reaches us only, so that the stop has an order
                preexec_fn=lambda: die_with(parent),
            )
        except OSError as error:
            os.close(output)
            raise DdswanError(f"cannot start {child.name}: {error}") from error
        finally:
            os.close(childs_end)
        self._processes[child.name] = process
        showing = asyncio.create_task(
            self._show_lines(child.name, output), name=f"output-{child.name}"
        )
        try:
            if self._stopping.is_set():
                self._signal(child.name, signal.SIGTERM)
            return await process.wait()
        finally:
            self._signal(child.name, signal.SIGKILL)  # and whatever it leaves behind
            await process.wait()
            await showing
            del self._processes[child.name]

    async def _show_lines(self, name: str, descriptor: int) -> None:
        reader = asyncio.StreamReader(limit=_LINE_BYTES)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
        )
        try:
            while True:
                try:
                    line = await reader.readline()
                except ValueError:  # longer than the limit: the reader has dropped it
                    line = b"(a line too long to show)"
                if not line:
                    return
                self._show(name, line.decode(errors="replace").rstrip("\r\n"))
        finally:
            transport.close()

    def _signal(self, name: str, number: signal.Signals) -> None:
        """SIGKILL goes to the child's whole process group, which may outlive the child."""
        process = self._processes.get(name)
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):  # ended a moment ago: what was wanted
            if number == signal.SIGKILL:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)


def ddswan_child(name: str, stage: int, *arguments: str, prefix: Sequence[str] = ()) -> Child:
    """A `ddswan` subcommand as a child. Its settings come from its arguments only: the
    environment's were already taken into account by this process."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DDSWAN_")}
    environment["PYTHONUNBUFFERED"] = "1"
    command = (*prefix, sys.executable, "-m", "gateway.cli", *arguments)
    return Child(name, command, environment, stage)


async def wait_for_address(host: str, port: int, timeout_s: float) -> bool:
    """Whether something accepts connections there before the time is over."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while asyncio.get_running_loop().time() < deadline:
        try:
            async with asyncio.timeout(1.0):
                _, writer = await asyncio.open_connection(host, port)
        except OSError:  # TimeoutError included
            await asyncio.sleep(0.1)
            continue
        writer.close()
        await writer.wait_closed()
        return True
    return False


_libc = ctypes.CDLL(None, use_errno=True)


def die_with(parent: int) -> None:
    """In the child, before it becomes its program: ask the kernel for SIGTERM when the parent
    dies, however it dies."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before we asked
        os.kill(os.getpid(), signal.SIGTERM)
