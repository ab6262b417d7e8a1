"""Fetches one page from the metrics port of a broker. Used by ask.py and scrape.py, which know
what stands on it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from gateway.config import split_address
from gateway.errors import DdswanError

_PATIENCE_S = 2.0
_CHUNK_BYTES = 1 << 20
_MOST_BYTES = 64 << 20


class PageError(DdswanError):
    """There is no page to be had; says why."""


@dataclass(frozen=True, slots=True)
class Page:
    body: bytes
    took_s: float
    """What the broker took to make it, as far as that can be told from here."""


async def fetch_page(address: str, path: str) -> Page:
    """Raises PageError."""
    try:
        host, port = split_address(address)
        async with asyncio.timeout(_PATIENCE_S):
            answer, took_s = await _get(host, port, path)
    except TimeoutError as error:
        raise PageError(
            f"no answer at {address} within {_PATIENCE_S:g} s: ask from where it is reached"
        ) from error
    except (OSError, ValueError, DdswanError) as error:
        raise PageError(f"no answer at {address}: {error}") from error
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *headers = head.split(b"\r\n")
    if status.split(b" ")[1:2] != [b"200"]:
        raise PageError(f"{address} answers {status[:80]!r}")
    if b"content-length: %d" % len(body) not in map(bytes.lower, headers):
        raise PageError(f"the answer of {address} breaks off")
    return Page(body, took_s)


async def _get(host: str, port: int, path: str) -> tuple[bytes, float]:
    begun_s = time.monotonic()
    reader, writer = await asyncio.open_connection(host, port, limit=_CHUNK_BYTES)
    try:
        connected_s = time.monotonic()
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        answer = await reader.read(_CHUNK_BYTES)
        # Both have a round trip in them.
        took_s = max(0.0, (time.monotonic() - connected_s) - (connected_s - begun_s))
        while len(answer) < _MOST_BYTES and (more := await reader.read(_CHUNK_BYTES)):
            answer += more
        return answer, took_s
    finally:
        writer.close()
