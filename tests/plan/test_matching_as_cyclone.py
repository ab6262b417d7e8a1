"""Our matching rule and Cyclone DDS's own must agree: mirrors are Cyclone entities."""

# No postponed annotations here: cyclonedds reads those of the type below.

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from cyclonedds.core import Policy
from cyclonedds.core import Qos as CycloneQos
from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.pub import DataWriter, Publisher
from cyclonedds.sub import DataReader, Subscriber
from cyclonedds.topic import Topic

from gateway.model import (
    INFINITE_NS,
    AccessScope,
    DestinationOrder,
    Durability,
    Liveliness,
    Ownership,
    Qos,
    Reliability,
    Representation,
)
from gateway.plan.matching import incompatibilities

pytestmark = pytest.mark.dds

MS = 1_000_000
DOMAIN = 77
ON_LOOPBACK_ALONE = (
    "<General><Interfaces><NetworkInterface name='lo' multicast='false'/></Interfaces>"
    "<AllowMulticast>false</AllowMulticast></General>"
    "<Discovery><ParticipantIndex>none</ParticipantIndex></Discovery>"
)


@dataclass
class Nothing(IdlStruct, typename="Nothing"):
    value: int


@pytest.fixture(scope="module")
def participant() -> Iterator[DomainParticipant]:
    domain = Domain(DOMAIN, ON_LOOPBACK_ALONE)
    yield DomainParticipant(DOMAIN)
    del domain


def endpoint_qos(qos: Qos) -> CycloneQos:
    reliability = {
        Reliability.BEST_EFFORT: Policy.Reliability.BestEffort,
        Reliability.RELIABLE: Policy.Reliability.Reliable(MS),
    }
    durability = {
        Durability.VOLATILE: Policy.Durability.Volatile,
        Durability.TRANSIENT_LOCAL: Policy.Durability.TransientLocal,
        Durability.TRANSIENT: Policy.Durability.Transient,
        Durability.PERSISTENT: Policy.Durability.Persistent,
    }
    liveliness = {
        Liveliness.AUTOMATIC: Policy.Liveliness.Automatic,
        Liveliness.MANUAL_BY_PARTICIPANT: Policy.Liveliness.ManualByParticipant,
        Liveliness.MANUAL_BY_TOPIC: Policy.Liveliness.ManualByTopic,
    }
    order = {
        DestinationOrder.RECEPTION: Policy.DestinationOrder.ByReceptionTimestamp,
        DestinationOrder.SOURCE: Policy.DestinationOrder.BySourceTimestamp,
    }
    ownership = {
        Ownership.SHARED: Policy.Ownership.Shared,
        Ownership.EXCLUSIVE: Policy.Ownership.Exclusive,
    }
    return CycloneQos(
        reliability[qos.reliability],
        durability[qos.durability],
        Policy.Deadline(qos.deadline_ns),
        Policy.LatencyBudget(qos.latency_budget_ns),
        liveliness[qos.liveliness](qos.liveliness_lease_ns),
        ownership[qos.ownership],
        order[qos.destination_order],
        Policy.DataRepresentation(
            use_cdrv0_representation=Representation.XCDR1 in qos.representations,
            use_xcdrv2_representation=Representation.XCDR2 in qos.representations,
        ),
    )


def group_qos(qos: Qos) -> CycloneQos:
    scope = {
        AccessScope.INSTANCE: Policy.PresentationAccessScope.Instance,
        AccessScope.TOPIC: Policy.PresentationAccessScope.Topic,
    }
    return CycloneQos(
        Policy.Partition(qos.partitions),
        scope[qos.access_scope](qos.coherent_access, qos.ordered_access),
    )


def is_matched_by_cyclone(
    participant: DomainParticipant, topic: Topic[Nothing], offered: Qos, asked: Qos
) -> bool:
    publisher = Publisher(participant, qos=group_qos(offered))
    subscriber = Subscriber(participant, qos=group_qos(asked))
    writer = DataWriter(publisher, topic, qos=endpoint_qos(offered))
    reader = DataReader(subscriber, topic, qos=endpoint_qos(asked))
    # Endpoints of one process are matched before their constructors return.
    is_matched = len(writer.get_matched_subscriptions()) == 1
    assert is_matched == (len(reader.get_matched_publications()) == 1)
    return is_matched


def some_qos(dice: random.Random) -> Qos:
    """Mostly defaults: pairs that differ in one or two policies say which one decided."""

    def pick(*values: Any) -> Any:
        return values[0] if dice.random() < 0.7 else dice.choice(values)

    return Qos(
        reliability=pick(*Reliability),
        durability=pick(*Durability),
        deadline_ns=pick(INFINITE_NS, 10 * MS, 20 * MS),
        latency_budget_ns=pick(0, MS, INFINITE_NS),
        liveliness=pick(*Liveliness),
        liveliness_lease_ns=pick(INFINITE_NS, 500 * MS, 900 * MS),
        ownership=pick(*Ownership),
        destination_order=pick(*DestinationOrder),
        access_scope=pick(AccessScope.INSTANCE, AccessScope.TOPIC),
        coherent_access=pick(False, True),
        ordered_access=pick(False, True),
        partitions=pick(
            (), ("",), ("a",), ("b", "a"), ("*",), ("a*",), ("?",), ("[ab]",), ("**b",)
        ),
        representations=pick(
            (Representation.XCDR1,),
            (Representation.XCDR2,),
            (Representation.XCDR1, Representation.XCDR2),
        ),
    )


def test_five_hundred_pairs(participant: DomainParticipant) -> None:
    dice = random.Random(4)
    topic = Topic(participant, "matching", Nothing)
    matched = 0
    for _ in range(500):
        offered, asked = some_qos(dice), some_qos(dice)
        expected = is_matched_by_cyclone(participant, topic, offered, asked)
        failed = incompatibilities(offered, asked)
        assert (not failed) == expected, (failed, offered, asked)
        matched += expected
    assert 20 < matched < 480


PARTITIONS = [(), ("",), ("a",), ("ab",), ("*",), ("a*",), ("?",), ("a?",), ("[ab]",), ("x", "*b")]


def test_every_pair_of_partitions(participant: DomainParticipant) -> None:
    topic = Topic(participant, "partitions", Nothing)
    for one in PARTITIONS:
        for other in PARTITIONS:
            offered, asked = Qos(partitions=one), Qos(partitions=other)
            expected = is_matched_by_cyclone(participant, topic, offered, asked)
            assert (not incompatibilities(offered, asked)) == expected, (one, other)
