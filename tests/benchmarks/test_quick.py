"""The benchmarks run and lose nothing; how fast they are is not a test's business."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.benchmarks import deadline, latency, overhead, soak, throughput
from tests.benchmarks.options import Options

pytestmark = [pytest.mark.e2e, pytest.mark.lab, pytest.mark.dds, pytest.mark.zookeeper]


def quick(file: Path) -> Options:
    return Options(repetitions=1, seconds=1.0, json=file, is_quick=True)


def test_latency(tmp_path: Path) -> None:
    file = tmp_path / "latency.json"
    assert latency.run(replace(quick(file), seconds=0.5)) == 0
    result = json.loads(file.read_text())
    assert {name: arm["count"] for name, arm in result["arms"].items()} == {
        "plain": 100,
        "routed": 100,
        "express": 100,
        "sockets": 100,
        "express_awake": 100,
        "plain_awake": 100,
        "sockets_awake": 100,
        "plain_fast": 500,
        "routed_fast": 500,
        "express_fast": 500,
    }
    brokers = {"e-a", "e-b", "r1", "zookeeper"}
    applications = {"publisher", "subscriber"}
    assert set(result["processes"]["plain"]) == applications
    for name in ("routed", "express", "express_awake"):
        assert set(result["processes"][name]) == brokers | applications
    assert result["environment"]["commit"]


def test_throughput(tmp_path: Path) -> None:
    file = tmp_path / "throughput.json"
    assert throughput.run(quick(file)) == 0
    result = json.loads(file.read_text())
    for row in result["sizes"].values():
        assert row["gateway_per_s"] > 0
        assert row["plain_per_s"] > 0
    assert result["many_topics"]["per_s"]["gateway 32"] > 0


def test_overhead(tmp_path: Path) -> None:
    file = tmp_path / "overhead.json"
    assert overhead.run(replace(quick(file), seconds=0.3)) == 0
    found = json.loads(file.read_text())["sizes"]["64"]
    assert found["bytes_per_s"] > 0
    for row in found["compared"]:
        assert 0.1 < row["rate_ratio"] < 10, row
    few, all_of_them = found["cpu_share"].values()
    assert 0 < few["counting"] < 0.5 and 0 < few["tracing"] < all_of_them["tracing"] < 0.5


def test_deadline(tmp_path: Path) -> None:
    file = tmp_path / "deadline.json"
    assert deadline.run(quick(file)) == 0
    result = json.loads(file.read_text())
    (case,) = result["cases"]
    arms = case["arms"]
    # The direct link takes 30 ms, the routed path 280: who has the direct link uses it.
    assert {name for name, arm in arms.items() if arm["p50_ms"] < 250} == arms.keys() - {"routed"}
    assert all(arm["p50_ms"] >= 30 and arm["count"] == 200 for arm in arms.values())
    assert arms["duplicate"]["bytes_per_sample_by_link"]["L1"] > 64
    assert arms["direct"]["bytes_per_sample_by_link"]["L3"] > 64
    assert all("alone" in row["why"] for row in arms["direct"]["choices"]["direct0"])
    assert file.with_suffix(".svg").read_text().count("<rect") > len(arms) * 6


def test_soak(tmp_path: Path) -> None:
    file = tmp_path / "soak.json"
    assert soak.run(replace(quick(file), seconds=4.0)) == 0
    (row,) = json.loads(file.read_text())["runs"]
    assert row["samples"] > 1000
    assert sum(row["faults"].values()) > 1
