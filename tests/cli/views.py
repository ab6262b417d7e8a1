"""A small fabric as `ddswan status` sees it: its view, and what an edge of it answers. Used by the
tests of what is said of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gateway.commands.report import Report, make_report
from gateway.model import (
    Announcement,
    Assignment,
    Direction,
    EdgeInfo,
    FabricView,
    Profile,
    Qos,
    Reliability,
    RouterInfo,
    TopicView,
)

RELIABLE = Profile("T", None, False, Qos(reliability=Reliability.RELIABLE))
BEST_EFFORT = Profile("T", None, False, Qos(reliability=Reliability.BEST_EFFORT))
ASSIGNED = Assignment("r1", "r2", 7)

Users = tuple[tuple[str, Profile], ...]
"""LANs, and what is there."""


def topic_of(pubs: Users, subs: Users, assignment: Assignment | None = ASSIGNED) -> TopicView:
    """The topic `t` with two publishers of each of these, and one subscriber."""
    return TopicView(
        "t",
        assignment,
        0,
        tuple(_announced(lan, Direction.PUB, profile, 2) for lan, profile in pubs),
        tuple(_announced(lan, Direction.SUB, profile, 1) for lan, profile in subs),
    )


def report_of(
    topic: TopicView,
    *,
    lans: Iterable[str] = "ab",
    routers: Iterable[str] = ("r1", "r2"),
    unreadable: dict[str, int] | None = None,
) -> Report:
    """Of a fabric `f` with this topic only; r1 leads."""
    view = FabricView(
        edges={f"e-{lan}": EdgeInfo(f"e-{lan}", lan, 1) for lan in lans},
        routers={name: RouterInfo(name, f"{name}:7447") for name in routers},
        topics={topic.topic: topic},
    )
    return make_report("f", view, "r1", unreadable or {})


def _announced(lan: str, direction: Direction, profile: Profile, endpoints: int) -> Announcement:
    guids = tuple(f"{lan}{number:031x}" for number in range(endpoints))
    return Announcement(f"e-{lan}", lan, 1, "t", direction, ((profile, guids),))


_PATH = {
    "via": "express",
    "up": True,
    "delays": 812,
    "level_ms": 5.04,
    "p50_ms": 5.3,
    "p99_ms": 6.2,
    "p999_ms": None,
    "lost": 1,
    "outstanding_ms": 1.0,
}
EDGE_STATUS: dict[str, Any] = {
    "edge": "e-a",
    "lan": "a",
    "express": [{"edge": "e-b", "up": True, "wanted": True, "problem": "", "rtt_ms": 10.2}],
    "pairs": [
        {
            "edge": "e-b",
            "clock_offset_ms": -0.25,
            "clock_error_ms": 5.125,
            "paths": [
                {**_PATH, "via": "r2", "up": False},
                {**_PATH, "via": "r1", "level_ms": 25.0},
                _PATH,
            ],
        }
    ],
    "outflows": [
        {
            "topic": "t",
            "profile": "f00",
            "reliable": True,
            "subscribers": ["e-b", "e-c"],
            "replay": False,
            "deadline": [
                {
                    "edge": "e-b",
                    "mode": "adaptive",
                    "deadline_ms": 200.0,
                    "taken": ["express"],
                    "why": "express alone: takes 5 ms of 200 ms",
                    "paths": {"express": "express", "routed": "r1"},
                }
            ],
        },
        {"topic": "t", "profile": "f00", "replay": True},
        {"topic": "other", "profile": "f00", "replay": False},
    ],
}
"""/status of LAN a's edge, which sends the topic `t` to two LANs."""
