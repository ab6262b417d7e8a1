"""QoS of real endpoints on another machine: discovered as it was set, offered again by mirrors,
and matched by ingress readers and by subscribers that ask for all a writer offers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import count
from typing import Any

import pytest
from cyclonedds.builtin import (
    BuiltinDataReader,
    BuiltinTopicDcpsPublication,
    BuiltinTopicDcpsSubscription,
)
from cyclonedds.core import Policy
from cyclonedds.core import Qos as CycloneQos
from cyclonedds.domain import DomainParticipant
from cyclonedds.pub import DataWriter, Publisher
from cyclonedds.qos import _CQos
from cyclonedds.sub import DataReader, Subscriber
from cyclonedds.topic import Topic
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edge_broker.dds import native, qos
from edge_broker.dds.matched import matched_writers
from edge_broker.dds.types import opaque
from gateway.model import (
    INFINITE_NS,
    AccessScope,
    DestinationOrder,
    Durability,
    DurabilityService,
    History,
    HistoryKind,
    Liveliness,
    Ownership,
    Qos,
    Reliability,
    Representation,
)
from tests.edge.parts import Keyed, until

pytestmark = pytest.mark.dds

S = 1_000_000_000

durations = st.one_of(st.just(INFINITE_NS), st.integers(1, 3600 * S))
names = st.text(st.characters(codec="ascii", exclude_characters="*?[\0"), min_size=1, max_size=8)
octets = st.binary(max_size=40).map(bytes.hex)
histories = st.one_of(
    st.just(History(HistoryKind.KEEP_ALL)),
    st.builds(History, st.just(HistoryKind.KEEP_LAST), st.integers(1, 1000)),
)
bounds = st.one_of(st.just(-1), st.integers(2000, 100_000))
services = st.builds(
    DurabilityService,
    cleanup_delay_ns=durations,
    history=histories,
    max_samples=st.one_of(st.just(-1), st.integers(100_000, 200_000)),
    max_instances=bounds,
    max_samples_per_instance=bounds,
)
offers = st.builds(
    Qos,
    reliability=st.sampled_from(Reliability),
    durability=st.sampled_from([Durability.VOLATILE, Durability.TRANSIENT_LOCAL]),
    deadline_ns=durations,
    latency_budget_ns=st.one_of(st.just(0), durations),
    lifespan_ns=durations,
    liveliness=st.sampled_from(Liveliness),
    liveliness_lease_ns=st.one_of(st.just(INFINITE_NS), st.integers(60 * S, 3600 * S)),
    destination_order=st.sampled_from(DestinationOrder),
    access_scope=st.sampled_from([AccessScope.INSTANCE, AccessScope.TOPIC]),
    coherent_access=st.booleans(),
    ordered_access=st.booleans(),
    partitions=st.lists(names, max_size=3, unique=True).map(tuple),
    history=histories,
    durability_service=services,
    representations=st.sampled_from(
        [
            (Representation.XCDR1,),
            (Representation.XCDR2,),
            (Representation.XCDR1, Representation.XCDR2),
        ]
    ),
    transport_priority=st.integers(-5, 5),
    user_data=octets,
    topic_data=octets,
    group_data=octets,
)
owned = st.builds(
    lambda offered, strength: replace(
        offered, ownership=Ownership.EXCLUSIVE, ownership_strength=strength
    ),
    offers,
    st.integers(0, 1000),
)


def with_one_representation(value: Qos) -> Qos:
    """A writer offers one, a reader may take either."""
    return replace(value, representations=value.representations[:1])


def history(value: History) -> Any:
    if value.kind is HistoryKind.KEEP_ALL:
        return Policy.History.KeepAll
    return Policy.History.KeepLast(value.depth)


def group_of(value: Qos) -> CycloneQos:
    scope = {
        AccessScope.INSTANCE: Policy.PresentationAccessScope.Instance,
        AccessScope.TOPIC: Policy.PresentationAccessScope.Topic,
    }[value.access_scope]
    return CycloneQos(
        scope(value.coherent_access, value.ordered_access),
        Policy.Partition(list(value.partitions)),
        Policy.Groupdata(bytes.fromhex(value.group_data)),
    )


def shared(value: Qos) -> list[Any]:
    assert value.history is not None
    return [
        Policy.Reliability.Reliable(0)
        if value.reliability is Reliability.RELIABLE
        else Policy.Reliability.BestEffort,
        Policy.Durability.TransientLocal
        if value.durability is Durability.TRANSIENT_LOCAL
        else Policy.Durability.Volatile,
        Policy.Deadline(value.deadline_ns),
        Policy.LatencyBudget(value.latency_budget_ns),
        {
            Liveliness.AUTOMATIC: Policy.Liveliness.Automatic,
            Liveliness.MANUAL_BY_PARTICIPANT: Policy.Liveliness.ManualByParticipant,
            Liveliness.MANUAL_BY_TOPIC: Policy.Liveliness.ManualByTopic,
        }[value.liveliness](value.liveliness_lease_ns),
        Policy.Ownership.Exclusive
        if value.ownership is Ownership.EXCLUSIVE
        else Policy.Ownership.Shared,
        Policy.DestinationOrder.BySourceTimestamp
        if value.destination_order is DestinationOrder.SOURCE
        else Policy.DestinationOrder.ByReceptionTimestamp,
        Policy.DataRepresentation(
            use_cdrv0_representation=Representation.XCDR1 in value.representations,
            use_xcdrv2_representation=Representation.XCDR2 in value.representations,
        ),
        history(value.history),
        Policy.Userdata(bytes.fromhex(value.user_data)),
    ]


def of_writer(value: Qos) -> CycloneQos:
    service = value.durability_service
    return CycloneQos(
        *shared(value),
        Policy.Lifespan(value.lifespan_ns),
        Policy.TransportPriority(value.transport_priority),
        Policy.DurabilityService(
            service.cleanup_delay_ns,
            history(service.history),
            service.max_samples,
            service.max_instances,
            service.max_samples_per_instance,
        ),
        *(
            [Policy.OwnershipStrength(value.ownership_strength)]
            if value.ownership is Ownership.EXCLUSIVE
            else []
        ),
    )


class Lan:
    """Endpoints on both machines, and what the built-in topics tell of them."""

    def __init__(self, near: DomainParticipant, far: DomainParticipant) -> None:
        self.near, self.far = near, far
        self._names = count()
        self._readers = [
            BuiltinDataReader(participant, topic)
            for participant in (near, far)
            for topic in (BuiltinTopicDcpsPublication, BuiltinTopicDcpsSubscription)
        ]
        self._found: dict[Any, CycloneQos] = {}

    def discovered(self, endpoint: DataWriter[Any] | DataReader[Any]) -> Qos:
        """What the other machine knows of it: both know all there is, but what was taken from
        the machine of an endpoint never passed the network."""
        assert endpoint.participant is not None
        at = 2 if endpoint.participant.guid == self.near.guid else 0

        def collect() -> bool:
            for reader in self._readers[at : at + 2]:
                self._found |= {s.key: s.qos for s in reader.take(N=1000) if s.qos is not None}
            return endpoint.guid in self._found

        until(collect)
        return qos.discovered(self._found[endpoint.guid])

    def topic(self) -> tuple[str, Topic[Any]]:
        name = f"qos-{next(self._names)}"
        return name, Topic(self.near, name, Keyed)


@pytest.fixture(scope="module")
def lan(machines: tuple[DomainParticipant, DomainParticipant]) -> Iterator[Lan]:
    yield Lan(*machines)


def is_matched(writer: DataWriter[Any], reader: DataReader[Any]) -> bool:
    try:
        handles = writer.get_matched_subscriptions()
    except IndexError:  # the binding asks how many there are, then for them: one more by then
        return False
    return reader.guid in [
        data.key
        for handle in handles
        if (data := writer.get_matched_subscription_data(handle)) is not None
    ]


@settings(max_examples=60)
@given(st.one_of(offers, owned).map(with_one_representation))
@example(Qos(history=History()))
def test_what_a_writer_offers_is_found_mirrored_and_read(lan: Lan, offered: Qos) -> None:
    name, near_topic = lan.topic()
    far_topic: Topic[Any] = Topic(
        lan.far, name, Keyed, qos=CycloneQos(Policy.Topicdata(bytes.fromhex(offered.topic_data)))
    )
    publisher = Publisher(lan.far, qos=group_of(offered))
    writer: DataWriter[Any] = DataWriter(publisher, far_topic, qos=of_writer(offered))
    found = lan.discovered(writer)
    assert found == offered

    # The reader of the edge gets all there is, and the mirror offers the same again.
    subscriber = Subscriber(lan.near, qos=qos.ingress_group(found))
    ingress: DataReader[Any] = DataReader(
        subscriber, near_topic, qos=qos.ingress_reader(found, 4096)
    )
    mirror_group = Publisher(lan.near, qos=qos.mirror_group(found))
    mirror: DataWriter[Any] = DataWriter(mirror_group, near_topic, qos=qos.mirror_writer(found))
    until(lambda: native.matched_readers(writer._ref) == 1)
    assert replace(lan.discovered(mirror), topic_data=offered.topic_data) == offered

    # A subscriber that asks for exactly what the origin offers matches the mirror as well.
    demanding = Subscriber(lan.far, qos=group_of(offered))
    reader: DataReader[Any] = DataReader(demanding, far_topic, qos=CycloneQos(*shared(offered)))
    until(lambda: native.matched_readers(mirror._ref) == 1)
    # The edge's own reader and mirror never meet.
    assert native.matched_readers(writer._ref) == 2
    assert len(matched_writers(ingress._ref)) == 1
    until(lambda: len(matched_writers(reader._ref)) == 2)
    for group in (publisher, subscriber, mirror_group, demanding):
        native.delete(group._ref)


READER_POLICIES = {field.name for field in fields(Qos)} - {
    "lifespan_ns",
    "ownership_strength",
    "transport_priority",
    "durability_service",
    "topic_data",
}


@settings(max_examples=30)
@given(st.one_of(offers, owned))
def test_what_a_reader_asks_is_found(lan: Lan, asked: Qos) -> None:
    name, _ = lan.topic()
    subscriber = Subscriber(lan.far, qos=group_of(asked))
    reader: DataReader[Any] = DataReader(
        subscriber, Topic(lan.far, name, Keyed), qos=CycloneQos(*shared(asked))
    )
    found = lan.discovered(reader)
    assert {name: getattr(found, name) for name in READER_POLICIES} == {
        name: getattr(asked, name) for name in READER_POLICIES
    }
    native.delete(subscriber._ref)


def test_defaults_are_found_as_defaults(lan: Lan) -> None:
    name, topic = lan.topic()
    writer: DataWriter[Any] = DataWriter(lan.near, topic)
    reader: DataReader[Any] = DataReader(lan.far, Topic(lan.far, name, Keyed))
    as_set = Qos(history=History(), reliability=Reliability.RELIABLE, representations=())
    assert replace(lan.discovered(writer), representations=()) == as_set
    assert lan.discovered(reader).history == History()
    assert lan.discovered(reader).reliability is Reliability.BEST_EFFORT


def test_nothing_reported_means_the_dds_defaults() -> None:
    assert qos.discovered(CycloneQos()) == Qos()


def test_an_unknown_history_is_read_safely() -> None:
    reliable = qos.mirror_writer(Qos(reliability=Reliability.RELIABLE, history=None))
    assert Policy.History.KeepAll in reliable
    best_effort = qos.mirror_writer(Qos(history=None))
    assert Policy.History.KeepLast(1) in best_effort


def test_a_mirror_never_waits_and_never_disposes() -> None:
    mirror = qos.mirror_writer(Qos(reliability=Reliability.RELIABLE))
    assert Policy.Reliability.Reliable(max_blocking_time=0) in mirror
    assert Policy.WriterDataLifecycle(autodispose=False) in mirror
    assert Policy.IgnoreLocal.Participant in mirror


def test_a_mirror_carries_topic_data(lan: Lan) -> None:
    """Topic data is a policy of the topic; the writer announces it."""
    name = f"topic-data-{time.monotonic_ns()}"
    policy = int(_CQos.qos_to_cqos(CycloneQos(Policy.Topicdata(data=b"about it"))))
    topic = native.create_topic(lan.near._ref, name, opaque("Told", keyed=False).support, policy)
    group = native.create_publisher(lan.near._ref, int(_CQos.qos_to_cqos(CycloneQos())), name)
    native.create_writer(group, topic, int(_CQos.qos_to_cqos(qos.mirror_writer(Qos()))), name)
    found: list[Any] = []

    def is_announced() -> bool:
        reader = BuiltinDataReader(lan.far, BuiltinTopicDcpsPublication)
        found[:] = [s.qos for s in reader.take(N=1000) if s.topic_name == name]
        return bool(found)

    until(is_announced)
    assert qos.discovered(found[0]).topic_data == b"about it".hex()
    native.delete(group)
    native.delete(topic)
