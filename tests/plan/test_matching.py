"""Requested/offered matching: each policy, partitions, and what is reported."""

from __future__ import annotations

import fnmatch
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.model import (
    INFINITE_NS,
    AccessScope,
    Announcement,
    DestinationOrder,
    Direction,
    Durability,
    History,
    HistoryKind,
    Liveliness,
    Ownership,
    Profile,
    Qos,
    Reliability,
    Representation,
    TopicView,
)
from gateway.plan.matching import (
    cross_lan_pairs,
    incompatibilities,
    is_partition_shared,
    match,
)

MS = 1_000_000


def profile(type_name: str = "T", keyed: bool = False, **qos: Any) -> Profile:
    return Profile(type_name=type_name, type_hash=None, keyed=keyed, qos=Qos(**qos))


@pytest.mark.parametrize(
    ("policy", "weak", "strong"),
    [
        ("reliability", {}, {"reliability": Reliability.RELIABLE}),
        ("durability", {}, {"durability": Durability.TRANSIENT_LOCAL}),
        (
            "durability",
            {"durability": Durability.TRANSIENT},
            {"durability": Durability.PERSISTENT},
        ),
        ("deadline", {"deadline_ns": INFINITE_NS}, {"deadline_ns": 10 * MS}),
        ("latency_budget", {"latency_budget_ns": MS}, {"latency_budget_ns": 0}),
        ("liveliness", {}, {"liveliness": Liveliness.MANUAL_BY_TOPIC}),
        ("liveliness", {}, {"liveliness_lease_ns": MS}),
        ("destination_order", {}, {"destination_order": DestinationOrder.SOURCE}),
        ("presentation", {}, {"access_scope": AccessScope.TOPIC}),
        ("presentation", {}, {"coherent_access": True}),
        ("presentation", {}, {"ordered_access": True}),
    ],
)
def test_a_stronger_request_than_offer_fails_and_the_reverse_does_not(
    policy: str, weak: dict[str, Any], strong: dict[str, Any]
) -> None:
    assert incompatibilities(Qos(**weak), Qos(**strong)) == (policy,)
    assert incompatibilities(Qos(**strong), Qos(**weak)) == ()


def test_ownership_must_be_equal() -> None:
    exclusive = Qos(ownership=Ownership.EXCLUSIVE)
    assert incompatibilities(exclusive, Qos()) == ("ownership",)
    assert incompatibilities(Qos(), exclusive) == ("ownership",)
    assert incompatibilities(exclusive, replace(exclusive, ownership_strength=7)) == ()


def test_only_the_first_offered_representation_counts() -> None:
    both = Qos(representations=(Representation.XCDR2, Representation.XCDR1))
    old = Qos(representations=(Representation.XCDR1,))
    silent = Qos(representations=())
    assert incompatibilities(both, old) == ("data_representation",)
    assert incompatibilities(both, silent) == ("data_representation",)
    assert incompatibilities(old, both) == ()
    assert incompatibilities(old, silent) == ()
    assert incompatibilities(silent, silent) == ()


def test_what_never_fails() -> None:
    requested = Qos(
        lifespan_ns=1,
        history=History(HistoryKind.KEEP_ALL),
        transport_priority=9,
        ownership_strength=3,
        user_data="aa",
        topic_data="bb",
        group_data="cc",
    )
    assert incompatibilities(Qos(), requested) == ()
    assert incompatibilities(requested, Qos()) == ()


@pytest.mark.parametrize(
    ("one", "other", "is_shared"),
    [
        ((), (), True),
        ((), ("",), True),
        ((), ("a",), False),
        ((), ("*",), True),
        ((), ("?",), False),
        (("a",), ("a",), True),
        (("a", "b"), ("c", "b"), True),
        (("a",), ("A",), False),
        (("sensor/*",), ("sensor/left",), True),
        (("sensor/?",), ("sensor/1",), True),
        (("sensor/?",), ("sensor/12",), False),
        (("*",), ("*",), False),
        (("a*",), ("a*",), False),
        (("a*",), ("a?",), False),
        (("a[1]",), ("a[1]",), True),
        (("a[1]",), ("a1",), False),
        (("a.c",), ("abc",), False),
        (("*b*",), ("abc",), True),
        (("*a*b",), ("aXbYb",), True),
        (("line\n*",), ("line\nx\ny",), True),
    ],
)
def test_partitions(one: tuple[str, ...], other: tuple[str, ...], is_shared: bool) -> None:
    assert is_partition_shared(one, other) is is_shared
    assert is_partition_shared(other, one) is is_shared
    expected = () if is_shared else ("partition",)
    assert incompatibilities(Qos(partitions=one), Qos(partitions=other)) == expected


@given(st.text("ab*?", max_size=8), st.text("ab", max_size=8))
def test_wildcards_agree_with_fnmatch(pattern: str, name: str) -> None:
    assert is_partition_shared((pattern,), (name,)) is fnmatch.fnmatchcase(name, pattern)


def test_a_hostile_pattern_costs_no_time() -> None:
    assert not is_partition_shared(("*a" * 120 + "*b",), ("a" * 255,))


def test_mismatch_names_every_failure_in_words() -> None:
    pub = profile("sensors::Temperature", deadline_ns=1_500 * MS, partitions=("north",))
    sub = profile(
        "sensors::Pressure", keyed=True, reliability=Reliability.RELIABLE, deadline_ns=10 * MS
    )
    mismatch = match(pub, sub)
    assert mismatch is not None
    assert mismatch.policies == ("reliability", "deadline", "partition", "type_name", "keys")
    assert mismatch.explain() == (
        "reader wants RELIABLE, writer offers BEST_EFFORT",
        "reader wants deadline 10 ms, writer offers deadline 1.5 s",
        "reader is in partition '', writer is in partition 'north'",
        "reader has type sensors::Pressure, writer has type sensors::Temperature",
        "reader has a keyed type, writer has a keyless type",
    )
    assert mismatch.is_separated


enums: Any = st.sampled_from
durations: Any = st.sampled_from([0, 1, MS, INFINITE_NS])
some_qos: st.SearchStrategy[Qos] = st.builds(
    Qos,
    reliability=enums(Reliability),
    durability=enums(Durability),
    deadline_ns=durations,
    latency_budget_ns=durations,
    liveliness=enums(Liveliness),
    liveliness_lease_ns=durations,
    ownership=enums(Ownership),
    destination_order=enums(DestinationOrder),
    access_scope=enums(AccessScope),
    coherent_access=st.booleans(),
    ordered_access=st.booleans(),
    partitions=st.lists(enums(["", "a", "b", "a*", "?"]), max_size=2).map(tuple),
    representations=st.lists(enums(Representation), max_size=2, unique=True).map(tuple),
)


@given(some_qos, some_qos)
def test_every_failure_can_be_explained(offered: Qos, requested: Qos) -> None:
    pub, sub = Profile("T", None, False, offered), Profile("T", None, False, requested)
    mismatch = match(pub, sub)
    names = incompatibilities(offered, requested)
    assert (mismatch.policies if mismatch else ()) == names
    assert len(mismatch.explain() if mismatch else ()) == len(names)


def announcement(edge: str, lan: str, direction: Direction, *profiles: Profile) -> Announcement:
    return Announcement(edge, lan, 1, "t", direction, tuple((p, ()) for p in profiles))


def test_pairs_cross_lans_only_even_when_a_lan_has_several_edges() -> None:
    reliable = profile(reliability=Reliability.RELIABLE)
    plain = profile()
    topic = TopicView(
        "t",
        pubs=(
            announcement("e1", "a", Direction.PUB, plain, reliable),
            announcement("e9", "b", Direction.PUB, plain),
        ),
        subs=(
            announcement("e2", "a", Direction.SUB, plain),
            announcement("e3", "b", Direction.SUB, reliable),
        ),
    )
    found = [
        (p.pub.edge, p.sub.edge, p.mismatch.policies if p.mismatch else None)
        for p in cross_lan_pairs(topic)
    ]
    assert found == [
        ("e1", "e3", ("reliability",)),
        ("e1", "e3", None),
        ("e9", "e2", None),
    ]
