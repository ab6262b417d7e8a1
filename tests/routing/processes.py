"""Routers as real processes, as an operator starts them; each is ended by its own pid."""

from __future__ import annotations

import contextlib
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.environment import environment
from tests.lab.namespaces import REPOSITORY
from tests.lab.process import Process


class RouterProcess(Process):
    """`ddswan router` that serves metrics on the loopback."""

    def __init__(self, log_file: Path, arguments: list[str], settings: Mapping[str, str]) -> None:
        super().__init__(
            [sys.executable, "-m", "gateway.cli", "router", *arguments],
            name=log_file.stem,
            output=log_file,
            env=environment(DDSWAN_METRICS_HOST="127.0.0.1", **settings),
            cwd=REPOSITORY,
        )

    def ask(self, path: str) -> tuple[int, str]:
        """Status and body of a page of its metrics port."""
        port = self.wait_for_line(r"metrics served .*port=(\d+)")[1]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ask("/status")[1])
        return found


@contextlib.contextmanager
def routers(
    directory: Path, zookeeper: str, fabric: str, *, session_timeout_s: float = 4.0
) -> Iterator[Callable[..., RouterProcess]]:
    """Starts routers by id, on free ports of the loopback; ends them all."""
    with contextlib.ExitStack() as stack:
        started = 0

        def start(name: str, *arguments: str) -> RouterProcess:
            nonlocal started
            process = RouterProcess(
                directory / f"{name}-{started}.log",
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
            started += 1
            stack.callback(process.kill)
            return process

        yield start
