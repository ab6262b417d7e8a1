"""A LAN inside this process for tests of the edge, and paths without one."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from cyclonedds.domain import DomainParticipant

from edge_broker import arrivals as arrivals_module
from edge_broker import hedges as hedges_module
from edge_broker import pairs as pairs_module
from edge_broker.dds import bulk, bulk_in_python, native, samples
from tests.edge.outward_parts import Out
from tests.edge.parts import FAR, NEAR, Machine
from tests.edge.path_parts import Clocks, World
from tests.edge.shortcut_parts import Wires


@pytest.fixture(scope="module")
def machines() -> Iterator[tuple[DomainParticipant, DomainParticipant]]:
    """The edge's participant and that of an application on another machine."""
    lan = uuid.uuid4().hex
    near = Machine(NEAR, lan)
    native.enable_write_batching()
    far = Machine(FAR, lan)
    yield near.participant, far.participant
    far.close()
    near.close()


@pytest.fixture(params=["compiled", "in python"])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything twice: a broker takes what was compiled, or what needs no compiler."""
    chosen = bulk if request.param == "compiled" else bulk_in_python
    monkeypatch.setattr(samples, "_wait", chosen.wait)
    monkeypatch.setattr(samples, "_take", chosen.take)
    monkeypatch.setattr(samples, "_write", chosen.write)


@pytest.fixture
def near(machines: tuple[DomainParticipant, DomainParticipant]) -> DomainParticipant:
    return machines[0]


@pytest.fixture
def far(machines: tuple[DomainParticipant, DomainParticipant]) -> DomainParticipant:
    return machines[1]


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    clocks = Clocks()
    monkeypatch.setattr(pairs_module, "time", clocks)
    monkeypatch.setattr(hedges_module, "time", clocks)
    monkeypatch.setattr(arrivals_module, "time", clocks)
    return clocks


@pytest.fixture
def world(clocks: Clocks) -> World:
    return World(clocks)


@pytest.fixture
def wires() -> Iterator[Wires]:
    wires = Wires()
    yield wires
    wires.close()


@pytest.fixture
def outwards(near: DomainParticipant, far: DomainParticipant) -> Iterator[Callable[[type], Out]]:
    made: list[Out] = []

    def make(type_: type) -> Out:
        made.append(Out(near, far, type_))
        return made[-1]

    yield make
    for out in made:
        out.aim.close()
