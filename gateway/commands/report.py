"""What `ddswan status` says: a view of the tree as one report, and the report as a table. Pure;
called by status.py. The report's JSON is a contract (docs/status.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from gateway.commands.edge_report import ExpressLinkReport
from gateway.model import Announcement, FabricView, RouterInfo, TopicView
from gateway.plan.matching import cross_lan_pairs

REPORT_VERSION = 1
"""Grows when a key changes its meaning or goes; new keys may come without notice."""


class TopicState(StrEnum):
    ROUTED = "routed"
    """A publisher and a subscriber of different LANs match, and a live router carries them."""
    WAITING = "waiting"
    """They match, and no live router is assigned yet."""
    INCOMPATIBLE = "incompatible"
    """There are both in different LANs, and no pair matches."""
    LOCAL = "local only"
    """Nothing to carry: no publisher, no subscriber, all in one LAN, or separate partitions."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why publishers of one LAN do not reach subscribers of another."""

    from_lan: str
    to_lan: str
    policies: tuple[str, ...]
    explanation: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicReport:
    topic: str
    state: TopicState
    primary: str | None
    standby: str | None
    epoch: int | None
    publishers: dict[str, int]
    """Endpoints by LAN."""
    subscribers: dict[str, int]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class RouterReport:
    id: str
    address: str
    zone: str
    is_leader: bool
    is_draining: bool
    topics: int
    """Topics it is primary of."""
    connections: int
    bytes_per_s: float
    cpu: float
    version: str
    metrics: str | None


@dataclass(frozen=True, slots=True)
class EdgeReport:
    id: str
    lan: str
    version: str
    metrics: str | None


@dataclass(frozen=True, slots=True)
class Report:
    fabric: str
    leader: str | None
    routers: tuple[RouterReport, ...]
    edges: tuple[EdgeReport, ...]
    topics: tuple[TopicReport, ...]
    unreadable_records: dict[str, int] = field(default_factory=dict)
    """Records of the tree that cannot be understood, by kind."""
    express_links: tuple[ExpressLinkReport, ...] = ()
    """Direct links, as edges that could be asked tell of them."""

    def to_json(self) -> dict[str, Any]:
        return {"version": REPORT_VERSION, **asdict(self)}


def make_report(
    fabric: str, view: FabricView, leader: str | None, unreadable: Mapping[str, int]
) -> Report:
    assigned = [
        topic.assignment.primary for topic in view.topics.values() if topic.assignment is not None
    ]
    return Report(
        fabric=fabric,
        leader=leader,
        routers=tuple(
            _router(router, leader, assigned.count(name))
            for name, router in sorted(view.routers.items())
        ),
        edges=tuple(
            EdgeReport(edge.edge, edge.lan, edge.version, edge.metrics)
            for _, edge in sorted(view.edges.items(), key=lambda item: (item[1].lan, item[0]))
        ),
        topics=tuple(
            _topic(topic, view.routers.keys()) for _, topic in sorted(view.topics.items())
        ),
        unreadable_records=dict(unreadable),
    )


def _router(router: RouterInfo, leader: str | None, topics: int) -> RouterReport:
    return RouterReport(
        id=router.router,
        address=router.address,
        zone=router.zone,
        is_leader=router.router == leader,
        is_draining=router.draining,
        topics=topics,
        connections=router.load.connections,
        bytes_per_s=router.load.bytes_per_s,
        cpu=router.load.cpu,
        version=router.version,
        metrics=router.metrics,
    )


def _topic(topic: TopicView, live_routers: Iterable[str]) -> TopicReport:
    pairs = list(cross_lan_pairs(topic))
    problems: dict[Problem, None] = {}
    for pair in pairs:
        if pair.mismatch is not None and not pair.mismatch.is_separated:
            mismatch = pair.mismatch
            problem = Problem(pair.pub.lan, pair.sub.lan, mismatch.policies, mismatch.explain())
            problems[problem] = None
    assignment = topic.assignment
    carriers = {assignment.primary, assignment.standby} if assignment is not None else set()
    if any(pair.mismatch is None for pair in pairs):
        is_carried = not carriers.isdisjoint(live_routers)
        state = TopicState.ROUTED if is_carried else TopicState.WAITING
    else:
        state = TopicState.INCOMPATIBLE if problems else TopicState.LOCAL
    return TopicReport(
        topic=topic.topic,
        state=state,
        primary=None if assignment is None else assignment.primary,
        standby=None if assignment is None else assignment.standby,
        epoch=None if assignment is None else assignment.epoch,
        publishers=_count_by_lan(topic.pubs),
        subscribers=_count_by_lan(topic.subs),
        problems=tuple(problems),
    )


def _count_by_lan(announcements: Iterable[Announcement]) -> dict[str, int]:
    endpoints: dict[str, set[str]] = {}
    for announcement in announcements:
        guids = endpoints.setdefault(announcement.lan, set())
        for _, behind in announcement.profiles:
            guids.update(behind)
    return {lan: len(guids) for lan, guids in sorted(endpoints.items())}


def format_report(report: Report) -> str:
    """The report as tables for a terminal."""
    lines = [f"fabric {report.fabric}"]
    if not report.routers and not report.edges:
        lines.append("no broker is connected to this fabric; is --fabric right?")
    lines += _table(
        "ROUTERS",
        ("id", "address", "zone", "role", "topics", "links", "load"),
        [
            (
                router.id,
                router.address,
                router.zone or "-",
                _role(router),
                str(router.topics),
                str(router.connections),
                _rate(router.bytes_per_s),
            )
            for router in report.routers
        ],
    )
    if report.routers and report.leader is None:
        lines.append("  no leader: topics keep their routers, new ones wait")
    lines += _table(
        "EDGES",
        ("id", "lan", "version", "metrics"),
        [(edge.id, edge.lan, edge.version or "-", edge.metrics or "-") for edge in report.edges],
    )
    lines += _table(
        "TOPICS",
        ("topic", "state", "publishers", "subscribers", "primary", "standby"),
        [
            (
                printable(topic.topic),
                topic.state.value,
                counts_by_lan(topic.publishers),
                counts_by_lan(topic.subscribers),
                topic.primary or "-",
                topic.standby or "-",
            )
            for topic in report.topics
        ],
    )
    if report.express_links:
        lines += _table(
            "EXPRESS LINKS",
            ("between", "and", "state", "round trip", "problem"),
            [
                (
                    *link.edges,
                    "up" if link.is_up else "down",
                    "-" if link.rtt_ms is None else f"{link.rtt_ms:.1f} ms",
                    link.problem or "-",
                )
                for link in report.express_links
            ],
        )
    problems = [
        f"  {printable(topic.topic)}: {problem.from_lan} to {problem.to_lan}: {reason}"
        for topic in report.topics
        for problem in topic.problems
        for reason in problem.explanation
    ]
    if problems:
        lines += ["", "WHY SOME DO NOT MATCH", *problems]
    if report.unreadable_records:
        counts = ", ".join(f"{n} {kind}" for kind, n in sorted(report.unreadable_records.items()))
        lines += ["", f"records that cannot be understood and are ignored: {counts}"]
    return "\n".join(lines)


def _role(router: RouterReport) -> str:
    role = "leader" if router.is_leader else "worker"
    return f"{role}, draining" if router.is_draining else role


def _rate(bytes_per_s: float) -> str:
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if bytes_per_s >= size:
            return f"{bytes_per_s / size:.1f} {unit}"
    return f"{bytes_per_s:.0f} B/s"


def counts_by_lan(counts: Mapping[str, int]) -> str:
    return " ".join(f"{lan}:{count}" for lan, count in counts.items()) or "-"


def printable(topic: str) -> str:
    """Topic names come from the network: nothing that could steer a terminal gets through."""
    return topic if topic and topic.isprintable() else repr(topic)


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["", title, *(table(header, rows) if rows else ["  none"])]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Its lines, the columns aligned."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in (header, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append(f"  {'  '.join(cells)}".rstrip())
    return lines
