"""Types of local applications are in the tree for as long as they are announced."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edge_broker.dds import types
from edge_broker.type_shop import TypeShop
from gateway.coordination.embedded import EmbeddedZooKeeper
from gateway.coordination.nodes import SessionState
from gateway.coordination.types import TypeStore
from gateway.observe.metrics import BrokerMetrics
from tests.coordination.parts import eventually, expire, session

pytestmark = pytest.mark.zookeeper


def test_types_are_stored_again_where_zookeeper_comes_back_empty(
    zookeeper: EmbeddedZooKeeper, fabric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(types, "fetch", lambda *_: b"type")

    async def scenario() -> None:
        async with session(zookeeper, fabric) as zk, session(zookeeper, fabric) as other:
            node = zk.paths.type("ab12")
            changes: list[None] = []
            shop = TypeShop(
                cast(Any, SimpleNamespace(participant=SimpleNamespace(_ref=1))),
                cast(Any, SimpleNamespace(type_identifiers={"ab12": None})),
                TypeStore(zk, zk.paths),
                on_change=lambda: changes.append(None),
                metrics=BrokerMetrics("edge", "0", fabric=fabric, broker="e1", lan="a"),
            )
            assert not shop.is_published("ab12")
            await eventually(lambda: shop.is_published("ab12"))
            assert await other.get(node) is not None

            # What is announced stays, in the outage and while its type comes.
            asked: dict[SessionState, bool] = {}
            zk.subscribe(lambda state: asked.update({state: shop.is_published("ab12")}))
            await other.delete(node)
            await expire(zk)
            await eventually(lambda: _is_there(other, node))
            assert asked == dict.fromkeys(
                (SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED), True
            )
            # Each attempt wakes the owner, who asks again: that is the end of it.
            await eventually(lambda: len(changes) == 2)
            assert shop.is_published("ab12")
            assert not shop._tasks
            await shop.close()

    async def _is_there(zk: Any, path: str) -> bool:
        return await zk.get(path) is not None

    asyncio.run(scenario())
