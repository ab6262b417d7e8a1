"""What the whole house talks about: endpoints, quality of service, publisher and subscriber
profiles. Pure values; no I/O, no clock. Durations are integer nanoseconds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any

INFINITE_NS = 9_223_372_036_854_775_807
"""The DDS duration that never ends."""

LENGTH_UNLIMITED = -1


def is_int64(number: int) -> bool:
    """Whether DDS and the tunnel can hold it, and arithmetic with floats; JSON knows no bound."""
    return -INFINITE_NS <= number <= INFINITE_NS


def is_encodable(text: str) -> bool:
    """Whether it can be sent and shown. JSON can say a lone surrogate, half a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Direction(StrEnum):
    """Which side of a topic an endpoint is on; the value is its node name in the tree."""

    PUB = "pub"
    SUB = "sub"


class Reliability(StrEnum):
    BEST_EFFORT = "best_effort"
    RELIABLE = "reliable"


class Durability(StrEnum):
    """Ordered weakest first; compare with `rank`."""

    VOLATILE = "volatile"
    TRANSIENT_LOCAL = "transient_local"
    TRANSIENT = "transient"
    PERSISTENT = "persistent"

    @property
    def rank(self) -> int:
        return list(Durability).index(self)


class Liveliness(StrEnum):
    """Ordered weakest first; compare with `rank`."""

    AUTOMATIC = "automatic"
    MANUAL_BY_PARTICIPANT = "manual_by_participant"
    MANUAL_BY_TOPIC = "manual_by_topic"

    @property
    def rank(self) -> int:
        return list(Liveliness).index(self)


class Ownership(StrEnum):
    SHARED = "shared"
    EXCLUSIVE = "exclusive"


class DestinationOrder(StrEnum):
    """Ordered weakest first."""

    RECEPTION = "reception"
    SOURCE = "source"


class AccessScope(StrEnum):
    """Ordered weakest first; compare with `rank`."""

    INSTANCE = "instance"
    TOPIC = "topic"
    GROUP = "group"

    @property
    def rank(self) -> int:
        return list(AccessScope).index(self)


class HistoryKind(StrEnum):
    KEEP_LAST = "keep_last"
    KEEP_ALL = "keep_all"


class Representation(StrEnum):
    XCDR1 = "xcdr1"
    XCDR2 = "xcdr2"


@dataclass(frozen=True, slots=True)
class History:
    kind: HistoryKind = HistoryKind.KEEP_LAST
    depth: int = 1


@dataclass(frozen=True, slots=True)
class DurabilityService:
    """What a durable writer keeps for late joiners."""

    cleanup_delay_ns: int = 0
    history: History = field(default_factory=History)
    max_samples: int = LENGTH_UNLIMITED
    max_instances: int = LENGTH_UNLIMITED
    max_samples_per_instance: int = LENGTH_UNLIMITED


@dataclass(frozen=True, slots=True)
class Qos:
    """The policies of one endpoint as discovery reports them. Byte strings are hexadecimal so
    that a value is JSON as it stands. `history` is None when discovery did not carry it.
    """

    reliability: Reliability = Reliability.BEST_EFFORT
    durability: Durability = Durability.VOLATILE
    deadline_ns: int = INFINITE_NS
    latency_budget_ns: int = 0
    lifespan_ns: int = INFINITE_NS
    liveliness: Liveliness = Liveliness.AUTOMATIC
    liveliness_lease_ns: int = INFINITE_NS
    ownership: Ownership = Ownership.SHARED
    ownership_strength: int = 0
    destination_order: DestinationOrder = DestinationOrder.RECEPTION
    access_scope: AccessScope = AccessScope.INSTANCE
    coherent_access: bool = False
    ordered_access: bool = False
    partitions: tuple[str, ...] = ()
    history: History | None = None
    durability_service: DurabilityService = field(default_factory=DurabilityService)
    representations: tuple[Representation, ...] = (Representation.XCDR1,)
    transport_priority: int = 0
    user_data: str = ""
    topic_data: str = ""
    group_data: str = ""

    def without_changeable(self) -> Qos:
        """The part Cyclone DDS keeps for an endpoint's life: equal for what one endpoint offered
        before and after it changed its mind."""
        return replace(
            self,
            lifespan_ns=INFINITE_NS,
            ownership_strength=0,
            transport_priority=0,
            user_data="",
            topic_data="",
            group_data="",
        )

    def to_json(self) -> dict[str, Any]:
        """Only what differs from the default, so that records stay short and readable."""
        default = asdict(Qos())
        return {k: v for k, v in asdict(self).items() if v != default[k]}

    @staticmethod
    def from_json(raw: dict[str, Any]) -> Qos:
        """Inverse of `to_json`. Unknown keys are ignored (a newer edge may know more policies);
        raises ValueError, TypeError or KeyError when a known one is malformed."""
        plain: dict[str, Any] = {}
        for key, value in raw.items():
            convert = _FROM_JSON.get(key)
            if convert is not None:
                plain[key] = convert(value)
        return Qos(**plain)


def _history(raw: dict[str, Any]) -> History:
    return History(HistoryKind(raw["kind"]), _integer(raw["depth"]))


def _optional_history(raw: dict[str, Any] | None) -> History | None:
    return None if raw is None else _history(raw)


def _durability_service(raw: dict[str, Any]) -> DurabilityService:
    return DurabilityService(
        cleanup_delay_ns=_integer(raw["cleanup_delay_ns"]),
        history=_history(raw["history"]),
        max_samples=_integer(raw["max_samples"]),
        max_instances=_integer(raw["max_instances"]),
        max_samples_per_instance=_integer(raw["max_samples_per_instance"]),
    )


def _integer(raw: Any) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise TypeError(f"expected an integer, found {raw!r}")
    if not is_int64(raw):
        raise ValueError("expected an integer of 64 bits, found a longer one")
    return raw


def _boolean(raw: Any) -> bool:
    if not isinstance(raw, bool):
        raise TypeError(f"expected true or false, found {raw!r}")
    return raw


def _text(raw: Any) -> str:
    if not isinstance(raw, str):
        raise TypeError(f"expected text, found {raw!r}")
    if not is_encodable(raw):
        raise ValueError(f"expected text in Unicode, found {raw!r}")
    return raw


def _hexadecimal(raw: Any) -> str:
    return bytes.fromhex(_text(raw)).hex()


_FROM_JSON: dict[str, Any] = {
    "reliability": Reliability,
    "durability": Durability,
    "deadline_ns": _integer,
    "latency_budget_ns": _integer,
    "lifespan_ns": _integer,
    "liveliness": Liveliness,
    "liveliness_lease_ns": _integer,
    "ownership": Ownership,
    "ownership_strength": _integer,
    "destination_order": DestinationOrder,
    "access_scope": AccessScope,
    "coherent_access": _boolean,
    "ordered_access": _boolean,
    "partitions": lambda raw: tuple(_text(name) for name in raw),
    "history": _optional_history,
    "durability_service": _durability_service,
    "representations": lambda raw: tuple(Representation(name) for name in raw),
    "transport_priority": _integer,
    "user_data": _hexadecimal,
    "topic_data": _hexadecimal,
    "group_data": _hexadecimal,
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One local DDS writer or reader as discovery reports it."""

    guid: str
    """32 hexadecimal digits."""
    direction: Direction
    topic: str
    type_name: str
    type_hash: str | None
    """Content address of the type under types/; None when the endpoint announced no type."""
    keyed: bool
    qos: Qos


@dataclass(frozen=True, slots=True)
class Profile:
    """Endpoints of one LAN, topic and direction that another LAN cannot tell apart: one mirror
    serves them all. An EXCLUSIVE writer is a profile of its own, because ownership is decided
    between writers."""

    type_name: str
    type_hash: str | None
    keyed: bool
    qos: Qos
    writer: str | None = None
    """The single origin writer of an EXCLUSIVE profile."""

    def is_successor_of(self, other: Profile) -> bool:
        """Whether endpoints of the other one may have become these by a change of policies that
        can change."""
        return replace(self, qos=self.qos.without_changeable()) == replace(
            other, qos=other.qos.without_changeable()
        )

    @property
    def id(self) -> str:
        """Short content address: equal profiles have equal ids in every LAN and every life."""
        return _profile_id(self)


@lru_cache(maxsize=65_536)
def _profile_id(profile: Profile) -> str:
    text = json.dumps(
        [
            profile.type_name,
            profile.type_hash,
            profile.keyed,
            profile.qos.to_json(),
            profile.writer,
        ],
        sort_keys=True,
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Announcement:
    """All that one edge says of one direction of one topic: a pub/ or sub/ record of the tree."""

    edge: str
    lan: str
    incarnation: int
    topic: str
    direction: Direction
    profiles: tuple[tuple[Profile, tuple[str, ...]], ...]
    """Each profile with the GUIDs of the endpoints behind it."""


@dataclass(frozen=True, slots=True)
class EdgeInfo:
    """A live edge: an edges/ record of the tree."""

    edge: str
    lan: str
    incarnation: int
    version: str = ""
    metrics: str | None = None
    """host:port where its metrics are served, when they are."""
    express: tuple[str, ...] = ()
    """Where other edges may reach it directly, host:port each."""


@dataclass(frozen=True, slots=True)
class RouterLoad:
    bytes_per_s: float = 0.0
    """Bytes forwarded per second, counted once for each destination."""
    cpu: float = 0.0
    """Share of one core, 0…1 and above."""
    connections: int = 0
    topics: tuple[tuple[str, float], ...] = ()
    """The heaviest topics and their bytes per second."""


@dataclass(frozen=True, slots=True)
class RouterInfo:
    """A live routing broker: a routers/ record of the tree."""

    router: str
    address: str
    zone: str = ""
    incarnation: int = 0
    draining: bool = False
    load: RouterLoad = field(default_factory=RouterLoad)
    version: str = ""
    metrics: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which routers carry a topic: the data of topics/<topic>. `epoch` is the leader's czxid."""

    primary: str
    standby: str | None
    epoch: int


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic of the tree as last read. `version` is the znode version of the assignment."""

    topic: str
    assignment: Assignment | None = None
    version: int = 0
    pubs: tuple[Announcement, ...] = ()
    subs: tuple[Announcement, ...] = ()


@dataclass(frozen=True, slots=True)
class Advised:
    """One thing that was recommended of a topic and applied: `express` or `avoid` is set."""

    topic: str
    express: bool | None = None
    """Whether it uses two paths, whatever its deadline and the settings say."""
    avoid: str | None = None
    """The router that is not to be its primary while there is another."""
    since_s: int = 0
    """Seconds since 1970."""
    text: str = ""
    """Why, for people."""
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @property
    def what(self) -> str:
        if self.avoid is not None:
            return f"avoid {self.avoid}"
        return "express on" if self.express else "express off"


@dataclass(frozen=True, slots=True)
class Advice:
    """All that is applied now; at most one of each kind for a topic."""

    entries: tuple[Advised, ...] = ()

    def express(self) -> dict[str, bool]:
        return {each.topic: each.express for each in self.entries if each.express is not None}

    def avoided(self) -> dict[str, str]:
        return {each.topic: each.avoid for each in self.entries if each.avoid is not None}


@dataclass(frozen=True, slots=True)
class FabricView:
    """The tree as last read: what every decision is made from."""

    edges: dict[str, EdgeInfo] = field(default_factory=dict)
    routers: dict[str, RouterInfo] = field(default_factory=dict)
    topics: dict[str, TopicView] = field(default_factory=dict)
    advice: Advice = Advice()
