"""The HTTP side of a broker, asked by a real client."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from gateway.errors import DdswanError
from gateway.observe.health import HealthServer


class _Broker:
    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.threads: set[int] = set()

    def readiness(self) -> list[str]:
        self.threads.add(threading.get_ident())
        return self.reasons

    def status(self) -> dict[str, Any]:
        self.threads.add(threading.get_ident())
        return {"topics": 3}


def _serve(scenario: Callable[[HealthServer, _Broker], Any]) -> None:
    """Runs the scenario on a thread while the loop serves."""

    async def main() -> None:
        broker = _Broker()
        server = HealthServer(
            "127.0.0.1",
            0,
            loop=asyncio.get_running_loop(),
            metrics=lambda: b"ddswan_x 1\n",
            readiness=broker.readiness,
            status=broker.status,
        )
        server.start()
        try:
            await asyncio.to_thread(scenario, server, broker)
            assert broker.threads <= {threading.get_ident()}
        finally:
            server.stop()

    asyncio.run(main())


def _get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_pages() -> None:
    def scenario(server: HealthServer, broker: _Broker) -> None:
        assert _get(server.port, "/metrics") == (200, "ddswan_x 1\n")
        assert _get(server.port, "/healthz") == (200, "ok\n")
        assert _get(server.port, "/readyz?verbose") == (200, "ok\n")
        status, text = _get(server.port, "/status")
        assert (status, json.loads(text)) == (200, {"topics": 3})
        assert _get(server.port, "/")[0] == 404

    _serve(scenario)


def test_not_ready_says_why() -> None:
    def scenario(server: HealthServer, broker: _Broker) -> None:
        broker.reasons = ["no session with ZooKeeper", "no link to a router"]
        assert _get(server.port, "/readyz") == (
            503,
            "no session with ZooKeeper\nno link to a router\n",
        )
        assert _get(server.port, "/healthz")[0] == 200

    _serve(scenario)


def test_a_stuck_loop_is_not_healthy() -> None:
    async def main() -> tuple[int, str]:
        loop = asyncio.get_running_loop()
        server = HealthServer("127.0.0.1", 0, loop=loop, metrics=bytes, readiness=list, status=dict)
        server.start()
        answers: list[tuple[int, str]] = []
        asking = threading.Thread(target=lambda: answers.append(_get(server.port, "/healthz")))
        asking.start()
        time.sleep(2.5)  # noqa: ASYNC251 - the loop is to be stuck
        asking.join()
        server.stop()
        return answers[0]

    assert asyncio.run(main()) == (503, "the event loop does not answer\n")


def test_a_failing_provider_is_an_error_and_the_server_goes_on() -> None:
    def scenario(server: HealthServer, broker: _Broker) -> None:
        assert _get(server.port, "/status")[0] == 500
        assert _get(server.port, "/healthz")[0] == 200

    async def main() -> None:
        def status() -> dict[str, Any]:
            raise RuntimeError("a bug")

        server = HealthServer(
            "127.0.0.1",
            0,
            loop=asyncio.get_running_loop(),
            metrics=bytes,
            readiness=list,
            status=status,
        )
        server.start()
        try:
            await asyncio.to_thread(scenario, server, _Broker())
        finally:
            server.stop()

    asyncio.run(main())


def test_a_taken_port_is_one_line() -> None:
    async def main() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            server = HealthServer(
                "127.0.0.1",
                port,
                loop=asyncio.get_running_loop(),
                metrics=bytes,
                readiness=list,
                status=dict,
            )
            with pytest.raises(DdswanError) as caught:
                server.start()
            assert str(caught.value) == (
                f"metrics address 127.0.0.1:{port} is taken; choose another --metrics-port"
            )
            server.stop()

    asyncio.run(main())


def test_idle_connections_do_not_keep_others_out() -> None:
    def scenario(server: HealthServer, broker: _Broker) -> None:
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(10)]
        try:
            assert _get(server.port, "/healthz") == (200, "ok\n")
        finally:
            for connection in idle:
                connection.close()

    _serve(scenario)
