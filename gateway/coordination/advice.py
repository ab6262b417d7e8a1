"""Reads and writes what is advised: one node for the whole fabric. Used by `ddswan recommend`, and
by the leader, whose writes are fenced; what is advised is decided in gateway/plan/advice.py.
"""

from __future__ import annotations

from contextlib import suppress

from gateway.coordination.election import Leadership
from gateway.coordination.nodes import BadVersion, Check, NodeExists, SetData
from gateway.coordination.records import decode_advice, encode_advice
from gateway.coordination.zookeeper import ZooKeeper
from gateway.model import Advice

_UNWRITTEN = 0
"""The version of a node nobody has written to yet; perhaps it is not there either: only who changes
something makes it, for the name of the fabric may be mistyped."""


async def read(zk: ZooKeeper) -> tuple[Advice, int]:
    """The advice and its version, for `write`. Raises RecordError when it cannot be read."""
    path = zk.paths.advice
    found = await zk.get(path)
    if found is None:
        return Advice(), _UNWRITTEN
    data, stat = found
    return decode_advice(data, path) if data else Advice(), stat.version


async def write(
    zk: ZooKeeper, advice: Advice, version: int, leadership: Leadership | None = None
) -> bool:
    """False when somebody else changed it since it was read."""
    if version == _UNWRITTEN:
        with suppress(NodeExists):
            await zk.create(zk.paths.advice, parents=True)
    fence = [] if leadership is None else [Check(leadership.node)]
    try:
        await zk.transaction([*fence, SetData(zk.paths.advice, encode_advice(advice), version)])
    except BadVersion:
        return False
    return True
