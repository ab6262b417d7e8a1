"""Types are stored once and read by everybody."""

from __future__ import annotations

import asyncio

import pytest

from gateway.coordination.embedded import EmbeddedZooKeeper
from gateway.coordination.types import LARGEST_TYPE, TypeStore
from gateway.errors import ConfigError, CoordinationError
from tests.coordination.parts import session

pytestmark = pytest.mark.zookeeper


def test_a_type_travels(zookeeper: EmbeddedZooKeeper, fabric: str) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as one, session(zookeeper, fabric) as two:
            here, there = TypeStore(one, one.paths), TypeStore(two, one.paths)
            assert await there.get("ab12") is None
            await here.put("ab12", b"\x00type")
            assert await there.get("ab12") == b"\x00type"
            await here.put("ab12", b"\x00type")
            await there.put("ab12", b"\x00type")
            # Kept: a node that was deleted is still known where it was read.
            await one.delete(one.paths.type("ab12"))
            assert await there.get("ab12") == b"\x00type"
            assert await TypeStore(two, one.paths).get("ab12") is None

    asyncio.run(scenario())


def test_types_that_cannot_be_stored_are_refused(zookeeper: EmbeddedZooKeeper, fabric: str) -> None:
    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk:
            store = TypeStore(zk, zk.paths)
            with pytest.raises(CoordinationError, match="cannot be bridged"):
                await store.put("ab", b"x" * LARGEST_TYPE)
            with pytest.raises(ConfigError):
                await store.put("a/b", b"x")
            await store.put("ab", b"x" * (LARGEST_TYPE - 1))

    asyncio.run(scenario())
