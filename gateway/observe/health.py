"""The HTTP side of a broker: /metrics, /healthz, /readyz and /status, on threads of its own so
that a scrape costs the event loop nothing. The brokers' app.py starts and stops it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import ipaddress
import json
import socket
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from gateway.errors import DdswanError
from gateway.observe.logs import get_logger

_log = get_logger("observe.health")

_LOOP_PATIENCE_S = 2.0
_REQUESTS_AT_ONCE = 16


def dialable_address(host: str, port: int, towards: Iterable[tuple[str, int]]) -> str:
    """Where others reach what listens on `host`: there, when that is one address; otherwise at the
    address this machine has on its way to one of `towards`, or at its name."""
    try:
        is_everywhere = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        is_everywhere = False
    if is_everywhere:
        host = next(filter(None, map(_own_address, towards)), socket.gethostname())
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _own_address(towards: tuple[str, int]) -> str:
    """The address this machine has on its way there, nothing being sent; empty: there is none."""
    try:
        family, _, _, _, address = socket.getaddrinfo(*towards, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return ""


class HealthServer:
    """Serves one broker.

    `readiness` (what keeps the broker from being ready; empty: ready) and `status` (plain JSON
    values) are called on `loop`, where the broker's state lives; a loop that does not answer
    within two seconds makes /healthz fail. `metrics` is called on a thread of the server.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        loop: asyncio.AbstractEventLoop,
        metrics: Callable[[], bytes],
        readiness: Callable[[], list[str]],
        status: Callable[[], dict[str, Any]],
    ) -> None:
        self._host = host
        self._port = port
        self._loop = loop
        self._metrics = metrics
        self._readiness = readiness
        self._status = status
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port listened on: the one asked for, or after `start` the one found for 0."""
        return self._port

    def start(self) -> None:
        """Listens; raises DdswanError when the address cannot be had."""
        try:
            server = _Server((self._host, self._port), self)
        except OSError as error:
            problem = (
                "is taken; choose another --metrics-port"
                if error.errno == errno.EADDRINUSE
                else f"cannot be used: {error.strerror or error}"
            )
            raise DdswanError(f"metrics address {self._host}:{self._port} {problem}") from error
        self._server = server
        self._port = server.server_address[1]
        self._thread = threading.Thread(
            target=server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name="health-server",
            daemon=True,
        )
        self._thread.start()
        _log.info("metrics served", host=self._host, port=self._port)

    def stop(self) -> None:
        """Stops listening; idempotent."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """HTTP status, content type and body for a path."""
        try:
            if path == "/metrics":
                return 200, "text/plain; version=0.0.4; charset=utf-8", self._metrics()
            if path == "/healthz":
                self._ask(lambda: None)
                return 200, "text/plain; charset=utf-8", b"ok\n"
            if path == "/readyz":
                reasons = self._ask(self._readiness)
                text = "".join(f"{reason}\n" for reason in reasons) or "ok\n"
                return (503 if reasons else 200), "text/plain; charset=utf-8", text.encode()
            if path == "/status":
                body = json.dumps(self._ask(self._status), indent=2, default=str) + "\n"
                return 200, "application/json", body.encode()
        except _LoopSilent:
            return 503, "text/plain; charset=utf-8", b"the event loop does not answer\n"
        except Exception as error:
            _log.error("the metrics port cannot answer; please report this", error=error, path=path)
            return 500, "text/plain; charset=utf-8", b"failed; the broker's log says why\n"
        return 404, "text/plain; charset=utf-8", b"try /metrics /healthz /readyz /status\n"

    def _ask(self, question: Callable[[], Any]) -> Any:
        """Runs `question` on the loop; raises _LoopSilent when that is stuck or closed."""
        answer: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def run() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(question())
            except Exception as error:
                answer.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(run)
        except RuntimeError as error:
            raise _LoopSilent from error
        done, _ = concurrent.futures.wait([answer], _LOOP_PATIENCE_S)
        if not done and answer.cancel():
            raise _LoopSilent
        return answer.result()


class _LoopSilent(Exception):
    """The event loop is stuck or gone."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], health: HealthServer) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self.health = health
        self._slots = threading.BoundedSemaphore(_REQUESTS_AT_ONCE)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        # More at once than any scraper and probe need: the excess is hung up on.
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.warning(
            "a request to the metrics port was broken off; its client should ask again",
            client=client_address[0],
        )


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "ddswan"
    timeout = 10.0

    def do_GET(self) -> None:
        status, content_type, body = self.server.health.answer(self.path.partition("?")[0])
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        _log.debug("request to the metrics port", client=self.address_string(), path=self.path)
