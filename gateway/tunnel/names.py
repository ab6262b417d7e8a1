"""Looks up the names of hosts, and says what sockets complain of. Called by wire.py."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from contextlib import suppress
from typing import Any

from gateway.errors import LinkError

Address = tuple[str, int]


async def resolve(host: str, port: int) -> list[tuple[int, Address]]:
    with suppress(OSError):
        return resolve_now(host, port, socket.AI_NUMERICHOST)
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[tuple[int, Address]]] = loop.create_future()

    def tell(addresses: list[tuple[int, Address]], error: OSError | None) -> None:
        if found.done():
            return  # nobody waits any more
        if error is None:
            found.set_result(addresses)
        else:
            found.set_exception(error)

    def look_up() -> None:
        addresses, failure = [], None
        try:
            addresses = resolve_now(host, port)
        except OSError as error:
            failure = error
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, addresses, failure)

    # Not in the loop's own pool: a broker that ends does not wait for a name server that is silent.
    threading.Thread(target=look_up, name="resolver", daemon=True).start()
    try:
        return await found
    except OSError as error:
        raise LinkError(reason(error)) from error


def resolve_now(host: str, port: int, flags: int = 0) -> list[tuple[int, Address]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [(int(entry[0]), _host_and_port(entry[4])) for entry in found]


def addresses_to_listen_on(host: str, port: int) -> list[tuple[int, Address]]:
    """The wildcard of IPv6 means both families, where there are both."""
    found = resolve_now(host, port)[:1]
    if found[0] == (socket.AF_INET6, ("::", port)):
        with suppress(OSError):
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
            found.append((socket.AF_INET, ("0.0.0.0", port)))
    return found


def _host_and_port(address: tuple[Any, ...]) -> Address:
    return str(address[0]), int(address[1])


def reason(error: OSError) -> str:
    if error.errno is None or isinstance(error, socket.gaierror):
        return (error.strerror or str(error)).lower()
    return os.strerror(error.errno).lower()
