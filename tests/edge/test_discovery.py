"""What the LAN has is known, whatever one of its applications does, and news of it keeps coming."""

# mypy: disable-error-code="type-arg, arg-type, no-untyped-call"
# (cyclonedds' type constructors are values, not types, to a checker.)

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from cyclonedds.core import Policy
from cyclonedds.core import Qos as CycloneQos
from cyclonedds.domain import DomainParticipant
from cyclonedds.pub import DataWriter, Publisher
from cyclonedds.topic import Topic

from edge_broker.dds.discovery import Discovery
from edge_broker.dds.domain import LanDomain
from gateway.shared_loop import SharedLoop
from tests.edge.parts import FAR, PATIENCE_S, Machine, Plain, configuration

pytestmark = pytest.mark.dds

EDGE = 63
"""The domain of the edge, which is not that of other tests."""


class Latin(str):
    """Text of an application that knows nothing of UTF-8."""

    def encode(self, *_: Any, **__: Any) -> bytes:
        return b"Stra\xdfe"


class Lan:
    """An edge's view of a LAN with one application."""

    def __init__(self, lan: str) -> None:
        self.domain = LanDomain(EDGE, None, "fabric/edge")
        self.changes = 0
        self.discovery = Discovery(self.domain, self._note_change)
        self.faults = 0
        self.to_fail = 0
        asyncio.get_running_loop().set_exception_handler(self._count)
        self.domain.open(self._on_ready)
        self._application = Machine(FAR, lan)
        self._writers: list[Any] = []

    @property
    def application(self) -> DomainParticipant:
        return self._application.participant

    def _count(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.faults += 1

    def _note_change(self) -> None:
        self.changes += 1

    def _on_ready(self, readers: list[int]) -> None:
        if self.to_fail:
            self.to_fail -= 1
            raise RuntimeError("a fault")
        self.discovery.collect()
        self.domain.wait_again()

    def write(self, topic: str, partition: str = "") -> None:
        group = Publisher(
            self.application, qos=CycloneQos(Policy.Partition(partitions=[partition]))
        )
        self._writers += [group, DataWriter(group, Topic(self.application, topic, Plain))]

    async def knows(self, topics: set[str]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while {endpoint.topic for endpoint in self.discovery.endpoints()} != topics:
                await asyncio.sleep(0.005)

    def close(self) -> None:
        self.domain.close()
        self._application.close()


def run(monkeypatch: pytest.MonkeyPatch, test: Callable[[Lan], Coroutine[Any, Any, None]]) -> None:
    lan = uuid.uuid4().hex
    monkeypatch.setenv("CYCLONEDDS_URI", configuration(lan))

    async def with_lan() -> None:
        made = Lan(lan)
        try:
            await test(made)
        finally:
            made.close()

    with asyncio.Runner(loop_factory=SharedLoop) as runner:
        runner.run(with_lan())


def test_an_endpoint_that_cannot_be_read_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(lan: Lan) -> None:
        lan.write("one")
        await lan.knows({"one"})
        lan.write("odd", Latin("x"))
        lan.write("two")
        await lan.knows({"one", "two"})
        lan.write("three")
        await lan.knows({"one", "two", "three"})
        assert lan.discovery.failures == 1
        assert lan.faults == 0

    run(monkeypatch, test)


def test_who_fails_to_handle_news_gets_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(lan: Lan) -> None:
        lan.write("one")
        await lan.knows({"one"})
        lan.to_fail = 1
        lan.write("two")
        await lan.knows({"one", "two"})
        assert lan.faults == 1

    run(monkeypatch, test)


def test_whoever_has_it_collected_everybody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who takes a sample of a writer that is not known yet looks there first, perhaps before the
    edge itself does."""

    async def test(lan: Lan) -> None:
        before = lan.changes
        lan.write("early")
        async with asyncio.timeout(PATIENCE_S):
            while lan.changes == before:
                lan.discovery.collect()
                await asyncio.sleep(0.005)
        await lan.knows({"early"})
        told = lan.changes
        lan.discovery.collect()
        assert lan.changes == told, "nothing is new"

    run(monkeypatch, test)
