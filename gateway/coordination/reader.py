"""Reads single paths of the tree and keeps what they said, re-arming the watch of each. Used by
view.py only, which decides what to read and when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from gateway.coordination.paths import FabricPaths, decode_topic, parse_announcement_name
from gateway.coordination.records import (
    decode_advice,
    decode_announcement,
    decode_assignment,
    decode_edge,
    decode_router,
    digest,
)
from gateway.coordination.zookeeper import ZooKeeper
from gateway.errors import CoordinationError, CoordinationLost, DdswanError, RecordError
from gateway.model import (
    Advice,
    Announcement,
    Assignment,
    Direction,
    EdgeInfo,
    FabricView,
    RouterInfo,
    TopicView,
)
from gateway.observe.logs import get_logger

log = get_logger("coordination")

_T = TypeVar("_T")


class Malformed:
    """Counts the records that cannot be understood, or may not be read, and reports each once,
    until it is mended."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._known: dict[str, str] = {}

    def report(self, kind: str, path: str, error: RecordError) -> None:
        if self._is_news(kind, path, error):
            log.warning(
                "a record cannot be understood, it is skipped; see what writes there, or delete it",
                kind=kind,
                path=path,
                error=error,
            )

    def report_refused(self, kind: str, path: str, error: CoordinationError) -> None:
        if self._is_news(kind, path, error):
            log.warning(
                "a record may not be read, it is skipped; see who made it and for whom",
                kind=kind,
                path=path,
                error=error,
            )

    def _is_news(self, kind: str, path: str, error: DdswanError) -> bool:
        if self._known.get(path) == str(error):
            return False
        self._known[path] = str(error)
        self.counts[kind] += 1
        return True

    def forget(self, path: str) -> None:
        self._known.pop(path, None)

    def forget_below(self, path: str, names: Iterable[str] = ()) -> None:
        """Forgets every path below this one except those under the given children."""
        if self._known:
            kept = set(names)
            for known in list(self._known):
                below = known.removeprefix(f"{path}/")
                if below != known and below.partition("/")[0] not in kept:
                    del self._known[known]


@dataclass(slots=True)
class _Topic:
    """What was read of one topic. Announcements are kept with their czxid under their node name,
    which carries their digest; None stands for one that cannot be read."""

    czxid: int = 0
    """Which life of the node this is; 0: not read yet."""
    assignment: Assignment | None = None
    version: int = 0
    announced: dict[Direction, dict[str, tuple[int, Announcement | None]]] = field(
        default_factory=lambda: {direction: {} for direction in Direction}
    )

    def view(self, topic: str) -> TopicView:
        return TopicView(
            topic,
            self.assignment,
            self.version,
            self._newest_of_each_edge(Direction.PUB),
            self._newest_of_each_edge(Direction.SUB),
        )

    def _newest_of_each_edge(self, direction: Direction) -> tuple[Announcement, ...]:
        newest: dict[str, Announcement] = {}
        for _, announcement in sorted(self.announced[direction].values(), key=lambda kept: kept[0]):
            if announcement is not None:
                newest[announcement.edge] = announcement
        return tuple(newest[edge] for edge in sorted(newest))


class TreeReader:
    """What was read of one fabric so far."""

    def __init__(self, zk: ZooKeeper, paths: FabricPaths, on_event: Callable[[str], None]) -> None:
        self._zk = zk
        self._paths = paths
        self._on_event = on_event
        self._edges: dict[str, EdgeInfo] = {}
        self._routers: dict[str, RouterInfo] = {}
        self._topics: dict[str, _Topic] = {}
        self._topic_views: dict[str, TopicView] = {}
        self._changed_topics: set[str] = set()
        self._advice = Advice()
        self._has_missing_topics = False
        self.followed: frozenset[str] | None = frozenset()
        self.is_fabric_missing = False
        """A directory of the fabric was not there, so that no watch could be left on it."""
        self.malformed = Malformed()

    @property
    def topics(self) -> list[str]:
        """The topics that are followed and exist."""
        return sorted(self._topics)

    def common_paths(self) -> set[str]:
        """Everything to read but the topics themselves."""
        paths = self._paths
        return {
            paths.edges,
            paths.routers,
            paths.topics,
            paths.advice,
            *(f"{paths.edges}/{edge}" for edge in self._edges),
            *(f"{paths.routers}/{router}" for router in self._routers),
        }

    def topic_paths(self, topic: str) -> tuple[str, str, str]:
        path = self._paths.topic(topic)
        return path, f"{path}/{Direction.PUB}", f"{path}/{Direction.SUB}"

    def view(self) -> FabricView:
        """A new value; topics that did not change are the same objects as before."""
        for topic in self._changed_topics:
            # One whose own node may not be read might have an assignment.
            if topic in self._topics and self._topics[topic].czxid:
                self._topic_views[topic] = self._topics[topic].view(topic)
            else:
                self._topic_views.pop(topic, None)
        self._changed_topics.clear()
        return FabricView(
            dict(self._edges), dict(self._routers), dict(self._topic_views), self._advice
        )

    async def read(self, path: str) -> set[str]:
        """Reads one path; returns the paths that must be read because of it. A record that may not
        be read stays as it was known and is tried again with the periodic pass; without one of the
        fabric's directories too much is unknown, that is raised."""
        match self._paths.parts(path):
            case ("edges",):
                return await self._read_members(path, self._edges)
            case ("routers",):
                return await self._read_members(path, self._routers)
            case ("topics",):
                return await self._read_topics(path)
        try:
            await self._read_record(path)
        except CoordinationLost:
            raise
        except CoordinationError as error:
            self.malformed.report_refused(self._kind(path), path, error)
        return set()

    def _kind(self, path: str) -> str:
        """What a path holds, as records that cannot be read are counted."""
        match self._paths.parts(path):
            case ("edges", _):
                return "edge"
            case ("routers", _):
                return "router"
            case ("topics", _):
                return "assignment"
            case ("topics", *_):
                return "announcement"
        return "advice"

    async def _read_record(self, path: str) -> None:
        match self._paths.parts(path):
            case ("advice",):
                await self._read_advice(path)
            case ("edges", name):
                found = await self._zk.get(path, self._on_event)
                self._keep("edge", path, name, found and found[0], self._edges, _edge)
            case ("routers", name):
                found = await self._zk.get(path, self._on_event)
                self._keep("router", path, name, found and found[0], self._routers, _router)
            case ("topics", name):
                await self._read_assignment(path, decode_topic(name))
            case ("topics", name, direction):
                await self._read_announcements(path, decode_topic(name), Direction(direction))

    async def _read_members(self, path: str, members: dict[str, _T]) -> set[str]:
        names = await self._zk.children(path, self._on_event)
        self.is_fabric_missing |= names is None
        listed = set(names or ())
        for gone in members.keys() - listed:
            del members[gone]
        self.malformed.forget_below(path, listed)
        return {f"{path}/{name}" for name in listed - members.keys()}

    async def _read_advice(self, path: str) -> None:
        found = await self._zk.get(path, self._on_event)
        self.is_fabric_missing |= found is None
        data = b"" if found is None else found[0]
        try:
            self._advice = decode_advice(data, path) if data else Advice()
        except RecordError as error:
            # What was advised before goes on: that it cannot be read is no advice.
            self.malformed.report("advice", path, error)
        else:
            self.malformed.forget(path)

    def _keep(
        self,
        kind: str,
        path: str,
        name: str,
        data: bytes | None,
        members: dict[str, _T],
        decode: Callable[[bytes, str, str], _T],
    ) -> None:
        members.pop(name, None)
        if data is None:
            self.malformed.forget(path)
            return
        try:
            members[name] = decode(data, path, name)
        except RecordError as error:
            self.malformed.report(kind, path, error)
        else:
            self.malformed.forget(path)

    async def _read_topics(self, path: str) -> set[str]:
        # Who follows a few topics that exist needs no wake-up for each topic of the fabric.
        is_armed = self.followed is None or self._has_missing_topics
        names = await self._zk.children(path, self._on_event if is_armed else None)
        listed = self._wanted(path, names or [])
        self._has_missing_topics = self.followed is not None and listed != self.followed
        if self._has_missing_topics and not is_armed:
            names = await self._zk.children(path, self._on_event)
            listed = self._wanted(path, names or [])
        self.is_fabric_missing |= names is None
        for gone in self._topics.keys() - listed:
            self._drop(gone)
        self.malformed.forget_below(path, names or ())
        new = listed - self._topics.keys()
        for topic in new:
            self._topics[topic] = _Topic()
        return {below for topic in new for below in self.topic_paths(topic)}

    def _wanted(self, path: str, names: list[str]) -> set[str]:
        """The followed topics among the nodes under topics/."""
        if self.followed is not None:
            prefix = len(path) + 1
            existing = set(names)
            return {
                topic for topic in self.followed if self._paths.topic(topic)[prefix:] in existing
            }
        wanted = set()
        for name in names:
            try:
                wanted.add(decode_topic(name))
            except RecordError as error:
                self.malformed.report("topic", f"{path}/{name}", error)
        return wanted

    def _drop(self, topic: str) -> None:
        del self._topics[topic]
        self._changed_topics.add(topic)
        path = self._paths.topic(topic)
        self.malformed.forget(path)
        self.malformed.forget_below(path)

    async def _read_assignment(self, path: str, topic: str) -> None:
        if topic not in self._topics:
            return
        found = await self._zk.get(path, self._on_event)
        kept = self._topics.get(topic)
        if kept is None:
            return
        if found is None or kept.czxid not in (0, found[1].czxid):
            # It may be back already, and nothing below it is watched: forget the topic and find
            # it as a new one in a pass of its own.
            self._drop(topic)
            self._on_event(self._paths.topics)
            return
        data, stat = found
        kept.czxid = stat.czxid
        kept.version = stat.version
        kept.assignment = None
        try:
            # A topic that has no assignment yet has no data at all.
            kept.assignment = decode_assignment(data, path) if data else None
        except RecordError as error:
            self.malformed.report("assignment", path, error)
        else:
            self.malformed.forget(path)
        self._changed_topics.add(topic)

    async def _read_announcements(self, path: str, topic: str, direction: Direction) -> None:
        if topic not in self._topics:
            return
        names = await self._zk.children(path, self._on_event)
        kept = self._topics.get(topic)
        if kept is None:
            return
        if names is None:
            # No watch could be left on it. Unless the topic is malformed, it is gone or was made
            # anew meanwhile, which its own node tells.
            self._on_event(self._paths.topic(topic))
        announced = kept.announced[direction]
        listed = set(names or ())
        self.malformed.forget(path)
        self.malformed.forget_below(path, listed)
        new = listed - announced.keys()
        gone = announced.keys() - listed
        if not new and not gone:
            return
        for name in gone:
            del announced[name]
        for name in new:
            entry = await self._announcement(f"{path}/{name}", name, topic, direction)
            if entry is not None:
                announced[name] = entry
        self._changed_topics.add(topic)

    async def _announcement(
        self, path: str, name: str, topic: str, direction: Direction
    ) -> tuple[int, Announcement | None] | None:
        """The czxid and the content of a node, no content when it is malformed; None when the
        node has gone or may not be read."""
        try:
            found = await self._zk.get(path)
        except CoordinationLost:
            raise
        except CoordinationError as error:
            self.malformed.report_refused("announcement", path, error)
            return None
        if found is None:
            return None
        data, stat = found
        try:
            edge, name_digest = parse_announcement_name(name)
            announcement = decode_announcement(data, path)
            if digest(data) != name_digest or (topic, direction, edge) != (
                announcement.topic,
                announcement.direction,
                announcement.edge,
            ):
                raise RecordError(f"announcement record at {path} does not belong to its name")
        except RecordError as error:
            self.malformed.report("announcement", path, error)
            return stat.czxid, None
        self.malformed.forget(path)
        return stat.czxid, announcement


def _edge(data: bytes, path: str, name: str) -> EdgeInfo:
    info = decode_edge(data, path)
    if info.edge != name:
        raise RecordError(f"edge record at {path} does not belong to its name")
    return info


def _router(data: bytes, path: str, name: str) -> RouterInfo:
    info = decode_router(data, path)
    if info.router != name:
        raise RecordError(f"router record at {path} does not belong to its name")
    return info
