"""Fixtures of the end-to-end tests: one running fabric for all tests that disturb nobody, and what
its brokers said last when a test fails.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab.fabric import Fabric
from tests.lab.namespaces import Lab, Namespace

ONE_LAN = "LAB_ONE_LAN"
"""Set, this environment variable runs the shared fabric's tests inside one LAN with no broker at
all: what plain DDS does there is what they must expect of ddswan."""

pytest.register_assert_rewrite("tests.e2e.traffic")

_running: list[Fabric] = []
_HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get(ONE_LAN):
        of_brokers = [item for item in items if "brokered" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=of_brokers)
        items[:] = [item for item in items if item not in of_brokers]
    for item in items:
        if item.path.is_relative_to(_HERE):
            for marker in ("e2e", "lab", "dds", "zookeeper"):
                item.add_marker(marker)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and item.path.is_relative_to(_HERE):
        for fabric in _running:
            for id, process in fabric.brokers.items():
                report.sections.append((f"{id} said last", process.tail(30)))
    return report


@pytest.fixture(scope="session")
def fabric() -> Iterator[Fabric]:
    """Three LANs and two routers, shared: a test names its own topics and stops no broker."""
    names = ["a", "b", "c"]
    if os.environ.get(ONE_LAN):
        with Lab("a") as lab:
            yield Fabric(OneLan(lab), [])
        return
    with Lab(*names) as lab, watched(Fabric(lab, names, routers=2)) as running:
        yield running


@pytest.fixture(scope="session")
def brokered(fabric: Fabric) -> Fabric:
    """The same, for what is asked of brokers only: in one LAN such a test is not selected."""
    return fabric


@pytest.fixture(autouse=True)
def brokers_are_running(request: pytest.FixtureRequest) -> None:
    """Tells of a broker that a former test has ended at once, not by thirty seconds of waiting."""
    if "fabric" in request.fixturenames:
        request.getfixturevalue("fabric").check_running()


@pytest.fixture
def own_fabric(request: pytest.FixtureRequest) -> Iterator[Fabric]:
    """Two LANs and two routers for one test to break. Sessions end soon after their brokers.
    Parameter: more settings."""
    settings = {"DDSWAN_ZOOKEEPER_SESSION_TIMEOUT_S": "4"} | getattr(request, "param", {})
    with Lab("a", "b") as lab, watched(Fabric(lab, ["a", "b"], routers=2, settings=settings)) as up:
        yield up


class OneLan(Lab):
    """Every LAN is the same one, without ddswan."""

    def __init__(self, lab: Lab) -> None:
        super().__init__()
        self._lab = lab

    def lan(self, name: str) -> Namespace:
        return self._lab.lan("a")


@contextmanager
def watched(fabric: Fabric) -> Iterator[Fabric]:
    """A fabric whose brokers are quoted when a test fails, its start included."""
    _running.append(fabric)
    try:
        with fabric:
            yield fabric
    finally:
        _running.remove(fabric)
