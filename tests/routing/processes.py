"""Routers as real processes, as an operator starts them; each is ended by its own pid."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def wait_for(look: Callable[[], T | None], what: str, timeout_s: float = 20.0) -> T:
    """The first answer that is not None or False."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = look()
        if answer is not None and answer is not False:
            return answer
        assert time.monotonic() < deadline, f"no {what} after {timeout_s} s"
        time.sleep(0.02)


class RouterProcess:
    """`ddswan router` with everything on free ports of the loopback."""

    def __init__(
        self, log_file: Path, arguments: list[str], environment: dict[str, str] | None = None
    ) -> None:
        self._log_file = log_file
        kept = {k: v for k, v in os.environ.items() if not k.startswith("DDSWAN_")}
        with log_file.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gateway.cli", "router", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**kept, "DDSWAN_METRICS_HOST": "127.0.0.1", **(environment or {})},
            )

    @property
    def log(self) -> str:
        return self._log_file.read_text()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def wait_logged(self, pattern: str, timeout_s: float = 20.0) -> re.Match[str]:
        def look() -> re.Match[str] | None:
            found = re.search(pattern, self.log)
            assert found is not None or not self.has_ended, f"ended without {pattern}:\n{self.log}"
            return found

        return wait_for(look, f"{pattern!r} in:\n{self.log}", timeout_s)

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def wait(self, timeout_s: float = 10.0) -> int:
        return self._process.wait(timeout_s)

    def ask(self, path: str) -> tuple[int, str]:
        """Status and body of a page of its metrics port."""
        port = self.wait_logged(r"metrics served .*port=(\d+)")[1]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ask("/status")[1])
        return found

    def end(self) -> None:
        """For the fixture: whatever happened, nothing stays behind."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def routers(
    directory: Path, zookeeper: str, fabric: str, *, session_timeout_s: float = 4.0
) -> Iterator[Callable[..., RouterProcess]]:
    """Starts routers by id; ends them all."""
    started: list[RouterProcess] = []

    def start(name: str, *arguments: str) -> RouterProcess:
        process = RouterProcess(
            directory / f"{name}-{len(started)}.log",
            [
                *("--id", name, "--fabric", fabric, "--zookeeper", zookeeper),
                *("--listen", "127.0.0.1:0", "--metrics-port", "0"),
                *arguments,
            ],
            {
                "DDSWAN_ZOOKEEPER_SESSION_TIMEOUT_S": str(session_timeout_s),
                "DDSWAN_ROUTER_LOAD_REPORT_INTERVAL_S": "0.5",
            },
        )
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            process.end()
