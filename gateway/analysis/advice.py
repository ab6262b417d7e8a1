"""What to do about what was found: topics that need the express path or no longer do, routers to
relieve, LANs and clocks to look at. Pure; called by conclude.py. Every recommendation carries its
evidence, so that whoever applies it can check it.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.analysis.vocabulary import BETWEEN_EDGES, confidence
from gateway.observe.trace_schema import TracePath

Row = dict[str, Any]
PairKey = tuple[str, str, str, str]
"""fabric, topic, origin LAN, destination LAN"""

TARGET = 0.001
"""The share of late samples that is tolerated."""
KINDS = {
    "promote": "send the topic by a direct link between the edges, too (can be applied)",
    "relieve": "let other routers carry some topics of this one (can be applied)",
    "investigate": "late for a reason no setting of ddswan mends by itself",
    "clock": "clocks that contradict each other",
    "loss": "samples that did not arrive",
    "demote": "send the topic by its router only: the direct link is not needed (can be applied)",
}
"""The kinds of recommendations, most urgent first, for people who have never seen ddswan."""
_LEAST_LATE = 5
_BUSY_RATIO = 5.0
_BUSY_NS = 1_000_000
_SUSPECT_SHARE = 0.01
_LOSS_SHARE = 0.001
_MOVED_TOPICS = 5
_LOCAL_HOPS = {
    "source_lan": "the publisher's LAN {origin_lan} is slow to hand samples to its edge: look at "
    "its network and at the load of the machines there",
    "origin_edge": "samples wait in the edge of {origin_lan} before they are sent: its window is "
    "full or its machine busy; raise stream.window_bytes or give it more processor",
    "destination_edge": "samples wait in the edge of {destination_lan} before DDS takes them: a "
    "subscriber there is slow or its history is full",
}


@dataclass(frozen=True, slots=True)
class Recommendation:
    kind: str
    """promote, demote, relieve: can be applied. investigate, clock, loss: for people."""
    fabric: str
    text: str
    """One sentence: what to do and why."""
    evidence: Row
    weight: float
    """Late samples it is about (or bytes saved, for demote): the larger, the sooner."""
    topic: str | None = None
    origin_lan: str | None = None
    destination_lan: str | None = None
    router: str | None = None
    topics: tuple[str, ...] = field(default=())
    """relieve: topics to move off the router, heaviest first."""


def recommend(
    outcomes: Iterable[Row],
    paths: Iterable[Row],
    blame: Iterable[Row],
    routers: Sequence[Row],
) -> list[Recommendation]:
    """Most urgent first."""
    ways: dict[PairKey, dict[str, Row]] = defaultdict(dict)
    for row in paths:
        ways[_pair(row)][row["path"]] = row
    culprits: dict[PairKey, Counter[str]] = defaultdict(Counter)
    by_router: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in blame:
        culprits[_pair(row)][row["hop"]] += row["late"]
        if row["hop"] == "router" and row["router"] is not None:
            by_router[row["fabric"], row["router"]][row["topic"]] += row["late"]
    found: list[Recommendation] = []
    for row in outcomes:
        key = _pair(row)
        found += _about_lateness(row, ways[key], culprits[key])
        found += _about_duplicates(row, ways[key])
        found += _about_loss(row)
        found += _about_clocks(row)
    found += _about_routers(routers, by_router)
    order = list(KINDS)
    return sorted(found, key=lambda found_one: (order.index(found_one.kind), -found_one.weight))


def _about_lateness(row: Row, ways: dict[str, Row], culprits: Counter[str]) -> list[Recommendation]:
    low, high = confidence(row["late"], row["judged"], row["judged_batches"])
    if row["late"] < _LEAST_LATE or low <= TARGET or not culprits:
        return []
    hop, blamed = culprits.most_common(1)[0]
    network = sum(culprits[name] for name in BETWEEN_EDGES)
    if hop == "router" and TracePath.EXPRESS not in ways:
        return []  # said of the router
    evidence = {
        **_lateness(row, low, high),
        "slowest_hop_of_late_samples": hop,
        "share_of_that_hop": blamed / culprits.total(),
    }
    share = _percent(row["late"] / row["judged"])
    if network * 2 >= culprits.total() and TracePath.EXPRESS not in ways:
        return [
            Recommendation(
                kind="promote",
                text=f"Give {_where(row)} the express path: {share} of it is late, mostly on "
                "its way between the edges.",
                evidence=evidence,
                weight=row["misses"],
                **_about(row),
            )
        ]
    if hop in _LOCAL_HOPS:
        advice = _LOCAL_HOPS[hop].format(**row)
    elif hop == "router":
        advice = "its router takes long, although it has the express path: relieve the router"
    else:
        advice = "the network between the edges is slow, although it has the express path"
    return [
        Recommendation(
            kind="investigate",
            text=f"{share} of {_where(row)} is late: {advice}.",
            evidence=evidence,
            weight=row["misses"],
            **_about(row),
        )
    ]


def _about_duplicates(row: Row, ways: dict[str, Row]) -> list[Recommendation]:
    """Whether the way by the primary router alone would have been in time."""
    routed, express = ways.get(TracePath.ROUTED), ways.get(TracePath.EXPRESS)
    if routed is None or express is None or not routed["copies_judged"]:
        return []
    missing = max(0.0, routed["duplicated"] - routed["copies"])
    late_alone = routed["copies_late"] + missing
    sent = routed["copies_judged"] + missing
    batches = row["judged_batches"] * min(1.0, sent / max(row["judged"], 1.0))
    low, high = confidence(late_alone, sent, batches)
    if high >= TARGET:
        return []
    return [
        Recommendation(
            kind="demote",
            text=f"{_where(row)} no longer needs the express path: by its router alone at most "
            f"{_percent(high)} of it would have been late, and {_bytes(row['duplicate_bytes'])} "
            "less would have been sent.",
            evidence={
                "copies_by_router": routed["copies"],
                "late_by_router_alone": late_alone,
                "late_share_low": low,
                "late_share_high": high,
                "target": TARGET,
                "duplicate_bytes": row["duplicate_bytes"],
            },
            weight=row["duplicate_bytes"],
            **_about(row),
        )
    ]


def _about_loss(row: Row) -> list[Recommendation]:
    if not row.get("lost") or row["loss_share"] <= _LOSS_SHARE:
        return []
    certain = "" if row["loss_method"] == "counted" else " (unless the trace writer dropped rows)"
    return [
        Recommendation(
            kind="loss",
            text=f"{_percent(row['loss_share'])} of {_where(row)} is lost{certain}: make it "
            "RELIABLE, or look at ddswan_samples_dropped_total of both edges.",
            evidence={name: row[name] for name in ("lost", "loss_expected", "loss_share")}
            | {"method": row["loss_method"]},
            weight=row["lost"],
            **_about(row),
        )
    ]


def _about_clocks(row: Row) -> list[Recommendation]:
    share = row["suspect"] / row["rows"]
    if share <= _SUSPECT_SHARE:
        return []
    return [
        Recommendation(
            kind="clock",
            text=f"Look at the clocks of {row['origin_lan']}, {row['destination_lan']} and the "
            f"routers between them (NTP): {_percent(share)} of the rows of {row['topic']} "
            "have times that contradict each other.",
            evidence={"rows": row["rows"], "suspect": row["suspect"]},
            weight=row["suspect"],
            **_about(row),
        )
    ]


def _about_routers(
    routers: Sequence[Row], late_in: dict[tuple[str, str], Counter[str]]
) -> list[Recommendation]:
    """A router in which samples stay much longer than in the others, or are made late."""
    found = []
    for row in routers:
        if row["p99_ns"] is None:
            continue
        others = [
            other["p99_ns"]
            for other in routers
            if other["fabric"] == row["fabric"] and other is not row and other["p99_ns"] is not None
        ]
        usual = statistics.median(others) if others else None
        late = late_in.get((row["fabric"], row["router"]), Counter())
        is_slow = row["p99_ns"] >= _BUSY_NS and (
            usual is not None and row["p99_ns"] >= _BUSY_RATIO * usual
        )
        if not is_slow and late.total() < _LEAST_LATE:
            continue
        topics = tuple(topic for topic, _ in late.most_common(_MOVED_TOPICS))
        compared = "" if usual is None else f", in the other routers {usual / 1e6:.1f} ms"
        found.append(
            Recommendation(
                kind="relieve",
                fabric=row["fabric"],
                router=row["router"],
                topics=topics,
                text=f"Relieve router {row['router']}: one sample in a hundred stays in it longer "
                f"than {row['p99_ns'] / 1e6:.1f} ms{compared}; {late.total()} traced samples were "
                "late because of it. Move topics off it or add a router.",
                evidence={
                    "p99_ns": row["p99_ns"],
                    "p99_ns_of_others": usual,
                    "late": late.total(),
                    "bytes": row["bytes"],
                },
                weight=float(late.total()),
            )
        )
    return found


def _lateness(row: Row, low: float, high: float) -> Row:
    return {
        "judged": row["judged"],
        "late": row["late"],
        "late_share": row["late"] / row["judged"],
        "late_share_low": low,
        "late_share_high": high,
        "misses_traced": row["misses"],
        "target": TARGET,
    }


def _about(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in ("fabric", "topic", "origin_lan", "destination_lan")}


def _where(row: Row) -> str:
    return f"{row['topic']} from {row['origin_lan']} to {row['destination_lan']}"


def _pair(row: Row) -> PairKey:
    return row["fabric"], row["topic"], row["origin_lan"], row["destination_lan"]


def _percent(share: float) -> str:
    return f"{share * 100:.3g} %"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
