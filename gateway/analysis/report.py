"""report.html: one file that needs no network and no explanation. Called by conclude.py, which
collects the findings; how they look is in assets/. Pure but for reading those.
"""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gateway.analysis.advice import KINDS, TARGET, PairKey, Recommendation, Row
from gateway.analysis.changes import ChangePoint, Outlier
from gateway.analysis.vocabulary import HOP_NAMES, HOPS, confidence

DETAILED_PAIRS = 40
"""Topics and LAN pairs with plots, worst first; all others are lines of the table."""
MOST_LISTED = 5_000
"""Lines of the table: what a browser searches without being felt. The Parquet tables hold all."""
_MOST_RECOMMENDATIONS = 200
_ASSETS = Path(__file__).parent / "assets"


@dataclass(slots=True)
class Pair:
    """What is known of one topic between two LANs."""

    latency: Row | None = None
    outcome: Row | None = None
    paths: dict[str, Row] = field(default_factory=dict)
    hops: dict[str, dict[str, Row]] = field(default_factory=dict)
    """By path and hop; only for pairs shown in detail."""
    blame: Counter[str] = field(default_factory=Counter)
    series: list[Row] = field(default_factory=list)
    changes: list[ChangePoint] = field(default_factory=list)
    outliers: list[Outlier] = field(default_factory=list)

    @property
    def late_bounds(self) -> tuple[float, float] | None:
        """Of its share of late samples; None when nothing could be judged."""
        row = self.outcome
        if row is None or not row["judged"]:
            return None
        return confidence(row["late"], row["judged"], row["judged_batches"])


@dataclass(slots=True)
class Findings:
    about: Row
    pairs: dict[PairKey, Pair]
    routers: list[Row]
    recommendations: list[Recommendation]

    def worst_first(self) -> list[PairKey]:
        """Certainly late ones first, then those with late samples at all, then by how long the
        slowest take."""

        def badness(key: PairKey) -> tuple[float, float, float, float]:
            pair = self.pairs[key]
            low = (pair.late_bounds or (0.0, 0.0))[0]
            late = pair.outcome["late"] if pair.outcome else 0.0
            misses = pair.outcome["misses"] if pair.outcome else 0.0
            return -low, -late, -misses, -(pair.latency["p99_ns"] if pair.latency else 0.0)

        return sorted(self.pairs, key=lambda key: (badness(key), key))

    def keep_hops(self, rows: Iterable[Row]) -> None:
        """Takes the hops of pairs that will be shown in detail."""
        shown = set(self.worst_first()[:DETAILED_PAIRS])
        for row in rows:
            key = row["fabric"], row["topic"], row["origin_lan"], row["destination_lan"]
            if key in shown:
                self.pairs[key].hops.setdefault(row["path"], {})[row["hop"]] = row


def make_report(findings: Findings, made_at: datetime.datetime | None = None) -> str:
    """The whole page."""
    made_at = made_at or datetime.datetime.now(datetime.UTC)
    data = json.dumps(_content(findings, made_at), separators=(",", ":"), allow_nan=False)
    page = (_ASSETS / "report.html").read_text(encoding="utf-8")
    for mark, text in (
        ("/* report.css */", (_ASSETS / "report.css").read_text(encoding="utf-8")),
        ("/* report.js */", (_ASSETS / "report.js").read_text(encoding="utf-8")),
        # A topic's name must not be able to end the script it stands in.
        ("/* data */", data.replace("<", "\\u003c")),
    ):
        before, _, after = page.partition(mark)
        page = before + text + after
    return page


def _content(findings: Findings, made_at: datetime.datetime) -> dict[str, Any]:
    order = findings.worst_first()
    place = {key: index for index, key in enumerate(order)}
    outcomes = [p.outcome for p in findings.pairs.values() if p.outcome is not None]
    return {
        "about": findings.about,
        "made_at": made_at.strftime("%Y-%m-%d %H:%M UTC"),
        "target": TARGET,
        "kinds": KINDS,
        "hops": [[hop.name, hop.text] for hop in HOPS],
        "totals": _totals(outcomes),
        "pair_count": len(order),
        "pairs": [_line(key, findings.pairs[key]) for key in order[:MOST_LISTED]],
        "details": [_detail(findings.pairs[key]) for key in order[:DETAILED_PAIRS]],
        "routers": [
            {name: _short(value) for name, value in row.items() if name != "fabric"}
            for row in sorted(findings.routers, key=lambda row: -(row["p99_ns"] or 0.0))
        ],
        "recommendation_count": len(findings.recommendations),
        "recommendations": [
            _advice(found, place) for found in findings.recommendations[:_MOST_RECOMMENDATIONS]
        ],
    }


def _totals(outcomes: list[Row]) -> Row:
    names = (
        *("rows", "sampled", "samples", "bytes", "judged", "judged_batches", "late", "misses"),
        *("duplicate_bytes", "suspect", "clock_unknown", "source_unknown"),
    )
    totals: Row = {name: sum(row[name] for row in outcomes) for name in names}
    known = [row for row in outcomes if row["lost"] is not None]
    totals["lost"] = sum(row["lost"] for row in known)
    totals["loss_expected"] = sum(row["loss_expected"] for row in known)
    totals["loss_known_pairs"] = len(known)
    bounds = confidence(totals["late"], totals["judged"], totals["judged_batches"])
    totals["late_bounds"] = bounds if totals["judged"] else None
    return {name: _short(value) for name, value in totals.items()}


def _line(key: PairKey, pair: Pair) -> list[Any]:
    """In the order report.js names its columns."""
    latency, outcome = pair.latency or {}, pair.outcome or {}
    bounds = pair.late_bounds or (None, None)
    judged = outcome.get("judged") or 0
    timed = outcome["rows"] - outcome["clock_unknown"] if outcome else 0
    slowest = pair.blame.most_common(1)
    values = [
        *key,
        outcome.get("samples"),
        latency.get("p50_ns"),
        latency.get("p99_ns"),
        latency.get("max_ns"),
        judged,
        outcome["late"] / judged if judged else None,
        *bounds,
        outcome.get("misses"),
        outcome.get("loss_share"),
        outcome.get("loss_method"),
        slowest[0][0] if slowest else None,
        outcome.get("duplicate_bytes"),
        outcome["suspect"] / outcome["rows"] if outcome else None,
        len(pair.changes),
        latency.get("hop") == "gateway",
        outcome["clock_error_ns"] / timed if timed else None,
    ]
    return [_short(value) for value in values]


def _detail(pair: Pair) -> dict[str, Any]:
    columns = {
        "t": [int(row["bucket"].timestamp()) for row in pair.series],
        **{
            short: [_short(row[name]) for row in pair.series]
            for short, name in (
                *(("p50", "p50_ns"), ("p99", "p99_ns")),
                *(("n", "samples"), ("judged", "judged"), ("late", "late")),
            )
        },
    }
    return {
        "deadline": _short((pair.outcome or {}).get("deadline_ns")),
        "series": columns,
        "changes": [[c.at_s, _short(c.before_ns), _short(c.after_ns)] for c in pair.changes],
        "outliers": [[o.at_s, _short(o.p99_ns), _short(o.usual_ns)] for o in pair.outliers],
        "blame": dict(pair.blame),
        "paths": [_path(name, row, pair.hops.get(name, {})) for name, row in pair.paths.items()],
    }


def _path(name: str, row: Row, hops: dict[str, Row]) -> dict[str, Any]:
    whole = hops.get("end_to_end") or hops.get("gateway") or {}
    plain = ("samples", "copies", "wins", "win_share", "copies_judged", "copies_late", "duplicated")
    return {
        "path": name,
        **{column: _short(row[column]) for column in plain},
        "p50": _short(whole.get("p50_ns")),
        "p99": _short(whole.get("p99_ns")),
        "hops": {
            hop: [_short(hops[hop][column]) for column in ("mean_ns", "p50_ns", "p99_ns")]
            for hop in HOP_NAMES
            if hop in hops
        },
    }


def _advice(found: Recommendation, place: dict[PairKey, int]) -> dict[str, Any]:
    index = None
    if found.topic is not None:
        assert found.origin_lan is not None and found.destination_lan is not None
        key = (found.fabric, found.topic, found.origin_lan, found.destination_lan)
        index = place.get(key)
    values = asdict(found)
    return {
        "kind": found.kind,
        "text": found.text,
        "evidence": {name: _short(value) for name, value in values["evidence"].items()},
        "topics": found.topics,
        "pair": index,
    }


def _short(value: Any) -> Any:
    """Numbers with the digits a reader can use."""
    if isinstance(value, tuple):
        return [_short(part) for part in value]
    if isinstance(value, float):
        short = float(f"{value:.4g}")
        return int(short) if short.is_integer() else short
    if isinstance(value, datetime.datetime):
        return int(value.timestamp())
    return value
