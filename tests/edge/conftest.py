"""A LAN inside this process for tests of the edge."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from cyclonedds.domain import DomainParticipant

from edge_broker.dds import native
from tests.edge.parts import FAR, NEAR, Machine


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


@pytest.fixture
def near(machines: tuple[DomainParticipant, DomainParticipant]) -> DomainParticipant:
    return machines[0]


@pytest.fixture
def far(machines: tuple[DomainParticipant, DomainParticipant]) -> DomainParticipant:
    return machines[1]
