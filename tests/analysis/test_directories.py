"""What may lie in a trace directory: nothing, something else, halves of files, other versions."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from gateway.analysis import tables
from gateway.analysis.facts import PAIR, make_facts, measure
from gateway.analysis.progress import Progress
from gateway.analysis.run import STEPS, analyse, choose_bucket
from gateway.analysis.session import AnalysisError
from gateway.analysis.source import read_batch, survey
from tests.analysis.generated import (
    Traffic,
    an_hour_ago_ns,
    make_batches,
    write_file,
    write_table,
)

pytestmark = pytest.mark.spark


def quiet() -> Progress:
    return Progress(io.StringIO(), STEPS)


def test_wrong_directories_are_one_line_that_helps(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "halves").mkdir()
    (tmp_path / "halves" / "x.parquet").write_bytes(b"PAR1 and no more")
    write_table(tmp_path / "other" / "x.parquet", pa.table({"name": ["x"]}))
    for name, text in {
        "missing": "there is no directory",
        "file": "is a file",
        "empty": "there are no traces in",
        "halves": "no file in .* can be read",
        "other": "holds something else than traces",
    }.items():
        with pytest.raises(AnalysisError, match=text) as caught:
            analyse(spark, str(tmp_path / name), str(tmp_path / "out"), quiet())
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_an_output_that_cannot_be_written_is_said(spark: SparkSession, tmp_path: Path) -> None:
    batches = list(make_batches(Traffic(), batches=3, begin_ns=an_hour_ago_ns()))
    write_file(tmp_path / "in", "x", batches)
    (tmp_path / "file").write_text("x")
    with pytest.raises(AnalysisError, match="choose another --out"):
        analyse(spark, str(tmp_path / "in"), str(tmp_path / "file"), quiet())


def test_halves_other_versions_and_hidden_files_do_no_harm(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Version 0 lacks columns that may be null, version 9 has one more; what is cut off anywhere
    is left out, and counted."""
    traffic, begin = Traffic(), an_hour_ago_ns()
    parts = [
        list(make_batches(replace(traffic, stream=n), batches=20, begin_ns=begin)) for n in range(3)
    ]
    today = write_file(tmp_path, "today", parts[0])
    old = write_file(tmp_path, "old", parts[1]).drop_columns(["sent_ns", "lost_before"])
    write_table(tmp_path / "old.parquet", old)
    new = write_file(tmp_path, "new", parts[2])
    more = pa.array(["?"] * new.num_rows)
    write_table(tmp_path / "new.parquet", new.append_column("unheard_of", more))
    whole = (tmp_path / "today.parquet").read_bytes()
    for size in (0, 3, len(whole) // 2, len(whole) - 1):
        (tmp_path / f"cut{size}.parquet").write_bytes(whole[:size])
    (tmp_path / ".hidden.parquet.tmp").write_bytes(whole)
    (tmp_path / "notes.txt").write_text("not a trace")

    traces = read_batch(spark, str(tmp_path))
    write_table(tmp_path / "later.parquet", today)  # an edge goes on meanwhile
    found = survey(traces, str(tmp_path))
    (tmp_path / "later.parquet").unlink()
    assert (found.rows, found.files, found.unreadable_files) == (3 * today.num_rows, 3, 4)
    facts = make_facts(measure(traces), 60, lateness_s=0).groupBy("measure").sum("n").collect()
    counts = {row[0]: row[1] for row in facts}
    assert counts["sample"] == counts["end_to_end"] == 3 * today.num_rows
    assert counts["origin_edge"] == counts["lost"] == 2 * today.num_rows


def test_no_python_handles_rows(spark: SparkSession, tmp_path: Path) -> None:
    batches = list(make_batches(Traffic(), batches=3, begin_ns=an_hour_ago_ns()))
    write_file(tmp_path, "x", batches)
    facts = make_facts(measure(read_batch(spark, str(tmp_path))), 60, lateness_s=0)
    for table in (facts, tables.outcomes(facts), tables.latency(facts, *PAIR), tables.paths(facts)):
        plan = table._jdf.queryExecution().toString()
        assert "parquet" in plan.lower() and "Python" not in plan and "Arrow" not in plan


def test_who_waits_sees_how_far_it_is(spark: SparkSession) -> None:
    terminal = _Terminal()
    progress = Progress(terminal, 2)
    progress.watch(spark)
    with progress.step("counting"):
        spark.range(0, 60_000_000, 1, 8).selectExpr("sum(hash(id, id + 1))").collect()
    with progress.step("done"):
        pass
    drawn = terminal.getvalue().split("\r\x1b[K")
    assert any(re.match(r"\[1/2\] counting  [█░]{24} \d/\d+ tasks  \d s$", each) for each in drawn)
    assert re.match(r"\[2/2\] done  \d+\.\d s\n$", drawn[-1])


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_periods_are_round_and_not_too_many() -> None:
    assert [choose_bucket(span) for span in (0, 59, 3600, 86_400, 864_000)] == [
        1,
        1,
        60,
        1800,
        14_400,
    ]
    assert choose_bucket(86_400.0 * 3650) * 60 >= 86_400 * 3650
