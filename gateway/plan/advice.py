"""Which recommendations of an analysis become advice, a few at a time. Pure; called by `ddswan
recommend` and, when it may by itself, by the leader. What advice does is decided where it is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gateway.model import Advice, Advised, FabricView

FILE_VERSION = 1
MOST_ENTRIES = 500
"""In one fabric: they live in one node of ZooKeeper."""
_MOST_EVIDENCE = 32
_MOST_TEXT = 500
_MOST_NUMBER_BITS = 64


class NotRecommendations(ValueError):
    """The text is no recommendations.json of a version this one knows."""


@dataclass(frozen=True, slots=True)
class Step:
    """One change of the advice."""

    before: Advised | None
    after: Advised


@dataclass(frozen=True, slots=True)
class AdvicePlan:
    advice: Advice
    steps: tuple[Step, ...]
    left: tuple[Advised, ...]
    """Beyond the limit, or changed too lately: for another time."""


def read_recommendations(text: str | bytes) -> list[dict[str, Any]]:
    """What the file recommends, most urgent first. Raises NotRecommendations."""
    try:
        content = json.loads(text)
        version, found = content["version"], content["recommendations"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise NotRecommendations("it is not what `ddswan analyze` writes") from error
    if version != FILE_VERSION:
        raise NotRecommendations(f"its version {version!r} is not {FILE_VERSION}")
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise NotRecommendations("it holds no list of recommendations")
    return found


def plan_advice(
    before: Advice,
    recommendations: Iterable[Mapping[str, Any]],
    view: FabricView,
    *,
    fabric: str,
    now_s: int,
    limit: int,
    hold_s: int = 0,
) -> AdvicePlan:
    """The first `limit` recommendations that would change anything. What was advised of a topic
    less than `hold_s` ago stays, so that its effect is seen before it is judged."""
    entries = {_key(each): each for each in before.entries}
    steps: list[Step] = []
    left: list[Advised] = []
    seen: set[tuple[str, bool]] = set()
    for wanted in _wanted(recommendations, view, fabric, now_s):
        key = _key(wanted)
        if key in seen:
            continue  # one pair of LANs needs what another could do without
        seen.add(key)
        known = entries.get(key)
        if known is not None and (known.express, known.avoid) == (wanted.express, wanted.avoid):
            continue
        is_held = known is not None and now_s - known.since_s < hold_s
        if is_held or len(steps) >= limit or (known is None and len(entries) >= MOST_ENTRIES):
            left.append(wanted)
            continue
        entries[key] = wanted
        steps.append(Step(known, wanted))
    return AdvicePlan(
        Advice(tuple(entries[key] for key in sorted(entries))), tuple(steps), tuple(left)
    )


def without(before: Advice, topics: Sequence[str] | None) -> Advice:
    """The advice without that of these topics; None: without any."""
    if topics is None:
        return Advice()
    return Advice(tuple(each for each in before.entries if each.topic not in topics))


def _wanted(
    recommendations: Iterable[Mapping[str, Any]], view: FabricView, fabric: str, now_s: int
) -> Iterable[Advised]:
    for each in recommendations:
        if each.get("fabric") != fabric:
            continue
        evidence, text = each.get("evidence"), each.get("text")
        known = evidence if isinstance(evidence, dict) else {}
        reason = Advised(
            topic="",
            since_s=now_s,
            text=text[:_MOST_TEXT] if isinstance(text, str) else "",
            evidence={
                str(name): value
                for name, value in list(known.items())[:_MOST_EVIDENCE]
                if _is_plain(value)
            },
        )
        kind, topic, router = each.get("kind"), each.get("topic"), each.get("router")
        if kind in ("promote", "demote") and isinstance(topic, str):
            yield replace(reason, topic=topic, express=kind == "promote")
        elif kind == "relieve" and isinstance(router, str):
            for name in _to_move(each, router, view):
                yield replace(reason, topic=name, avoid=router)


def _to_move(each: Mapping[str, Any], router: str, view: FabricView) -> list[str]:
    """The topics it names that this router carries; if it names none, the heaviest one."""
    listed = each.get("topics") or []
    if not isinstance(listed, list):
        return []  # nobody knows what it means
    named = [topic for topic in listed if isinstance(topic, str)]
    if not listed and router in view.routers:
        named = [topic for topic, _ in view.routers[router].load.topics[:1]]
    return [
        topic
        for topic in named
        if topic in view.topics
        and (assignment := view.topics[topic].assignment) is not None
        and assignment.primary == router
    ]


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _MOST_TEXT
    if isinstance(value, int):
        return value.bit_length() <= _MOST_NUMBER_BITS
    return value is None or (isinstance(value, float) and math.isfinite(value))


def _key(advised: Advised) -> tuple[str, bool]:
    return advised.topic, advised.avoid is None
