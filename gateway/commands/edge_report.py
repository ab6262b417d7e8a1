"""What edges say of themselves on /status, made into parts of what `ddswan status` says: express
links, and for one topic where its samples go and why. Pure; called by report.py and status.py. The
JSON is a contract (docs/status.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

EdgeStatus = Mapping[str, Any]
"""/status of one edge."""


@dataclass(frozen=True, slots=True)
class ExpressLinkReport:
    """One direct link, as its first edge tells, or its second if that tells more."""

    edges: tuple[str, str]
    is_up: bool
    rtt_ms: float | None
    problem: str


@dataclass(frozen=True, slots=True)
class PathReport:
    """One path of a topic to one edge. Times are one way, in ms; null: unknown, for `p…_ms` also
    when more than that share is lost."""

    path: str
    via: str
    is_up: bool
    is_taken: bool
    delays: int
    """Observed so far."""
    level_ms: float | None
    p50_ms: float | None
    p99_ms: float | None
    p999_ms: float | None
    lost: int


@dataclass(frozen=True, slots=True)
class FlowReport:
    """One publisher profile of one edge on its way to another edge."""

    edge: str
    lan: str
    to_edge: str
    to_lan: str
    profile: str
    is_reliable: bool
    deadline_ms: float | None
    """Null: not strict, one routed path."""
    mode: str | None
    taken: tuple[str, ...]
    why: str
    paths: tuple[PathReport, ...]
    clock_offset_ms: float | None
    """By how much the destination's clock is ahead."""
    clock_error_ms: float | None
    """How wrong that may be at most."""


def express_links(statuses: Iterable[EdgeStatus]) -> tuple[ExpressLinkReport, ...]:
    """Each link once, though both ends tell of it."""
    found: dict[tuple[str, ...], ExpressLinkReport] = {}
    for status in statuses:
        for row in status["express"]:
            report = ExpressLinkReport(
                (status["edge"], row["edge"]), row["up"], row.get("rtt_ms"), row["problem"]
            )
            known = found.setdefault(tuple(sorted(report.edges)), report)
            if not known.is_up and (report.is_up or not known.problem):
                found[tuple(sorted(report.edges))] = report
    return tuple(report for _, report in sorted(found.items()))


def topic_flows(
    topic: str, statuses: Iterable[EdgeStatus], lans: Mapping[str, str]
) -> tuple[FlowReport, ...]:
    """Where the samples of a topic go. `lans` are those of all edges."""
    flows = []
    for status in statuses:
        pairs = {pair["edge"]: pair for pair in status["pairs"]}
        for outflow in status["outflows"]:
            if outflow["topic"] == topic and not outflow["replay"]:
                rows = {row["edge"]: row for row in outflow["deadline"]}
                flows += [
                    _flow(status, outflow, to, lans.get(to, "?"), rows.get(to), pairs.get(to))
                    for to in outflow["subscribers"]
                ]
    return tuple(sorted(flows, key=lambda flow: (flow.edge, flow.to_edge, flow.profile)))


def _flow(
    status: EdgeStatus,
    outflow: Mapping[str, Any],
    to_edge: str,
    to_lan: str,
    row: Mapping[str, Any] | None,
    pair: Mapping[str, Any] | None,
) -> FlowReport:
    paths: tuple[PathReport, ...] = ()
    if row is not None:
        names = {via: name for name, via in row["paths"].items()}
        known = {path["via"]: path for path in (pair["paths"] if pair is not None else ())}
        vias = sorted(names, key=names.__getitem__) + sorted(known.keys() - names)
        paths = tuple(
            _path(via, names.get(via, "not used"), known.get(via, _UNKNOWN), row["taken"])
            for via in vias
        )
    return FlowReport(
        edge=status["edge"],
        lan=status["lan"],
        to_edge=to_edge,
        to_lan=to_lan,
        profile=outflow["profile"],
        is_reliable=outflow["reliable"],
        deadline_ms=None if row is None else row["deadline_ms"],
        mode=None if row is None else row["mode"],
        taken=() if row is None else tuple(row["taken"]),
        why="" if row is None else row["why"],
        paths=paths,
        clock_offset_ms=None if pair is None else pair["clock_offset_ms"],
        clock_error_ms=None if pair is None else pair["clock_error_ms"],
    )


_UNKNOWN: Mapping[str, Any] = {
    "up": True,
    "delays": 0,
    "level_ms": None,
    "p50_ms": None,
    "p99_ms": None,
    "p999_ms": None,
    "lost": 0,
}
"""What is told of a path of a pair that sends nothing, and so knows nothing."""


def _path(via: str, name: str, known: Mapping[str, Any], taken: Sequence[str]) -> PathReport:
    return PathReport(
        path=name,
        via=via,
        is_up=known["up"],
        is_taken=name in taken,
        delays=known["delays"],
        level_ms=known["level_ms"],
        p50_ms=known["p50_ms"],
        p99_ms=known["p99_ms"],
        p999_ms=known["p999_ms"],
        lost=known["lost"],
    )


# ---------------------------------------------------------------- words


def flow_lines(flow: FlowReport) -> list[str]:
    """What to tell of it above the table of its paths."""
    kind = "reliable" if flow.is_reliable else "best-effort"
    lines = [f"  profile {flow.profile}, {kind}"]
    if flow.deadline_ms is None:
        return [*lines, "  no strict deadline: takes the routed path"]
    taken = " and ".join(flow.taken) or "no path"
    lines += [f"  deadline {flow.deadline_ms:g} ms, mode {flow.mode}: takes {taken}"]
    lines += [f"  why: {flow.why}"]
    if flow.clock_offset_ms is None or flow.clock_error_ms is None:
        return [*lines, f"  the clock of {flow.to_edge} is not known yet"]
    ahead = "ahead" if flow.clock_offset_ms >= 0 else "behind"
    return [
        *lines,
        f"  the clock of {flow.to_edge} is {abs(flow.clock_offset_ms):.3f} ms {ahead}, "
        f"{flow.clock_error_ms:.3f} ms off at most",
    ]


_VIA = {"express": "direct", "datagrams": "direct, UDP"}
PATH_HEADER = ("path", "via", "state", "level", "p50", "p99", "p99.9", "lost", "delays")


def path_cells(path: PathReport) -> tuple[str, ...]:
    """A row of that table."""
    state = "down" if not path.is_up else "taken" if path.is_taken else "idle"
    times = (path.level_ms, path.p50_ms, path.p99_ms, path.p999_ms)
    return (
        path.path,
        _VIA.get(path.via, path.via),
        state,
        *("-" if each is None else f"{each:.1f} ms" for each in times),
        str(path.lost),
        str(path.delays),
    )
