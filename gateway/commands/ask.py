"""Asks edges for their /status over their metrics ports. Called by status.py; what is made of the
answers is decided in edge_report.py.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import NamedTuple

from gateway.commands.edge_report import EdgeStatus
from gateway.config import split_address
from gateway.model import EdgeInfo

_PATIENCE_S = 2.0
_AT_ONCE = 64
_MOST_BYTES = 64 * 1024 * 1024


class Answers(NamedTuple):
    statuses: list[EdgeStatus]
    silent: dict[str, str]
    """Edges that did not answer, and why."""


async def ask(edges: Iterable[EdgeInfo]) -> Answers:
    """All at once; in order of their ids."""
    slots = asyncio.Semaphore(_AT_ONCE)
    ordered = sorted(edges, key=lambda edge: edge.edge)
    found = await asyncio.gather(*(_ask(edge, slots) for edge in ordered))
    answers = Answers([], {})
    for edge, answer in zip(ordered, found, strict=True):
        if isinstance(answer, str):
            answers.silent[edge.edge] = answer
        else:
            answers.statuses.append(answer)
    return answers


async def _ask(edge: EdgeInfo, slots: asyncio.Semaphore) -> EdgeStatus | str:
    """What it said, or why it did not."""
    if edge.metrics is None:
        return "it has no metrics port: set edge.metrics_port"
    try:
        host, port = split_address(edge.metrics)
        async with slots, asyncio.timeout(_PATIENCE_S):
            answer = await _get(host, port)
    except TimeoutError:
        return f"no answer at {edge.metrics} within {_PATIENCE_S:g} s: ask from where it is reached"
    except (OSError, ValueError) as error:
        return f"no answer at {edge.metrics}: {error}"
    head, _, body = answer.partition(b"\r\n\r\n")
    if head.split(b" ")[1:2] != [b"200"]:
        return f"{edge.metrics} answers {head[:80]!r}"
    try:
        status = json.loads(body)
    except ValueError:
        return f"{edge.metrics} answers something else than JSON"
    if not isinstance(status, dict) or status.get("edge") != edge.edge:
        return f"another broker answers at {edge.metrics}"
    if not {"lan", "express", "pairs", "outflows"} <= status.keys():
        return "it runs another version"
    return status


async def _get(host: str, port: int) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET /status HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        answer = b""
        while len(answer) < _MOST_BYTES and (more := await reader.read(1 << 20)):
            answer += more
        return answer
    finally:
        writer.close()
