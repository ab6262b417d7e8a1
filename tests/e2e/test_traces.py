"""Traces of a running fabric: rows that tell the way of samples rightly, on both paths of a
deadline topic, and `ddswan analyze` over them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.analysis.command import analyze
from tests.e2e.conftest import watched
from tests.e2e.traffic import publish, subscribe
from tests.lab.fabric import STOP_S, Fabric
from tests.lab.machine import stolen_s
from tests.lab.namespaces import Lab
from tests.lab.wan import Wan

Row = dict[str, Any]

DIRECT_MS, UPLINK_MS = 5, 15
MS = 1_000_000
COUNT = 60
SIZE = 100
BOTH, PLAIN, LATE = "Both", "Plain", "Late"


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    return tmp_path / "traces"


@pytest.fixture
def fabric(traces: Path) -> Iterator[Fabric]:
    """Two LANs with a direct link that is faster than the way by the router."""
    settings = {
        "DDSWAN_TRACE_DIRECTORY": str(traces),
        "DDSWAN_TRACE_SHARE": "1",
        "DDSWAN_TRACE_TOPICS": f"{LATE}=0",
        "DDSWAN_EXPRESS_MODE": "duplicate",
    }
    with Lab("a", "b", wan=Wan(direct=[("a", "b")])) as lab:
        lab.wan["a", "b"].set(delay_ms=DIRECT_MS)
        for lan in ("a", "b"):
            lab.wan[lan, "cloud"].set(delay_ms=UPLINK_MS)
        with watched(Fabric(lab, ["a", "b"], settings=settings)) as running:
            yield running


def test_rows_tell_the_way_and_are_analysed(fabric: Fabric, traces: Path, tmp_path: Path) -> None:
    flows = []
    stolen_before_s = stolen_s()
    for topic, deadline in (
        (BOTH, ("--deadline-ms=300",)),
        (PLAIN, ()),
        (LATE, (f"--deadline-ms={DIRECT_MS - 2}",)),
    ):
        subscriber = subscribe(fabric, "b", topic, *deadline, f"--count={COUNT}")
        wanted = (f"--count={COUNT}", "--rate=30", f"--size={SIZE}", "--stay-s=1")
        flows += [publish(fabric, "a", topic, *deadline, *wanted), subscriber]
    for process in flows:
        process.wait_for_success(30.0)
    assert fabric.edge("b").terminate(STOP_S) == 0  # closes its file
    assert fabric.edge("a").terminate(STOP_S) == 0

    rows: list[Row] = pq.read_table(traces).to_pylist()
    by_topic = {topic: [row for row in rows if row["topic"] == topic] for topic in (BOTH, PLAIN)}
    late = [row for row in rows if row["topic"] == LATE]
    assert len(rows) == sum(map(len, by_topic.values())) + len(late)
    timed = [row for row in rows if row["clock_offset_ns"] is not None]
    assert len(rows) - len(timed) <= 10, "clocks are known as soon as links have had a ping"
    missed_ns = round((stolen_s() - stolen_before_s) * 1e9)
    for row in timed:
        assert_sound(row, missed_ns)

    # Each sample of a topic without deadline once, by the router.
    assert sorted(row["number"] for row in by_topic[PLAIN]) == list(range(1, COUNT + 1))
    for row in by_topic[PLAIN]:
        assert (row["path"], row["router"], row["is_winner"]) == ("routed", "r1", True)
        assert (row["copies"], row["selection"], row["share"]) == (1, "sampled", 1.0)
        assert row["deadline_ns"] is None

    # Each sample of one with a deadline by both ways, once the direct one is there, which wins.
    both = by_topic[BOTH]
    winners = [row for row in both if row["is_winner"]]
    assert sorted(row["number"] for row in winners) == list(range(1, COUNT + 1))
    twice = {row["number"] for row in winners if row["copies"] == 2}
    assert len(twice) > COUNT // 2
    express = [row for row in both if row["path"] == "express"]
    losing = [row for row in both if not row["is_winner"]]
    later = {row["number"] for row in losing}
    assert later <= twice
    assert len(later) > len(twice) - 5, "the last ones may come after all is over"
    assert sum(row["is_winner"] for row in express) > 0.9 * len(twice)
    assert {row["path"] for row in losing} >= {"routed"}
    assert {row["deadline_ns"] for row in both} == {300 * MS}

    # What is late is traced whatever the share, with the hops that are known.
    assert len(late) > COUNT // 2
    assert {row["selection"] for row in late} == {"deadline_miss"}
    for row in late:
        assert row["is_winner"] and row["ingress_ns"] is None and row["sent_ns"] is not None
        source_ns = row["source_ns"] - (row["clock_offset_ns"] or 0)
        assert row["written_ns"] - source_ns > row["deadline_ns"]
        assert row["share"] == 0.0

    out = tmp_path / "out"
    done = analyze(str(traces), "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    told = {(row["topic"], row["path"]): row for row in pq.read_table(out / "paths").to_pylist()}
    assert told[BOTH, "express"]["wins"] > 0.9 * len(twice)
    assert told[BOTH, "routed"]["wins"] < 0.1 * len(twice)
    outcomes = {row["topic"]: row for row in pq.read_table(out / "outcomes").to_pylist()}
    assert outcomes[PLAIN]["sampled"] == COUNT
    assert outcomes[LATE]["misses"] == len(late)
    assert [row["suspect"] for row in outcomes.values()] == [0, 0, 0]
    assert json.loads((out / "recommendations.json").read_text())["version"] == 1
    assert BOTH in (out / "report.html").read_text()


def assert_sound(row: Row, missed_ns: int) -> None:
    """`missed_ns` is what the machine did not have of the time."""
    assert (row["origin_lan"], row["destination_lan"]) == ("a", "b")
    assert (row["origin_edge"], row["destination_edge"]) == ("e-a", "e-b")
    assert row["size_bytes"] >= SIZE
    assert row["lost_before"] in (0, None)
    # All clocks here are one, so their true offset is none.
    assert abs(row["clock_offset_ns"]) <= row["clock_error_ns"] < 40 * MS
    error_ns = row["clock_error_ns"]
    if row["path"] == "express":
        assert row["router"] is None and row["router_in_ns"] is None
        direct_ns = row["egress_ns"] - (row["sent_ns"] - row["clock_offset_ns"])
        assert DIRECT_MS * MS - error_ns <= direct_ns < DIRECT_MS * MS + 60 * MS + missed_ns
    else:
        router_error_ns = row["router_clock_error_ns"]
        assert abs(row["router_clock_offset_ns"]) <= router_error_ns < 40 * MS
        error_ns += router_error_ns
    if row["is_winner"] != (row["written_ns"] is not None):
        raise AssertionError(row)
    if row["selection"] == "sampled":
        assert_in_order(row, error_ns)


def assert_in_order(row: Row, error_ns: int) -> None:
    """The hops follow each other, by the destination's clock, as far as clocks can tell."""
    origin, router = row["clock_offset_ns"], row["router_clock_offset_ns"] or 0
    hops = [row[name] - origin for name in ("source_ns", "ingress_ns", "sent_ns")]
    if row["path"] != "express":
        hops += [row["router_in_ns"] - router, row["router_out_ns"] - router]
        assert row["router_out_ns"] - row["router_in_ns"] < 50 * MS
        for before, after in ((hops[2], hops[3]), (hops[4], row["egress_ns"])):
            assert UPLINK_MS * MS - error_ns <= after - before < UPLINK_MS * MS + 60 * MS
    hops.append(row["egress_ns"])
    if row["written_ns"] is not None:
        hops.append(row["written_ns"])
    for before, after in pairwise(hops):
        assert after - before >= -error_ns, (row, hops)
