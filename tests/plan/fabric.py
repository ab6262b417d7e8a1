"""Small fabrics for the planning tests, and what applying a plan makes of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gateway.model import (
    Announcement,
    Assignment,
    Direction,
    FabricView,
    Profile,
    Qos,
    RouterInfo,
    RouterLoad,
    TopicView,
)
from gateway.plan.assignment import AssignmentPlan

PROFILE = Profile("T", None, False, Qos())


def announcement(topic: str, direction: Direction, edge: str, lan: str) -> Announcement:
    return Announcement(edge, lan, 1, topic, direction, ((PROFILE, ("0" * 32,)),))


def topic(
    name: str, assignment: Assignment | None = None, *, sub_lans: Iterable[str] = ("b",)
) -> TopicView:
    """A topic published in LAN a and subscribed in others."""
    return TopicView(
        name,
        assignment,
        version=0,
        pubs=(announcement(name, Direction.PUB, "ea", "a"),),
        subs=tuple(announcement(name, Direction.SUB, f"e{lan}", lan) for lan in sub_lans),
    )


def router(name: str, *, draining: bool = False, zone: str = "", **load: object) -> RouterInfo:
    return RouterInfo(
        name,
        f"{name}:7447",
        zone=zone,
        draining=draining,
        load=RouterLoad(**load),  # type: ignore[arg-type]
    )


def fabric(routers: Iterable[RouterInfo], topics: Iterable[TopicView]) -> FabricView:
    return FabricView(
        routers={info.router: info for info in routers},
        topics={view.topic: view for view in topics},
    )


def applied(view: FabricView, plan: AssignmentPlan) -> FabricView:
    """The view after the leader has written `plan`."""
    topics = dict(view.topics)
    for change in plan.changes:
        before = topics[change.topic]
        assert change.before == before.assignment
        assert change.version == before.version
        topics[change.topic] = replace(before, assignment=change.after, version=before.version + 1)
    return replace(view, topics=topics)
