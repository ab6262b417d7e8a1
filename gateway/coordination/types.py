"""The fabric's store of type descriptions: opaque blobs named by their hash. Used by the edge
broker, which knows what is in them.
"""

from __future__ import annotations

import contextlib

from gateway.coordination.nodes import NodeExists
from gateway.coordination.paths import FabricPaths
from gateway.coordination.zookeeper import ZooKeeper
from gateway.errors import CoordinationError

LARGEST_TYPE = 900_000


class TypeStore:
    """Content-addressed: what is stored under a hash never changes, so it is kept for good."""

    def __init__(self, zk: ZooKeeper, paths: FabricPaths) -> None:
        self._zk = zk
        self._paths = paths
        self._blobs: dict[str, bytes] = {}
        self._stored: set[str] = set()
        self._session: int | None = None

    def is_stored(self, type_hash: str) -> bool:
        """Whether it was stored in this session, or in the last one while there is none. A new
        session may be one with a ZooKeeper that came back empty: all has to be stored again."""
        if self._zk.session_id not in (self._session, None):
            self._session = self._zk.session_id
            self._stored.clear()
        return type_hash in self._stored

    async def put(self, type_hash: str, blob: bytes) -> None:
        """Stores a type unless it is stored already."""
        if self.is_stored(type_hash):
            return
        if len(blob) >= LARGEST_TYPE:
            raise CoordinationError(
                f"type {type_hash} takes {len(blob)} bytes, ZooKeeper holds less than "
                f"{LARGEST_TYPE}; its topics cannot be bridged"
            )
        with contextlib.suppress(NodeExists):
            await self._zk.create(self._paths.type(type_hash), blob, parents=True)
        self._stored.add(type_hash)
        self._blobs[type_hash] = blob

    async def get(self, type_hash: str) -> bytes | None:
        """The stored type; None when nobody has stored it yet."""
        blob = self._blobs.get(type_hash)
        if blob is None:
            found = await self._zk.get(self._paths.type(type_hash))
            if found is None:
                return None
            blob = self._blobs[type_hash] = found[0]
        return blob
