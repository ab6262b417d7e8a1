"""A fabric with known troubles: each is found, named and advised upon, and nothing else is."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from gateway.analysis.progress import Progress
from gateway.analysis.report import Findings
from gateway.analysis.run import STEPS, analyse
from gateway.observe.trace_schema import TracePath
from tests.analysis.generated import MS, Traffic, Way, an_hour_ago_ns, make_batches, write_file

pytestmark = pytest.mark.spark

_EXPRESS = Way(TracePath.EXPRESS, None, 10 * MS, 0, 10 * MS)
TROUBLES = (
    Traffic("fine", deadline_ns=500 * MS),
    Traffic("without/deadline"),
    Traffic("late/wan", deadline_ns=40 * MS),
    Traffic("late/misses only", deadline_ns=40 * MS, share=0.0),
    Traffic("late/router", ways=(Way(router="r2", router_ns=40 * MS),), deadline_ns=70 * MS),
    Traffic("late/subscriber", destination_edge_ns=100 * MS, deadline_ns=100 * MS),
    Traffic("late/publisher", source_lan_ns=100 * MS, deadline_ns=100 * MS),
    Traffic("twice/needed", ways=(Way(), _EXPRESS), deadline_ns=40 * MS),
    Traffic("twice/for nothing", ways=(Way(), _EXPRESS), deadline_ns=500 * MS, size=1000),
    Traffic("lossy", is_reliable=False, loss=0.02),
    Traffic("known clocks", clock_offset_ns=900 * MS, router_offset_ns=-700 * MS),
    Traffic("wrong clocks", origin="c", clock_bias_ns=500 * MS, deadline_ns=500 * MS),
    Traffic("step", slow_after_s=200.0, deadline_ns=500 * MS),
)
_ADVICE = {
    ("promote", "late/wan"),
    ("relieve", "r2"),
    ("investigate", "late/subscriber"),
    ("investigate", "late/publisher"),
    ("demote", "twice/for nothing"),
    ("loss", "lossy"),
    ("clock", "wrong clocks"),
}


@pytest.fixture(scope="module")
def analysed(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Findings]:
    folder = tmp_path_factory.mktemp("troubles")
    begin = an_hour_ago_ns()
    for number, traffic in enumerate(TROUBLES):
        batches = 4500 if traffic.topic == "twice/for nothing" else 1000
        made = make_batches(traffic, batches=batches, begin_ns=begin, every_ns=400 * MS)
        write_file(folder / "in", f"{number}", list(made))
    findings = analyse(
        spark, str(folder / "in"), str(folder / "out"), Progress(io.StringIO(), STEPS)
    )
    return folder / "out", findings


def _rows(spark: SparkSession, analysed: tuple[Path, Findings], name: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in spark.read.parquet(str(analysed[0] / name)).collect()]


def test_every_trouble_is_found_and_nothing_else(analysed: tuple[Path, Findings]) -> None:
    advice = json.loads((analysed[0] / "recommendations.json").read_text())
    assert advice["version"] == 1
    found = {(one["kind"], one["router"] or one["topic"]) for one in advice["recommendations"]}
    assert found == _ADVICE
    relieve = next(one for one in advice["recommendations"] if one["kind"] == "relieve")
    assert relieve["topics"] == ["late/router"]
    for one in advice["recommendations"]:
        assert one["evidence"]
        assert "\n" not in one["text"]


def test_misses_that_were_traced_alone_make_no_rates(
    spark: SparkSession, analysed: tuple[Path, Findings]
) -> None:
    """They were chosen because they are late: a rate of them would be 100 %."""
    rows = {row["topic"]: row for row in _rows(spark, analysed, "outcomes")}
    row = rows["late/misses only"]
    assert row["misses"] > 1000
    assert row["judged"] == row["sampled"] == 0
    assert row["late_share"] is None
    assert {row["topic"] for row in _rows(spark, analysed, "latency")}.isdisjoint(
        {"late/misses only"}
    )


def test_offsets_that_are_known_change_nothing(
    spark: SparkSession, analysed: tuple[Path, Findings]
) -> None:
    rows = {
        (row["topic"], row["hop"]): row["p50_ns"]
        for row in _rows(spark, analysed, "latency")
        if row["topic"] in ("fine", "known clocks")
    }
    for hop in ("source_lan", "to_router", "router", "from_router", "end_to_end"):
        assert rows["known clocks", hop] == pytest.approx(rows["fine", hop], rel=0.1)


def test_a_step_is_a_change_point(spark: SparkSession, analysed: tuple[Path, Findings]) -> None:
    (change,) = _rows(spark, analysed, "change_points")
    assert change["topic"] == "step"
    begin = min(row["first_bucket"] for row in _rows(spark, analysed, "outcomes")).timestamp()
    bucket_s = analysed[1].about["bucket_s"]
    assert abs(change["at_s"] - begin - 200) <= bucket_s
    assert change["after_ns"] / change["before_ns"] == pytest.approx(3.0, rel=0.1)


def test_which_path_wins_and_what_it_costs(
    spark: SparkSession, analysed: tuple[Path, Findings]
) -> None:
    paths = {(row["topic"], row["path"]): row for row in _rows(spark, analysed, "paths")}
    assert paths["twice/needed", "express"]["win_share"] > 0.95
    wins = [paths["twice/needed", path]["wins"] for path in ("express", "routed")]
    assert sum(wins) == paths["twice/needed", "express"]["duplicated"] == 4000
    alone = paths["twice/needed", "routed"]
    assert alone["copies_late"] / alone["copies_judged"] > 0.4
    outcome = {row["topic"]: row for row in _rows(spark, analysed, "outcomes")}
    assert outcome["twice/for nothing"]["duplicate_bytes"] == 4500 * 4 * 1000
    assert outcome["twice/needed"]["late"] == 0
    shares: dict[tuple[str, str], float] = {}
    for row in _rows(spark, analysed, "where_time_goes"):
        key = row["topic"], row["path"]
        shares[key] = shares.get(key, 0.0) + row["share"]
    assert all(share == pytest.approx(1.0) for share in shares.values())
