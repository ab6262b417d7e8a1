"""Over which links an outflow reaches its subscribers: the plan of a topic without strict deadline,
whether links have enough to do, and which ways were lost. Owned by the outflow, asked by
ingress, too; the paths of topics with strict deadlines are chosen in deadlines.py.
"""

from __future__ import annotations

from typing import NamedTuple

from edge_broker.deadlines import DeadlineRouting, Group
from edge_broker.links import ROUTED, Link, Links
from gateway.tunnel.outgoing import OutgoingStream


class _UsedWay(NamedTuple):
    """A link as it was when it was used last."""

    link: Link
    connects: int

    @property
    def is_lost(self) -> bool:
        return not (self.link.is_up and self.link.connects == self.connects)


class Reach:
    """The ways of one stream."""

    def __init__(self, topic: str, stream: OutgoingStream, links: Links) -> None:
        self.deadline: DeadlineRouting | None = None
        """Chooses the paths of a topic with a strict one; set by the outflow."""
        self._topic = topic
        self._stream = stream
        self._links = links
        self._plan: list[Group] = []
        self._plan_generation = -1
        self._ways: dict[str, list[_UsedWay]] = {}

    @property
    def last_plan(self) -> list[Group]:
        """Where the next batch is likely to go."""
        return self.plan() if self.deadline is None else self.deadline.last_plan

    def plan(self) -> list[Group]:
        """Which subscribers are reached over which link now."""
        if self._plan_generation != self._links.generation:
            groups: dict[int, tuple[Link, list[str]]] = {}
            for edge in self._stream.destinations:
                link = self._links.path(self._topic, edge)
                if link is not None:
                    groups.setdefault(id(link), (link, []))[1].append(edge)
            self._plan = [Group(link, ROUTED, tuple(edges)) for link, edges in groups.values()]
            self._plan_generation = self._links.generation
        return self._plan

    def is_congested(self) -> bool:
        """Whether links have enough to do. One of two paths may: the other one then serves."""
        if self.deadline is None:
            return any(link.is_congested for link, _, _ in self.plan())
        for edge in self._stream.destinations:
            paths = self.deadline.paths(edge, self._links.generation)
            if paths and all(each.way.link.is_congested for each in paths):
                return True
        return False

    def on_join(self) -> None:
        """The stream has another subscriber."""
        self._plan_generation = -1

    def forget(self, edge: str) -> None:
        """It subscribes no longer."""
        self._ways.pop(edge, None)
        if self.deadline is not None:
            self.deadline.forget(edge)
        self._plan_generation = -1

    def lost(self) -> list[str]:
        """Subscribers whose way was interrupted since the last call and is there again: what was
        under way is gone. A way that merely changed while the old one lives lost nothing."""
        lost = []
        for edge in self._stream.destinations:
            ways = [_UsedWay(link, link.connects) for link in self._links_to(edge)]
            before = self._ways.get(edge)
            if before is not None and ways and (not before or any(each.is_lost for each in before)):
                lost.append(edge)
            if ways or before is not None:
                self._ways[edge] = ways
        return lost

    def _links_to(self, edge: str) -> list[Link]:
        if self.deadline is not None:
            return [way.link for way in self._links.ways(self._topic, edge)]
        link = self._links.path(self._topic, edge)
        return [] if link is None else [link]

    def say(self, edge: str, frame: bytes) -> None:
        """Frames that may come twice: a deadline topic waits for no single path."""
        if self.deadline is None:
            self._links.send(self._topic, edge, frame)
        else:
            self._links.send_every_way(self._topic, edge, frame)
