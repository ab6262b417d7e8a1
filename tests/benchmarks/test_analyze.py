"""The benchmark of the analysis runs; how fast it is is not a test's business."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.analysis.command import QUICK_JAVA
from tests.benchmarks import analyze
from tests.benchmarks.options import Options

pytestmark = pytest.mark.spark


def test_analyze(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in QUICK_JAVA.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "analyze.json"
    assert analyze.run(Options(repetitions=1, seconds=1.0, json=file, is_quick=True)) == 0
    (row,) = json.loads(file.read_text())["runs"]
    assert row["rows"] == 10_000
    assert row["peak_rss_bytes"] > 100_000_000
    assert row["report_bytes"] > 10_000
