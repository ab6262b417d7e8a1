"""From facts to everything that is written: tables, recommendations, report. Called by run.py after
a batch and by follow.py whenever a stream has brought new facts.
"""

from __future__ import annotations

import datetime
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from gateway.analysis import tables
from gateway.analysis.advice import PairKey, Recommendation, recommend
from gateway.analysis.changes import ChangePoint, Outlier, Point, find_changes, find_outliers
from gateway.analysis.facts import PAIR, SAMPLE
from gateway.analysis.output import Output
from gateway.analysis.progress import Progress
from gateway.analysis.report import Findings, Pair, make_report
from gateway.analysis.vocabulary import END_TO_END, GATEWAY

STEPS = 5
RECOMMENDATIONS_VERSION = 1
_PAIR_COLUMNS = "fabric string, topic string, origin_lan string, destination_lan string"
_MOST_SERIES = 20_000
"""Topics and LAN pairs whose series are searched for changes: those with most samples."""


def conclude(facts: DataFrame, out: Output, about: dict[str, Any], progress: Progress) -> Findings:
    """Makes everything from these facts; `about` says where they come from."""
    with progress.step("percentiles of every hop"):
        out.write_table("latency", tables.latency(facts, *PAIR, "path"))
        by_path = out.read("latency")
        out.write_table("where_time_goes", tables.where_time_goes(by_path))
        over_time = tables.latency(facts, *PAIR, "path", "bucket")
        out.write_table("latency_over_time", over_time)
    with progress.step("what is late and what is lost"):
        out.write_table("outcomes", tables.outcomes(facts))
        out.write_table("paths", tables.paths(facts))
        out.write_table("blame", tables.blame(facts))
        out.write_table("routers", tables.routers(facts))
    with progress.step("changes over time"):
        whole = facts.where(F.col("measure").isin(END_TO_END, GATEWAY, SAMPLE))
        out.write_table("pairs", tables.latency(whole, *PAIR))
        out.write_table("pairs_over_time", _pairs_over_time(whole))
        pairs = _collect_pairs(out)
        _look_for_changes(pairs.values())
        _write_changes(out, pairs)
    with progress.step("recommendations"):
        outcomes, paths, blame, routers = (
            _rows(out.read(name)) for name in ("outcomes", "paths", "blame", "routers")
        )
        for row in outcomes:
            pairs[_key(row)].outcome = row
        for row in paths:
            pairs[_key(row)].paths[row["path"]] = row
        for row in blame:
            pairs[_key(row)].blame[row["hop"]] += row["late"]
        found = recommend(outcomes, paths, blame, routers)
        _write_recommendations(out, about, found)
    with progress.step("report"):
        findings = Findings(about=about, pairs=pairs, routers=routers, recommendations=found)
        findings.keep_hops(_rows(by_path))
        out.write_text("report.html", make_report(findings))
    return findings


def _pairs_over_time(facts: DataFrame) -> DataFrame:
    counted = (
        facts.where(F.col("measure") == SAMPLE)
        .groupBy(*PAIR, "bucket")
        .agg(F.sum("judged").alias("judged"), F.sum("late").alias("late"))
    )
    times = tables.latency(facts, *PAIR, "bucket")
    return times.join(counted, [*PAIR, "bucket"], "left")


def _collect_pairs(out: Output) -> dict[PairKey, Pair]:
    pairs: dict[PairKey, Pair] = defaultdict(Pair)
    busiest = sorted(_rows(out.read("pairs")), key=lambda row: -row["samples"])
    for row in busiest:
        # Where the source timestamps are no times of day, ddswan's own part is all there is.
        pair = pairs[_key(row)]
        if row["hop"] == END_TO_END or pair.latency is None:
            pair.latency = row
    searched = {key for key in list(pairs)[:_MOST_SERIES] if pairs[key].latency is not None}
    series = out.read("pairs_over_time").select(
        *PAIR, "hop", "bucket", "samples", "p50_ns", "p99_ns", "judged", "late"
    )
    for found in series.orderBy("bucket").toLocalIterator():
        values = found.asDict()
        key = _key(values)
        latency = pairs[key].latency
        if key in searched and latency is not None and latency["hop"] == values["hop"]:
            pairs[key].series.append(values)
    return pairs


def _look_for_changes(pairs: Iterable[Pair]) -> None:
    for pair in pairs:
        series = [
            Point(int(row["bucket"].timestamp()), row["p50_ns"], row["p99_ns"])
            for row in pair.series
        ]
        pair.changes = find_changes(series)
        pair.outliers = find_outliers(series, pair.changes)


def _write_changes(out: Output, pairs: dict[PairKey, Pair]) -> None:
    changes: list[tuple[PairKey, ChangePoint]] = [
        (key, change) for key, pair in pairs.items() for change in pair.changes
    ]
    outliers: list[tuple[PairKey, Outlier]] = [
        (key, outlier) for key, pair in pairs.items() for outlier in pair.outliers
    ]
    out.write_rows(
        "change_points",
        [_with_key(key, asdict(change)) for key, change in changes],
        f"{_PAIR_COLUMNS}, at_s long, before_ns double, after_ns double",
    )
    out.write_rows(
        "outliers",
        [_with_key(key, asdict(outlier)) for key, outlier in outliers],
        f"{_PAIR_COLUMNS}, at_s long, p99_ns double, usual_ns double",
    )


def _write_recommendations(out: Output, about: dict[str, Any], found: list[Recommendation]) -> None:
    content = {
        "version": RECOMMENDATIONS_VERSION,
        "made_from": about,
        "recommendations": [asdict(recommendation) for recommendation in found],
    }
    out.write_text("recommendations.json", json.dumps(content, indent=2, default=_plain) + "\n")


def _plain(value: Any) -> str:
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    raise TypeError(f"{value!r} has no place in JSON")


def _rows(table: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in table.collect()]


def _key(row: dict[str, Any]) -> PairKey:
    return row["fabric"], row["topic"], row["origin_lan"], row["destination_lan"]


def _with_key(key: PairKey, values: dict[str, Any]) -> dict[str, Any]:
    return {**dict(zip(PAIR, key, strict=True)), **values}
