"""What one edge wants: what it announces of its LAN, which remote publishers it mirrors, which
routers it needs. Pure; the edge's reconciler asks here and acts on the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from gateway.model import (
    Announcement,
    Direction,
    Endpoint,
    FabricView,
    Ownership,
    Profile,
)
from gateway.plan.matching import Mismatch, match

LocalProfiles = dict[tuple[str, Direction], dict[Profile, tuple[str, ...]]]
"""For each topic and direction the LAN's profiles with the GUIDs behind each."""


ProfileKey = tuple[str, str]
"""Topic and profile id."""


class MirrorKey(NamedTuple):
    """One publisher profile of one life of one edge of another LAN."""

    edge: str
    incarnation: int
    topic: str
    profile: str


@dataclass(frozen=True, slots=True)
class WantedMirror:
    profile: Profile
    subscribers: int
    """Local endpoints that match it: what a mirror writer waits for before asking for samples."""
    type_hash: str | None
    """The type to make the mirror of: the publisher's, or a subscriber's when the publisher
    announced none (then DDS matches by name, except that it compares types it knows)."""
    lan: str = ""
    """The publisher's."""
    writers: frozenset[str] = frozenset()
    """GUIDs of the endpoints behind the profile."""


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A remote publisher and a local subscriber DDS would not connect."""

    topic: str
    peer_lan: str
    mismatch: Mismatch


def profile_of(endpoint: Endpoint) -> Profile:
    """The profile an endpoint belongs to."""
    is_exclusive_writer = (
        endpoint.direction is Direction.PUB and endpoint.qos.ownership is Ownership.EXCLUSIVE
    )
    return Profile(
        type_name=endpoint.type_name,
        type_hash=endpoint.type_hash,
        keyed=endpoint.keyed,
        qos=endpoint.qos,
        writer=endpoint.guid if is_exclusive_writer else None,
    )


def local_profiles(endpoints: Iterable[Endpoint]) -> LocalProfiles:
    found: dict[tuple[str, Direction], dict[Profile, list[str]]] = {}
    for endpoint in endpoints:
        by_profile = found.setdefault((endpoint.topic, endpoint.direction), {})
        by_profile.setdefault(profile_of(endpoint), []).append(endpoint.guid)
    return {
        key: {profile: tuple(sorted(guids)) for profile, guids in by_profile.items()}
        for key, by_profile in found.items()
    }


def is_bridged(topic: str, allow: Iterable[str], deny: Iterable[str]) -> bool:
    """Whether the configuration lets a topic leave or enter the LAN."""
    return any(fnmatchcase(topic, pattern) for pattern in allow) and not any(
        fnmatchcase(topic, pattern) for pattern in deny
    )


def announcements(
    profiles: LocalProfiles, *, edge: str, lan: str, incarnation: int
) -> list[Announcement]:
    """What the tree should say of this LAN; profiles in a stable order, so that an unchanged LAN
    has an unchanged record."""
    return [
        Announcement(
            edge=edge,
            lan=lan,
            incarnation=incarnation,
            topic=topic,
            direction=direction,
            profiles=tuple(sorted(by_profile.items(), key=lambda item: item[0].id)),
        )
        for (topic, direction), by_profile in sorted(profiles.items())
        if by_profile
    ]


def wanted_mirrors(
    view: FabricView, local: LocalProfiles, *, lan: str
) -> tuple[dict[MirrorKey, WantedMirror], list[Unmatched]]:
    """The remote publisher profiles local subscribers match, and the pairs that do not match for
    another reason than partitions."""
    wanted: dict[MirrorKey, WantedMirror] = {}
    unmatched: list[Unmatched] = []
    for (topic, direction), subscribers in local.items():
        if direction is not Direction.SUB or topic not in view.topics:
            continue
        for announced in view.topics[topic].pubs:
            if announced.lan == lan:
                continue
            for offered, writers in announced.profiles:
                matching = 0
                type_hash = offered.type_hash
                for requested, guids in subscribers.items():
                    mismatch = match(offered, requested)
                    if mismatch is None:
                        matching += len(guids)
                        type_hash = type_hash or requested.type_hash
                    elif not mismatch.is_separated:
                        unmatched.append(Unmatched(topic, announced.lan, mismatch))
                if matching:
                    key = MirrorKey(announced.edge, announced.incarnation, topic, offered.id)
                    wanted[key] = WantedMirror(
                        offered, matching, type_hash, announced.lan, frozenset(writers)
                    )
    return wanted, unmatched


def wanted_routers(view: FabricView, topics: Iterable[str]) -> dict[str, str]:
    """Addresses of the routers that carry these topics, primaries and standbys, by router."""
    wanted: dict[str, str] = {}
    for topic in topics:
        known = view.topics.get(topic)
        if known is None or known.assignment is None:
            continue
        for router in (known.assignment.primary, known.assignment.standby):
            if router is not None and router in view.routers:
                wanted[router] = view.routers[router].address
    return wanted


def has_remote_interest(view: FabricView, topic: str, direction: Direction, lan: str) -> bool:
    """Whether another LAN has the other side of this topic."""
    known = view.topics.get(topic)
    if known is None:
        return False
    others = known.subs if direction is Direction.PUB else known.pubs
    return any(announced.lan != lan for announced in others)


def type_of_subscribers(view: FabricView, topic: str, profile: Profile) -> str | None:
    """A type announced by remote subscribers of a profile, for a publisher that announced none."""
    known = view.topics.get(topic)
    subs = () if known is None else known.subs
    hashes = (
        requested.type_hash
        for announced in subs
        for requested, _ in announced.profiles
        if requested.type_name == profile.type_name and requested.keyed == profile.keyed
    )
    return next((hash_ for hash_ in hashes if hash_ is not None), None)


def routers_towards(
    topic: str, destination: str, view: FabricView, reachable: Mapping[str, Iterable[str]]
) -> list[str]:
    """The routers through which `destination` can get samples of `topic` now, the one to take
    first: the primary when the link to it is up and it has the destination, else the standby, else
    any that has it. `reachable` names the edges each router with an open link has."""
    known = view.topics.get(topic)
    preferred: list[str] = []
    if known is not None and known.assignment is not None:
        preferred = [r for r in (known.assignment.primary, known.assignment.standby) if r]
    return [
        router
        for router in dict.fromkeys((*preferred, *sorted(reachable)))
        if destination in reachable.get(router, ())
    ]
