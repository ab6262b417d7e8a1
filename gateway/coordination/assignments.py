"""The leader's writes: which routers carry a topic, and the end of topics nobody uses. Used by the
routing broker's leader; every write is fenced by the leader's own node, so that a deposed leader
can write nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.coordination.election import Leadership
from gateway.coordination.nodes import (
    Check,
    Delete,
    NodeRefused,
    NoNode,
    NotEmpty,
    Operation,
    SetData,
)
from gateway.coordination.paths import FabricPaths
from gateway.coordination.records import encode_assignment
from gateway.coordination.zookeeper import ZooKeeper, together
from gateway.errors import CoordinationLost
from gateway.model import Assignment, Direction

_CHUNK = 100
"""Topics a transaction: large ones hold up everybody else's writes."""


async def write(
    zk: ZooKeeper,
    paths: FabricPaths,
    leadership: Leadership,
    changes: Sequence[tuple[str, Assignment, int]],
) -> frozenset[str]:
    """Writes (topic, assignment, expected version) and returns the topics that were written; the
    others have changed or gone since they were read. Raises CoordinationLost when this is not the
    leader any longer, or not known to be."""
    chunks = [changes[at : at + _CHUNK] for at in range(0, len(changes), _CHUNK)]
    written = await together(_write_chunk(zk, paths, leadership, chunk) for chunk in chunks)
    return frozenset().union(*written)


async def delete_topic(
    zk: ZooKeeper, paths: FabricPaths, leadership: Leadership, topic: str
) -> bool:
    """Deletes a topic that nobody announces; False when somebody does by now or it has gone."""
    path = paths.topic(topic)
    names = await zk.children(path)
    if names is None:
        return False
    directories = [Delete(f"{path}/{d}") for d in Direction if d.value in names]
    try:
        await _fenced(zk, leadership, [*directories, Delete(path)])
    except (NoNode, NotEmpty):
        return False
    return True


async def _write_chunk(
    zk: ZooKeeper,
    paths: FabricPaths,
    leadership: Leadership,
    changes: Sequence[tuple[str, Assignment, int]],
) -> frozenset[str]:
    left = {
        paths.topic(topic): (topic, SetData(paths.topic(topic), encode_assignment(new), version))
        for topic, new, version in changes
    }
    while left:
        try:
            await _fenced(zk, leadership, [operation for _, operation in left.values()])
        except NodeRefused as error:
            del left[error.path]  # the leader plans it anew when the view shows the change
        else:
            break
    return frozenset(topic for topic, _ in left.values())


async def _fenced(zk: ZooKeeper, leadership: Leadership, operations: Sequence[Operation]) -> None:
    try:
        await zk.transaction([Check(leadership.node), *operations])
    except NodeRefused as error:
        if error.path != leadership.node:
            raise
        raise CoordinationLost(
            f"this router does not lead any longer (epoch {leadership.epoch}); nothing was written"
        ) from error
