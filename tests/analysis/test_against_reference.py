"""Every table agrees with the plain Python of reference.py, whatever the rows are."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from gateway.analysis import tables
from gateway.analysis.facts import COUNTERS, PAIR, make_facts, measure
from gateway.analysis.source import read_batch
from gateway.analysis.vocabulary import GROWTH, HOPS, bin_of, value_of
from gateway.observe.traces import ARROW_SCHEMA
from tests.analysis import reference
from tests.analysis.generated import MS, S, an_hour_ago_ns, write_table

pytestmark = pytest.mark.spark

_BEGIN_NS = an_hour_ago_ns()
_LATENCIES = st.one_of(
    st.integers(0, 2_000),
    st.integers(0, 100 * MS),
    st.integers(-3 * MS, 5 * S),
    st.integers(-2 * 3600 * S, 2 * 3600 * S),
)


@st.composite
def rows(draw: st.DrawFn) -> dict[str, Any]:
    """A row as wrong as a row can be: any clock, any time missing that may be."""

    def maybe(value: st.SearchStrategy[int]) -> int | None:
        return draw(st.one_of(value, value, value, st.none()))

    source = _BEGIN_NS + draw(st.integers(0, 600)) * S
    times = [source]
    for _ in range(6):
        times.append(times[-1] + draw(_LATENCIES))
    is_winner = draw(st.booleans())
    return {
        "schema_version": 1,
        "fabric": "default",
        "topic": draw(st.sampled_from(["t", "ü/'\"", "<b>"])),
        "origin_lan": draw(st.sampled_from(["a", "b"])),
        "origin_edge": "e",
        "origin_incarnation": draw(st.sampled_from([1, -(2**63)])),
        "stream": draw(st.integers(1, 2)),
        "number": draw(st.integers(1, 40)),
        "destination_lan": "c",
        "destination_edge": "f",
        "path": draw(st.sampled_from(["routed", "express", "standby"])),
        "router": draw(st.sampled_from(["r1", "r2", None])),
        "is_winner": is_winner,
        "copies": draw(st.integers(1, 2)),
        "is_reliable": draw(st.booleans()),
        "selection": draw(st.sampled_from(["sampled", "sampled", "deadline_miss"])),
        "share": draw(st.sampled_from([1.0, 1.0, 0.01])),
        "batch_samples": draw(st.integers(1, 100)),
        "size_bytes": draw(st.integers(0, 10_000)),
        "deadline_ns": maybe(st.integers(1, 200 * MS)),
        "source_ns": source,
        "ingress_ns": maybe(st.just(times[1])),
        "sent_ns": maybe(st.just(times[2])),
        "router_in_ns": maybe(st.just(times[3])),
        "router_out_ns": maybe(st.just(times[4])),
        "egress_ns": times[5],
        "written_ns": times[6] if is_winner else None,
        "clock_offset_ns": maybe(st.integers(-5 * MS, 5 * MS)),
        "clock_error_ns": maybe(st.integers(0, MS)),
        "router_clock_offset_ns": maybe(st.integers(-5 * MS, 5 * MS)),
        "router_clock_error_ns": maybe(st.integers(0, MS)),
        "lost_before": maybe(st.integers(0, 10)),
    }


@settings(max_examples=4, suppress_health_check=list(HealthCheck))
@given(many=st.lists(rows(), min_size=1, max_size=80))
def test_tables_say_what_plain_python_says(
    spark: SparkSession, tmp_path: Path, many: list[dict[str, Any]]
) -> None:
    folder = tmp_path / uuid4().hex
    half = len(many) // 2
    for name, part in (("one", many[:half]), ("two", many[half:])):
        write_table(folder / f"{name}.parquet", pa.Table.from_pylist(part, schema=ARROW_SCHEMA))
    traces = read_batch(spark, str(folder))
    facts = make_facts(measure(traces), 60, lateness_s=0).localCheckpoint()

    found = {
        tuple(row[c] for c in (*PAIR, "path", "hop")): row
        for row in tables.latency(facts, *PAIR, "path").collect()
    }
    expected = reference.latencies(many)
    assert set(found) == set(expected)
    for key, values in expected.items():
        row = found[key]
        assert row["samples"] == len(values)
        assert (row["min_ns"], row["max_ns"]) == (min(values), max(values))
        assert math.isclose(row["mean_ns"], sum(values) / len(values), rel_tol=1e-9, abs_tol=1e-6)
        for name, rank in tables.PERCENTILES.items():
            exact = reference.percentile(values, rank)
            assert math.isclose(row[name], exact, rel_tol=(GROWTH - 1) / 2 + 1e-6, abs_tol=1000)

    outcomes = {tuple(row[c] for c in PAIR): row for row in tables.outcomes(facts).collect()}
    losses = reference.losses(many)
    counts = reference.outcome(many)
    assert set(outcomes) == set(counts)
    for pair, row in outcomes.items():
        for name in {*COUNTERS, "rows"} - {"complete_share"}:
            assert math.isclose(row[name], counts[pair][name], rel_tol=1e-9), name
        assert (row["lost"], row["loss_expected"], row["loss_method"]) == losses.get(
            pair, (None, None, None)
        )


@given(value=st.floats(1.0, 1e13))
def test_a_bin_is_at_most_one_percent_off(value: float) -> None:
    middle = value_of(bin_of(value))
    assert math.isclose(middle, value, rel_tol=(GROWTH - 1) / 2 + 1e-9, abs_tol=1000)


def test_counters_and_hops_are_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "traces.md").read_text(encoding="utf-8")
    for name, text in [*COUNTERS.items(), *((hop.name, hop.text) for hop in HOPS)]:
        assert f"| `{name}` | {text} |" in page
