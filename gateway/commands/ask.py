"""Asks edges for their /status over their metrics ports. Called by status.py; what is made of the
answers is decided in edge_report.py.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import NamedTuple

from gateway.commands.broker_page import PageError, fetch_page
from gateway.commands.edge_report import EdgeStatus
from gateway.model import EdgeInfo

_AT_ONCE = 64


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
        async with slots:
            page = await fetch_page(edge.metrics, "/status")
    except PageError as error:
        return str(error)
    try:
        status = json.loads(page.body)
    except ValueError:
        return f"{edge.metrics} answers something else than JSON"
    if not isinstance(status, dict) or status.get("edge") != edge.edge:
        return f"another broker answers at {edge.metrics}"
    if not {"lan", "express", "pairs", "outflows"} <= status.keys():
        return "it runs another version"
    return status
