"""The door to gRPC: a call of an edge to a router (`dial`) and the server routers listen with
(`serve`), both as a two-way stream of raw bytes. What the bytes mean stays out. Called by
router_link.py and tunnel_server.py.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

# Read when the library is loaded: it would print what it also raises.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# The event engine adds a thread, and so a wake-up, between socket and loop at each hop: without it
# a relayed message took 170 µs instead of 255, and large ones cost a quarter less.
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")

import grpc

from gateway.errors import LinkError
from gateway.tunnel.conversation import Conversation
from gateway.tunnel.frames import MAX_FRAME_BYTES

_SERVICE = "ddswan.tunnel.v1.Tunnel"
_METHOD = "Link"

_OPTIONS: list[tuple[str, int]] = [
    # A message is a frame or a bundle, which is smaller than the largest frame.
    ("grpc.max_receive_message_length", MAX_FRAME_BYTES),
    ("grpc.max_send_message_length", MAX_FRAME_BYTES),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
_CHANNEL_OPTIONS = [
    *_OPTIONS,
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # Otherwise links to one address share a connection and its state.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
]
_SERVER_OPTIONS = [
    *_OPTIONS,
    # By default a server answers pings more often than every 5 minutes with GOAWAY.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
    # Otherwise a second router could share the port of the first, silently.
    ("grpc.so_reuseport", 0),
]
_CALL_ERRORS = (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError)
"""What reading or writing a call that is over raises, depending on the moment."""


@asynccontextmanager
async def dial(address: str) -> AsyncIterator[Conversation]:
    """One call on a channel of its own; both are gone afterwards. Nothing is connected yet when
    it yields: the first write or read fails when the address does not answer."""
    channel = grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS)
    try:
        call = channel.stream_stream(f"/{_SERVICE}/{_METHOD}")()
        try:
            yield _conversation(call, address)
        finally:
            # A call that is merely forgotten is never collected.
            call.cancel()
    finally:
        await channel.close()


class GrpcServer:
    """Runs `converse` for each call until stopped."""

    def __init__(self, converse: Callable[[Conversation], Awaitable[None]]) -> None:
        self._converse = converse
        self._server: grpc.aio.Server | None = None

    async def start(self, listen: str) -> int:
        """Returns the port bound; raises LinkError when the address cannot be listened on."""
        server = grpc.aio.server(options=_SERVER_OPTIONS)
        handler = grpc.stream_stream_rpc_method_handler(self._handle)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: handler}),)
        )
        try:
            port: int = server.add_insecure_port(listen)
        except RuntimeError as error:
            raise LinkError(
                f"cannot listen on {listen}: the port is taken or the address is not of this "
                "machine; choose another one with --listen"
            ) from error
        await server.start()
        self._server = server
        return port

    async def stop(self, grace_s: float) -> None:
        if self._server is not None:
            await self._server.stop(grace_s)

    async def _handle(self, _requests: Any, context: Any) -> None:
        await self._converse(_conversation(context, context.peer()))


def _conversation(call: Any, remote: str) -> Conversation:
    """`call` is either end of a gRPC call: both read and write alike."""

    async def read() -> bytes | None:
        try:
            message = await call.read()
        except _CALL_ERRORS as error:
            raise LinkError(_reason(error)) from error
        return None if message is grpc.aio.EOF else message

    async def write(message: bytes) -> None:
        try:
            await call.write(message)
        except _CALL_ERRORS as error:
            raise LinkError(_reason(error)) from error

    return Conversation(read, write, remote)


def _reason(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name.lower()}: {error.details()}"
    return f"the call is over ({type(error).__name__})"
