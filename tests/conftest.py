"""Fixtures for every room's tests: the real ZooKeeper and a fabric of one's own in it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from gateway.coordination.embedded import EmbeddedZooKeeper, free_port

# The same examples in every run, and no verdict about how busy the machine is.
settings.register_profile("ddswan", derandomize=True, deadline=None)
settings.load_profile("ddswan")


_PATIENT = ("analysis", "cli", "coordination", "house", "observe", "plan", "routing")
"""Directories of tests nobody but they themselves waits for: side by side with the others, which
tell late samples from early ones, they have the processors when those do not need them."""
_PATIENT_NICENESS = 10
_HERE = Path(__file__).parent


def _is_patient(item: pytest.Item) -> bool:
    where = item.path.relative_to(_HERE).parts
    return where[0] in _PATIENT or where[-1] == "test_analyze.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Two groups for two workers, if there are workers (`./dev test`)."""
    for item in items:
        group = "patient" if _is_patient(item) else "prompt"
        item.add_marker(pytest.mark.xdist_group(group))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ and _is_patient(item):
        os.nice(_PATIENT_NICENESS - os.nice(0))


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
