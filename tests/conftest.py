"""Fixtures for every room's tests: the real ZooKeeper and a fabric of one's own in it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from hypothesis import settings

from gateway.coordination.embedded import EmbeddedZooKeeper, free_port

# The same examples in every run, and no verdict about how busy the machine is.
settings.register_profile("ddswan", derandomize=True, deadline=None)
settings.load_profile("ddswan")


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    """One server for the whole run; `zookeeper.address` is host:port. Never stop or pause it."""
    server = EmbeddedZooKeeper(free_port(), tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def private_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    """A server for one test, which may stop, pause or kill it by its pid."""
    server = EmbeddedZooKeeper(free_port(), tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def fabric() -> str:
    """A fabric name nobody else uses, so that tests share the server without meeting."""
    return f"test-{uuid.uuid4().hex[:12]}"
