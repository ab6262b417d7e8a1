"""The loop closes: a topic that is late is found by the analysis, what it recommends is applied,
and the topic is late no longer; taking the advice back takes its effect back.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.analysis.command import analyze
from tests.e2e.conftest import watched
from tests.e2e.traffic import assert_same_order, indices, publish, subscribe
from tests.lab.fabric import ZOOKEEPER, Fabric
from tests.lab.namespaces import Lab
from tests.lab.process import wait_until
from tests.lab.wan import Wan

DIRECT_MS, UPLINK_MS, DEADLINE_MS = 5, 45, 60
TOPIC = "Slow"


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Fabric]:
    """The way by the router is too slow for the deadline, which is too lax to be strict."""
    settings = {
        "DDSWAN_TRACE_DIRECTORY": str(tmp_path / "traces"),
        "DDSWAN_TRACE_SHARE": "1",
        "DDSWAN_TRACE_FILE_AGE_S": "1",
        "DDSWAN_EXPRESS_MAX_DEADLINE_S": "0.01",
    }
    with Lab("a", "b", wan=Wan(direct=[("a", "b")])) as lab:
        lab.wan["a", "b"].set(delay_ms=DIRECT_MS)
        for lan in ("a", "b"):
            lab.wan[lan, "cloud"].set(delay_ms=UPLINK_MS)
        with watched(Fabric(lab, ["a", "b"], settings=settings)) as running:
            yield running


def arrived(traces: Path, since_ns: int, least: int) -> list[dict[str, Any]]:
    """Rows of samples delivered since then, once there are so many."""

    def look() -> list[dict[str, Any]] | None:
        rows = [
            row
            for file in sorted(traces.glob("*.parquet"))
            for row in pq.read_table(file).to_pylist()
            if row["is_winner"] and row["egress_ns"] > since_ns
        ]
        return rows if len(rows) >= least else None

    return wait_until(look, 20.0, f"{least} samples are traced")


def late_share(rows: list[dict[str, Any]]) -> float:
    late = [row for row in rows if row["written_ns"] - row["source_ns"] > row["deadline_ns"]]
    return len(late) / len(rows)


def recommend(fabric: Fabric, *arguments: str) -> str:
    argv = [sys.executable, "-m", "gateway.cli", "recommend", *arguments]
    return fabric.lab.cloud.run([*argv, f"--zookeeper={ZOOKEEPER}"])


def test_a_late_topic_is_promoted_and_late_no_longer(fabric: Fabric, tmp_path: Path) -> None:
    traces, out = tmp_path / "traces", tmp_path / "out"
    deadline = f"--deadline-ms={DEADLINE_MS}"
    subscriber = subscribe(fabric, "b", TOPIC, deadline)
    publish(fabric, "a", TOPIC, deadline, "--count=1000000", "--rate=80", "--quiet")
    before = arrived(traces, 0, 80)
    assert late_share(before) > 0.9
    assert {row["path"] for row in before} == {"routed"}

    done = analyze(str(traces), "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    file = out / "recommendations.json"
    (found,) = json.loads(file.read_text())["recommendations"]
    assert (found["kind"], found["topic"]) == ("promote", TOPIC)

    said = recommend(fabric, "apply", str(file), "--dry-run")
    assert said.startswith(f"would apply: {TOPIC}: express on (")
    assert recommend(fabric, "show") == "nothing is applied\n"
    assert recommend(fabric, "apply", str(file)).startswith(f"applied: {TOPIC}: express on (")
    assert recommend(fabric, "apply", str(file)).startswith("nothing to apply")
    (shown,) = json.loads(recommend(fabric, "show", "--json"))
    assert shown["evidence"]["late"] == found["evidence"]["late"] > 0
    fabric.edge("a").wait_for_line("paths changed", 5.0)
    fabric.edge("a").wait_for_line("express link up", 10.0)

    settled_ns = time.time_ns() + 2_000_000_000  # delays are learned meanwhile
    after = arrived(traces, settled_ns, 80)
    assert late_share(after) < 0.05
    assert "express" in {row["path"] for row in after}

    assert recommend(fabric, "clear", TOPIC).startswith(f"taken back: {TOPIC}: express on (")
    wait_until(
        lambda: any("strict=False" in line for line in fabric.edge("a").lines()),
        5.0,
        "it is heeded",
    )
    again = arrived(traces, time.time_ns() + 1_000_000_000, 40)
    assert {row["path"] for row in again} == {"routed"}
    assert late_share(again) > 0.9
    got = indices(subscriber)
    assert_same_order(list(range(got[-1] + 1)), got)  # no change of paths cost a sample
