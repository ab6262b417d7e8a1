"""Makes the edge what the LAN and the tree say it should be: rereads both, asks the plan, and has
announcements, links, mirrors and readers converge. Woken by any change; knows no deltas.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress

from edge_broker.dds.discovery import Discovery
from edge_broker.deadlines import DeadlinePolicy
from edge_broker.ingress import Ingress
from edge_broker.links import Links
from edge_broker.mirrors import Mirrors
from edge_broker.type_shop import TypeShop
from gateway.config import Topics
from gateway.coordination.paths import FabricPaths
from gateway.coordination.records import digest, encode_announcement, encode_edge
from gateway.coordination.registrar import Registrar
from gateway.coordination.view import FabricWatcher
from gateway.model import Direction, EdgeInfo, FabricView, Profile
from gateway.observe.logs import get_logger
from gateway.observe.metrics import BrokerMetrics
from gateway.plan.demand import (
    LocalProfiles,
    MirrorKey,
    ProfileKey,
    Unmatched,
    WantedMirror,
    announcements,
    is_bridged,
    local_profiles,
    wanted_mirrors,
    wanted_routers,
)
from gateway.plan.ownership import owner
from gateway.tunnel.express_greeting import Candidate

_log = get_logger("edge.reconcile")

_PAUSE_S = 0.005
"""Changes come in flocks; the first is served at once, the next so much later."""
_AT_LEAST_EVERY_S = 15.0
"""Some of what counts, such as who is linked to a router, may change without a word."""
_MOST_REPORTED = 10_000


class Reconciler:
    """One edge's way from what is to what should be."""

    def __init__(
        self,
        info: Callable[[], EdgeInfo],
        topics: Topics,
        discovery: Discovery,
        types: TypeShop,
        watcher: FabricWatcher,
        registrar: Registrar,
        paths: FabricPaths,
        links: Links,
        ingress: Ingress,
        mirrors: Mirrors,
        metrics: BrokerMetrics,
        deadlines: DeadlinePolicy,
    ) -> None:
        self._deadlines = deadlines
        self._info = info
        self._topics = topics
        self._discovery = discovery
        self._types = types
        self._watcher = watcher
        self._registrar = registrar
        self._paths = paths
        self._links = links
        self._ingress = ingress
        self._mirrors = mirrors
        self._metrics = metrics
        self._wake = asyncio.Event()
        self._reported: set[tuple[str, str, tuple[str, ...]]] = set()
        self.unmatched: list[Unmatched] = []

    def mark(self) -> None:
        """Something changed."""
        self._wake.set()

    async def run(self) -> None:
        """Converges at every change, and now and then without one, until cancelled."""
        self._wake.set()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_AT_LEAST_EVERY_S):
                    await self._wake.wait()
            self._wake.clear()
            self.converge()
            await asyncio.sleep(_PAUSE_S)

    def converge(self) -> None:
        """One pass."""
        me = self._info()
        view = self._watcher.view
        self._deadlines.advised = view.advice.express()
        local = self._served(me)
        topics = {topic for topic, _ in local} | self._ingress.topics() | self._mirrors.topics()
        self._watcher.follow(frozenset(topics))
        self._announce(me, local)
        wanted, unmatched = wanted_mirrors(view, local, lan=me.lan)
        self._links.converge(wanted_routers(view, topics), self._express(wanted, view), view)
        self._ingress.set_local(_publisher_profiles(local))
        self._ingress.set_view(view)
        self._mirrors.converge(wanted, view)
        mirrored = {key.topic for key in wanted}
        unassigned = [topic for topic in mirrored if not wanted_routers(view, [topic])]
        self._metrics.unassigned_topics.set(len(unassigned))
        self._report(unmatched)

    def _express(
        self, wanted: Mapping[MirrorKey, WantedMirror], view: FabricView
    ) -> dict[str, Candidate]:
        """The edges to have a direct link with: deadline topics come from them or go to them."""
        edges = self._ingress.express_peers() | {
            key.edge
            for key, want in wanted.items()
            if self._deadlines.deadline_s(key.topic, want.profile) is not None
        }
        return {
            edge: Candidate(info.incarnation, info.express)
            for edge in edges
            if (info := view.edges.get(edge)) is not None
        }

    def _served(self, me: EdgeInfo) -> LocalProfiles:
        """The LAN's profiles this edge is responsible for; none before it is known which other
        edges the LAN has."""
        if not self._watcher.is_read:
            return {}
        others = [e for e in self._watcher.view.edges.values() if e.edge != me.edge]
        edges = [*others, me]
        endpoints = self._discovery.endpoints()
        served = {
            topic: is_bridged(topic, self._topics.allow, self._topics.deny)
            and owner(topic, me.lan, edges) == me.edge
            for topic in {endpoint.topic for endpoint in endpoints}
        }
        return local_profiles(endpoint for endpoint in endpoints if served[endpoint.topic])

    def _announce(self, me: EdgeInfo, local: LocalProfiles) -> None:
        """A profile is announced when its type can be had by others."""
        ready: LocalProfiles = {}
        for key, profiles in local.items():
            available = {
                profile: guids
                for profile, guids in profiles.items()
                if profile.type_hash is None or self._types.is_published(profile.type_hash)
            }
            if available:
                ready[key] = available
        nodes = {self._paths.edge(me.edge): encode_edge(me)}
        for announcement in announcements(
            ready, edge=me.edge, lan=me.lan, incarnation=me.incarnation
        ):
            data = encode_announcement(announcement)
            path = self._paths.announcement(
                announcement.topic, announcement.direction, me.edge, digest(data)
            )
            nodes[path] = data
        self._registrar.declare(nodes)

    def _report(self, unmatched: list[Unmatched]) -> None:
        """Each kind of mismatch of a topic is told once; the gauge tells how many there are now."""
        before = Counter(policy for pair in self.unmatched for policy in pair.mismatch.policies)
        now = Counter(policy for pair in unmatched for policy in pair.mismatch.policies)
        for policy in before.keys() | now.keys():
            self._metrics.incompatible_pairs.labels(policy=policy).set(now[policy])
        self.unmatched = unmatched
        for pair in unmatched:
            key = (pair.topic, pair.peer_lan, pair.mismatch.policies)
            if key not in self._reported and len(self._reported) < _MOST_REPORTED:
                self._reported.add(key)
                _log.warning(
                    "a remote publisher and a local subscriber do not match; "
                    "change one of them if they should",
                    topic=pair.topic,
                    peer_lan=pair.peer_lan,
                    reason="; ".join(pair.mismatch.explain()),
                )


def _publisher_profiles(local: LocalProfiles) -> dict[ProfileKey, Profile]:
    return {
        (topic, profile.id): profile
        for (topic, direction), profiles in local.items()
        if direction is Direction.PUB
        for profile in profiles
    }
