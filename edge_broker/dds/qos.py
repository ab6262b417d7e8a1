"""Cyclone DDS QoS to and from `gateway.model.Qos`, and the QoS of the two entities an edge makes:
the mirror writer and the ingress reader. No DDS call here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cyclonedds.core import Policy
from cyclonedds.core import Qos as CycloneQos

from gateway.model import (
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

_DURABILITY = {
    Durability.VOLATILE: Policy.Durability.Volatile,
    Durability.TRANSIENT_LOCAL: Policy.Durability.TransientLocal,
    Durability.TRANSIENT: Policy.Durability.Transient,
    Durability.PERSISTENT: Policy.Durability.Persistent,
}
_LIVELINESS = {
    Liveliness.AUTOMATIC: Policy.Liveliness.Automatic,
    Liveliness.MANUAL_BY_PARTICIPANT: Policy.Liveliness.ManualByParticipant,
    Liveliness.MANUAL_BY_TOPIC: Policy.Liveliness.ManualByTopic,
}
_SCOPE = {
    AccessScope.INSTANCE: Policy.PresentationAccessScope.Instance,
    AccessScope.TOPIC: Policy.PresentationAccessScope.Topic,
    AccessScope.GROUP: Policy.PresentationAccessScope.Group,
}


def discovered(found: CycloneQos) -> Qos:
    """What discovery reported, with the DDS defaults where it reported nothing."""
    policies: dict[str, Any] = {policy.__scope__.split("<")[0]: policy for policy in found}
    history = policies.get("History")
    durability_service = policies.get("DurabilityService")
    values: dict[str, Any] = {
        "reliability": (
            Reliability.RELIABLE
            if isinstance(policies.get("Reliability"), Policy.Reliability.Reliable)
            else Reliability.BEST_EFFORT
        ),
        "history": None if history is None else _history(history),
    }
    if (durability := policies.get("Durability")) is not None:
        values["durability"] = _named(_DURABILITY, durability)
    if (deadline := policies.get("Deadline")) is not None:
        values["deadline_ns"] = deadline.deadline
    if (budget := policies.get("LatencyBudget")) is not None:
        values["latency_budget_ns"] = budget.budget
    if (lifespan := policies.get("Lifespan")) is not None:
        values["lifespan_ns"] = lifespan.lifespan
    if (liveliness := policies.get("Liveliness")) is not None:
        values["liveliness"] = _of_class(_LIVELINESS, liveliness)
        values["liveliness_lease_ns"] = liveliness.lease_duration
    if policies.get("Ownership") == Policy.Ownership.Exclusive:
        values["ownership"] = Ownership.EXCLUSIVE
    if (strength := policies.get("OwnershipStrength")) is not None:
        values["ownership_strength"] = strength.strength
    if policies.get("DestinationOrder") == Policy.DestinationOrder.BySourceTimestamp:
        values["destination_order"] = DestinationOrder.SOURCE
    if (scope := policies.get("PresentationAccessScope")) is not None:
        values["access_scope"] = _of_class(_SCOPE, scope)
        values["coherent_access"] = bool(scope.coherent_access)
        values["ordered_access"] = bool(scope.ordered_access)
    if (partition := policies.get("Partition")) is not None:
        values["partitions"] = tuple(partition.partitions)
    if durability_service is not None:
        values["durability_service"] = DurabilityService(
            cleanup_delay_ns=durability_service.cleanup_delay,
            history=_history(durability_service.history),
            max_samples=durability_service.max_samples,
            max_instances=durability_service.max_instances,
            max_samples_per_instance=durability_service.max_samples_per_instance,
        )
    if (representation := policies.get("DataRepresentation")) is not None:
        offered = (
            *((Representation.XCDR1,) if representation.use_cdrv0_representation else ()),
            *((Representation.XCDR2,) if representation.use_xcdrv2_representation else ()),
        )
        values["representations"] = offered or (Representation.XCDR1,)
    if (priority := policies.get("TransportPriority")) is not None:
        values["transport_priority"] = priority.priority
    for scope_name, key in (
        ("Userdata", "user_data"),
        ("Topicdata", "topic_data"),
        ("Groupdata", "group_data"),
    ):
        if (data := policies.get(scope_name)) is not None:
            values[key] = bytes(data.data).hex()
    return Qos(**values)


def _named(table: dict[Any, Any], policy: Any) -> Any:
    return next(name for name, candidate in table.items() if candidate == policy)


def _of_class(table: dict[Any, Any], policy: Any) -> Any:
    return next(name for name, candidate in table.items() if isinstance(policy, candidate))


def _history(policy: Any) -> History:
    if policy == Policy.History.KeepAll:
        return History(HistoryKind.KEEP_ALL)
    return History(HistoryKind.KEEP_LAST, policy.depth)


def _cyclone_history(history: History) -> Any:
    if history.kind is HistoryKind.KEEP_ALL:
        return Policy.History.KeepAll
    return Policy.History.KeepLast(max(history.depth, 1))


def mirror_group(offered: Qos) -> CycloneQos:
    """QoS of the DDS publisher above a mirror writer."""
    return CycloneQos(*_group_policies(offered))


def ingress_group(offered: Qos) -> CycloneQos:
    """QoS of the DDS subscriber above an ingress reader. A wildcard never matches a wildcard, so
    where the writer has one the reader has a name it matches."""
    names = tuple(name.replace("*", "").replace("?", "_") for name in offered.partitions)
    return CycloneQos(*_group_policies(replace(offered, partitions=names)))


def _group_policies(offered: Qos) -> list[Any]:
    policies: list[Any] = [
        _SCOPE[offered.access_scope](
            coherent_access=offered.coherent_access, ordered_access=offered.ordered_access
        )
    ]
    if offered.partitions:
        policies.append(Policy.Partition(partitions=list(offered.partitions)))
    if offered.group_data:
        policies.append(Policy.Groupdata(data=bytes.fromhex(offered.group_data)))
    return policies


def mirror_writer(offered: Qos) -> CycloneQos:
    """A writer that offers what the origin offers. It never waits (a waiting write holds the
    interpreter lock), never disposes on its own, and keeps for late joiners what the origin
    keeps. When discovery did not say how the origin keeps history, a reliable mirror keeps all:
    losing nothing is the safe reading."""
    history = offered.history
    if history is None:
        history = History(
            HistoryKind.KEEP_ALL
            if offered.reliability is Reliability.RELIABLE
            else HistoryKind.KEEP_LAST
        )
    service = offered.durability_service
    policies: list[Any] = [
        *_shared_policies(offered),
        _cyclone_history(history),
        Policy.WriterDataLifecycle(autodispose=False),
        Policy.Lifespan(offered.lifespan_ns),
        Policy.OwnershipStrength(offered.ownership_strength),
        Policy.TransportPriority(offered.transport_priority),
        Policy.DurabilityService(
            cleanup_delay=service.cleanup_delay_ns,
            history=_cyclone_history(service.history),
            max_samples=service.max_samples,
            max_instances=service.max_instances,
            max_samples_per_instance=service.max_samples_per_instance,
        ),
    ]
    if offered.ownership is not Ownership.EXCLUSIVE:
        policies = [p for p in policies if not isinstance(p, Policy.OwnershipStrength)]
    if offered.user_data:
        policies.append(Policy.Userdata(data=bytes.fromhex(offered.user_data)))
    return CycloneQos(*policies)


def changeable_writer(offered: Qos) -> CycloneQos:
    """What may change while a mirror writer lives."""
    policies: list[Any] = [
        Policy.Lifespan(offered.lifespan_ns),
        Policy.TransportPriority(offered.transport_priority),
        Policy.Userdata(data=bytes.fromhex(offered.user_data)),
    ]
    if offered.ownership is Ownership.EXCLUSIVE:
        policies.append(Policy.OwnershipStrength(offered.ownership_strength))
    return CycloneQos(*policies)


def changeable_group(offered: Qos) -> CycloneQos:
    """What may change of the DDS publisher above it."""
    return CycloneQos(Policy.Groupdata(data=bytes.fromhex(offered.group_data)))


def ingress_reader(offered: Qos, most_samples: int) -> CycloneQos:
    """A reader that requests what the origin offers, so that it gets all there is. A reliable one
    is bounded: when it is full its writers feel it, as with a slow local reader; a best-effort one
    keeps the newest of each instance. It has a deadline only where a writer that misses it loses
    its instances to another one: DDS wakes up for each."""
    policies: list[Any] = [*_shared_policies(offered)]
    if offered.ownership is not Ownership.EXCLUSIVE:
        policies = [p for p in policies if not isinstance(p, Policy.Deadline)]
    if offered.reliability is Reliability.RELIABLE:
        policies += [
            Policy.History.KeepAll,
            Policy.ResourceLimits(max_samples=most_samples),
        ]
    else:
        policies.append(Policy.History.KeepLast(most_samples))
    return CycloneQos(*policies)


def _shared_policies(offered: Qos) -> list[Any]:
    policies: list[Any] = [
        (
            Policy.Reliability.Reliable(max_blocking_time=0)
            if offered.reliability is Reliability.RELIABLE
            else Policy.Reliability.BestEffort
        ),
        _DURABILITY[offered.durability],
        Policy.Deadline(offered.deadline_ns),
        Policy.LatencyBudget(offered.latency_budget_ns),
        _LIVELINESS[offered.liveliness](lease_duration=offered.liveliness_lease_ns),
        (
            Policy.Ownership.Exclusive
            if offered.ownership is Ownership.EXCLUSIVE
            else Policy.Ownership.Shared
        ),
        (
            Policy.DestinationOrder.BySourceTimestamp
            if offered.destination_order is DestinationOrder.SOURCE
            else Policy.DestinationOrder.ByReceptionTimestamp
        ),
        Policy.DataRepresentation(
            use_cdrv0_representation=Representation.XCDR1 in offered.representations,
            use_xcdrv2_representation=Representation.XCDR2 in offered.representations,
        ),
        Policy.IgnoreLocal.Participant,
    ]
    return policies
