"""The supervisor of `up` and `demo`: output, restarts, ordered stop, nothing left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from gateway.commands.supervisor import Child, Supervisor, wait_for_address
from gateway.errors import ConfigError, DdswanError

_STAY = "import time\nwhile True: time.sleep(60)"


def _child(name: str, program: str, *, stage: int = 0, is_restarted: bool = True) -> Child:
    return Child(name, (sys.executable, "-u", "-c", program), dict(os.environ), stage, is_restarted)


class _Shown:
    """The lines children printed."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def __call__(self, name: str, line: str) -> None:
        self.lines.append((name, line))

    async def wait_for(self, *wanted: tuple[str, str]) -> None:
        await _until(lambda: all(self.lines.count(line) >= wanted.count(line) for line in wanted))


async def _until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


def _run(scenario: Callable[[Supervisor, _Shown], Awaitable[None]]) -> None:
    async def main() -> None:
        shown = _Shown()
        supervisor = Supervisor(shown, stop_timeout_s=5.0)
        try:
            await scenario(supervisor, shown)
        finally:
            await supervisor.stop()

    asyncio.run(main())


def test_lines_are_shown_with_the_childs_name() -> None:
    async def scenario(supervisor: Supervisor, shown: _Shown) -> None:
        program = "import sys; print('out'); print('err', file=sys.stderr)"
        assert await supervisor.start(_child("c", program, is_restarted=False)) == 0
        assert sorted(shown.lines) == [("c", "err"), ("c", "out")]

    _run(scenario)


def test_a_line_without_end_is_cut_and_the_child_goes_on() -> None:
    async def scenario(supervisor: Supervisor, shown: _Shown) -> None:
        program = "print('x' * 1_000_000); print('after')"
        assert await supervisor.start(_child("c", program, is_restarted=False)) == 0
        assert ("c", "after") in shown.lines

    _run(scenario)


def test_a_crashed_child_runs_again() -> None:
    async def scenario(supervisor: Supervisor, shown: _Shown) -> None:
        supervisor.start(_child("c", "print('started'); raise SystemExit(1)"))
        await shown.wait_for(("c", "started"), ("c", "started"))

    _run(scenario)


def test_a_child_killed_with_its_own_child_alive_runs_again() -> None:
    grandchild = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {_STAY!r}])"
    program = f"{grandchild}; import os; print(os.getpid(), flush=True); os.kill(os.getpid(), 9)"

    async def scenario(supervisor: Supervisor, shown: _Shown) -> None:
        supervisor.start(_child("c", program))
        await _until(lambda: len(shown.lines) >= 2)

    _run(scenario)


def test_a_misconfigured_child_is_given_up() -> None:
    async def scenario(supervisor: Supervisor, shown: _Shown) -> None:
        supervisor.start(_child("c", "raise SystemExit(2)"))
        with pytest.raises(ConfigError, match="c cannot run as configured"):
            async with asyncio.timeout(20):
                await supervisor.wait_failed()

    _run(scenario)


def test_a_program_that_does_not_exist_is_one_error() -> None:
    async def scenario(supervisor: Supervisor, shown: _Shown) -> None:
        task = supervisor.start(Child("c", ("/nonexistent/program",), {}, 0))
        with pytest.raises(DdswanError, match="cannot start c"):
            await task

    _run(scenario)


def test_the_highest_stage_has_ended_before_a_lower_one_is_asked() -> None:
    program = """
import signal, sys
def leave(*_):
    print('left'); sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print('ready')
while True: signal.pause()
"""

    async def scenario() -> list[tuple[str, str]]:
        shown = _Shown()
        supervisor = Supervisor(shown)
        for stage, name in enumerate(("zookeeper", "router", "edge")):
            supervisor.start(_child(name, program, stage=stage))
        await shown.wait_for(*((name, "ready") for name in ("zookeeper", "router", "edge")))
        await supervisor.stop()
        return [line for line in shown.lines if line[1] == "left"]

    left = asyncio.run(scenario())
    assert left == [("edge", "left"), ("router", "left"), ("zookeeper", "left")]


def test_a_child_that_ignores_the_request_is_killed() -> None:
    program = (
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready')\n" + _STAY
    )

    async def scenario() -> None:
        shown = _Shown()
        supervisor = Supervisor(shown, stop_timeout_s=0.2)
        task = supervisor.start(_child("c", program))
        await shown.wait_for(("c", "ready"))
        await supervisor.stop()
        assert await task == -signal.SIGKILL

    asyncio.run(scenario())


def test_children_end_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    child = f"import os; open({str(pid_file)!r}, 'w').write(str(os.getpid()) + ';')\n{_STAY}"
    program = f"""
import asyncio, os, sys
from gateway.commands.supervisor import Child, Supervisor
async def main():
    supervisor = Supervisor(lambda name, line: None)
    supervisor.start(Child("c", (sys.executable, "-c", {child!r}), dict(os.environ), 0))
    await supervisor.wait_failed()
asyncio.run(main())
"""
    parent = subprocess.Popen([sys.executable, "-c", program])
    try:
        deadline = time.monotonic() + 20
        while not (pid_file.exists() and pid_file.read_text().endswith(";")):
            assert time.monotonic() < deadline and parent.poll() is None
            time.sleep(0.01)
        process = psutil.Process(int(pid_file.read_text().rstrip(";")))
    finally:
        parent.kill()
        parent.wait()
    psutil.wait_procs([process], timeout=10)
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_waiting_for_an_address() -> None:
    async def scenario() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        assert await wait_for_address("127.0.0.1", port, 5.0)
        server.close()
        await server.wait_closed()
        assert not await wait_for_address("127.0.0.1", port, 0.2)

    asyncio.run(scenario())
