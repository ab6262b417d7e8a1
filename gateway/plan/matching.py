"""Which publishers and subscribers belong together: the DDS requested/offered rules on profiles,
the way Cyclone DDS applies them (mirrors are Cyclone entities). The edges decide with it what to
mirror; `status` and the metrics say with it why a pair does not match. Moves no data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gateway.model import (
    INFINITE_NS,
    Announcement,
    DestinationOrder,
    Profile,
    Qos,
    Reliability,
    Representation,
    TopicView,
)

PARTITION = "partition"
TYPE_NAME = "type_name"
KEYS = "keys"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Why a publisher and a subscriber do not match."""

    policies: tuple[str, ...]
    """Names of what failed, in a fixed order: QoS policies, then `type_name` and `keys`."""
    pub: Profile
    sub: Profile

    @property
    def is_separated(self) -> bool:
        """Partitions keep them apart, which is how their owners wanted it: not an error."""
        return PARTITION in self.policies

    def explain(self) -> tuple[str, ...]:
        """One line for people for each of `policies`."""
        return tuple(_explanation(name, self.pub, self.sub) for name in self.policies)


@dataclass(frozen=True, slots=True)
class Pair:
    """One publisher profile and one subscriber profile of different LANs."""

    pub: Announcement
    pub_profile: Profile
    sub: Announcement
    sub_profile: Profile
    mismatch: Mismatch | None


def incompatibilities(offered: Qos, requested: Qos) -> tuple[str, ...]:
    """Names of the policies for which a writer's offer does not satisfy a reader's request."""
    failed = {
        "reliability": (
            requested.reliability is Reliability.RELIABLE
            and offered.reliability is not Reliability.RELIABLE
        ),
        "durability": requested.durability.rank > offered.durability.rank,
        "presentation": (
            requested.access_scope.rank > offered.access_scope.rank
            or requested.coherent_access > offered.coherent_access
            or requested.ordered_access > offered.ordered_access
        ),
        "deadline": requested.deadline_ns < offered.deadline_ns,
        "latency_budget": requested.latency_budget_ns < offered.latency_budget_ns,
        "ownership": requested.ownership is not offered.ownership,
        "liveliness": (
            requested.liveliness.rank > offered.liveliness.rank
            or requested.liveliness_lease_ns < offered.liveliness_lease_ns
        ),
        "destination_order": (
            requested.destination_order is DestinationOrder.SOURCE
            and offered.destination_order is not DestinationOrder.SOURCE
        ),
        "data_representation": (
            # Of the writer's list only the first counts (XTypes 7.6.3.1.1): it writes nothing else.
            _representations(offered)[0] not in _representations(requested)
        ),
        PARTITION: not is_partition_shared(offered.partitions, requested.partitions),
    }
    return tuple(name for name, has_failed in failed.items() if has_failed)


def match(pub: Profile, sub: Profile) -> Mismatch | None:
    """None when samples of `pub` may reach `sub`. The structure of the types is left to DDS, which
    has them; their names must be equal, and both must have keys or neither."""
    policies = list(incompatibilities(pub.qos, sub.qos))
    if pub.type_name != sub.type_name:
        policies.append(TYPE_NAME)
    if pub.keyed != sub.keyed:
        policies.append(KEYS)
    return Mismatch(tuple(policies), pub, sub) if policies else None


def cross_lan_pairs(topic: TopicView) -> Iterator[Pair]:
    """Every publisher profile with every subscriber profile of another LAN, matching or not."""
    for pub in topic.pubs:
        for sub in topic.subs:
            if pub.lan == sub.lan:
                continue
            for pub_profile, _ in pub.profiles:
                for sub_profile, _ in sub.profiles:
                    mismatch = match(pub_profile, sub_profile)
                    yield Pair(pub, pub_profile, sub, sub_profile, mismatch)


def is_partition_shared(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """No partition means the one with the empty name. A wildcard matches names on the other side,
    never a wildcard, not even its equal."""
    return any(
        _is_name_matched(left, right) or _is_name_matched(right, left)
        for left in one or ("",)
        for right in other or ("",)
    )


def _is_name_matched(pattern: str, name: str) -> bool:
    if not _is_wildcard(pattern):
        return pattern == name
    return not _is_wildcard(name) and _is_glob_match(pattern, name)


def _is_wildcard(name: str) -> bool:
    # Cyclone DDS knows no [...]: such a name is literal there, so it is here.
    return "*" in name or "?" in name


def _is_glob_match(pattern: str, name: str) -> bool:
    """`*` and `?` only. Linear in practice and never worse than len(pattern) * len(name): patterns
    come from the network, and a regular expression could be made to run for ever."""
    at, star, resume = 0, -1, 0
    position = 0
    while position < len(name):
        if at < len(pattern) and pattern[at] == "*":
            star, resume = at, position
            at += 1
        elif at < len(pattern) and pattern[at] in ("?", name[position]):
            at += 1
            position += 1
        elif star >= 0:
            resume += 1
            at, position = star + 1, resume
        else:
            return False
    return all(c == "*" for c in pattern[at:])


def _representations(qos: Qos) -> tuple[Representation, ...]:
    return qos.representations or (Representation.XCDR1,)


def _explanation(name: str, pub: Profile, sub: Profile) -> str:
    if name == TYPE_NAME:
        return f"reader has type {sub.type_name}, writer has type {pub.type_name}"
    if name == KEYS:
        keyed = {True: "a keyed type", False: "a keyless type"}
        return f"reader has {keyed[sub.keyed]}, writer has {keyed[pub.keyed]}"
    wanted, offered = _wording(name, sub.qos), _wording(name, pub.qos)
    if name == PARTITION:
        return f"reader is in {wanted}, writer is in {offered}"
    return f"reader wants {wanted}, writer offers {offered}"


def _wording(name: str, qos: Qos) -> str:
    match name:
        case "reliability":
            return qos.reliability.name
        case "durability":
            return qos.durability.name
        case "ownership":
            return qos.ownership.name
        case "deadline":
            return f"deadline {_duration(qos.deadline_ns)}"
        case "latency_budget":
            return f"latency budget {_duration(qos.latency_budget_ns)}"
        case "liveliness":
            return f"{qos.liveliness.name} liveliness, lease {_duration(qos.liveliness_lease_ns)}"
        case "destination_order":
            return f"destination order by {qos.destination_order.name}"
        case "presentation":
            words = [f"{qos.access_scope.name} access"]
            words += ["coherent"] if qos.coherent_access else []
            words += ["ordered"] if qos.ordered_access else []
            return " ".join(words)
        case "data_representation":
            return "/".join(r.name for r in _representations(qos))
        case "partition":
            return "partition " + ", ".join(repr(p) for p in qos.partitions or ("",))
    raise ValueError(f"no wording for policy {name!r}")


def _duration(ns: int) -> str:
    if ns >= INFINITE_NS:
        return "infinite"
    for unit, size_ns in (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)):
        if ns >= size_ns:
            return f"{ns / size_ns:g} {unit}"
    return f"{ns} ns"
