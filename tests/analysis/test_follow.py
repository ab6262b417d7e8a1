"""`--follow` counts every row once, whatever ends it, and says what a batch of them says."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from gateway.analysis.conclude import STEPS
from gateway.analysis.facts import make_facts, measure
from gateway.analysis.follow import Follower
from gateway.analysis.progress import Progress
from gateway.analysis.session import AnalysisError
from gateway.analysis.source import read_batch
from tests.analysis.command import QUICK_JAVA
from tests.analysis.generated import S, Traffic, an_hour_ago_ns, make_batches, write_file
from tests.environment import environment
from tests.lab.process import wait_until

pytestmark = pytest.mark.spark

_BUCKET_S, _LATENESS_S = 60, 120
_MINUTES = 10
_TRAFFIC = Traffic()
_KEYS = ("bucket", "topic", "path", "measure", "bin")


def follow(spark: SparkSession, folder: Path, **changes: int) -> None:
    settings = {"bucket_s": _BUCKET_S, "lateness_s": _LATENESS_S, "files_at_once": 2} | changes
    Follower(
        spark, str(folder / "in"), str(folder / "out"), Progress(io.StringIO(), STEPS), **settings
    ).run(threading.Event(), is_once=True)


@contextmanager
def following(spark: SparkSession, folder: Path) -> Iterator[None]:
    """Meanwhile it goes on by itself, as without --once; told to stop at the end."""
    stopping = threading.Event()
    follower = Follower(
        *(spark, str(folder / "in"), str(folder / "out"), Progress(io.StringIO(), STEPS)),
        bucket_s=_BUCKET_S,
        lateness_s=_LATENESS_S,
        every_s=1,
    )
    with ThreadPoolExecutor(1, "follower") as pool:
        done = pool.submit(follower.run, stopping, is_once=False)
        try:
            yield
        finally:
            stopping.set()
        done.result(30.0)


def made_from(folder: Path) -> dict[str, Any]:
    """What the last report was made from."""
    file = folder / "out" / "recommendations.json"
    found: dict[str, Any] = json.loads(file.read_text())["made_from"]
    return found


def add_minute(folder: Path, minute: int, begin_ns: int, stream: int = 1) -> int:
    """Writes the rows of one minute; how many."""
    made = make_batches(
        replace(_TRAFFIC, stream=stream),
        batches=60,
        begin_ns=begin_ns + minute * 60 * S,
        every_ns=S - 10_000_000,
    )
    return int(write_file(folder / "in", f"{minute:02d}-{stream}", list(made)).num_rows)


def counted(spark: SparkSession, folder: Path) -> dict[tuple[Any, ...], int]:
    return _sums(spark.read.parquet(str(folder / "out" / "follow" / "facts")))


def expected(spark: SparkSession, folder: Path, *, minutes: int) -> dict[tuple[Any, ...], int]:
    """Of a batch over the same directory; the periods a stream has finished by now."""
    facts = make_facts(measure(read_batch(spark, str(folder / "in"))), _BUCKET_S, lateness_s=0)
    end = facts.agg(F.min("bucket")).collect()[0][0].timestamp() + 60 * minutes
    return _sums(facts.where(F.unix_timestamp("bucket") < end))


def _sums(facts: Any) -> dict[tuple[Any, ...], int]:
    rows: Sequence[Any] = facts.groupBy(*_KEYS).agg(F.sum("n").alias("n")).collect()
    return {tuple(row[key] for key in _KEYS): row["n"] for row in rows}


def test_runs_end_and_begin_again_and_every_row_counts_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    begin = an_hour_ago_ns()
    # One edge lives a year ahead: its rows count as of when their file was written, and nobody
    # else becomes late by them.
    ahead = make_batches(
        replace(_TRAFFIC, topic="ahead"), batches=20, begin_ns=begin + 365 * 86_400 * S
    )
    write_file(tmp_path / "in", "ahead", list(ahead))
    os.utime(tmp_path / "in" / "ahead.parquet", (begin / S, begin / S))
    for minute in range(4):
        add_minute(tmp_path, minute, begin)
    follow(spark, tmp_path)
    first = counted(spark, tmp_path)
    assert first == expected(spark, tmp_path, minutes=1)
    assert {topic for _, topic, *_ in first} == {"ahead", _TRAFFIC.topic}

    # Rows of a period that is not finished come from another edge, a little late.
    add_minute(tmp_path, 3, begin, stream=2)
    for minute in range(4, _MINUTES):
        add_minute(tmp_path, minute, begin)
    # The newest row is in minute 9: what is older than two minutes is finished.
    wanted = expected(spark, tmp_path, minutes=_MINUTES - 3)
    rows = made_from(tmp_path)["rows"]
    with following(spark, tmp_path):
        wait_until(lambda: made_from(tmp_path)["rows"] > rows, 60.0, "a report with what is new")
    assert counted(spark, tmp_path) == wanted

    # What comes much too late is dropped and counted, and changes nothing that was told.
    add_minute(tmp_path, 0, begin, stream=3)
    follow(spark, tmp_path)
    assert counted(spark, tmp_path) == wanted
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
    assert made_from(tmp_path)["rows_too_late"] > 0

    with pytest.raises(AnalysisError, match="was begun with --bucket 60"):
        follow(spark, tmp_path, bucket_s=30)


def test_killed_in_the_middle_it_goes_on_without_counting_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    """SIGKILL while batches are being written; the next run ends with what a batch says."""
    begin = an_hour_ago_ns()
    for minute in range(_MINUTES):
        add_minute(tmp_path, minute, begin)
    program = (
        "import sys, threading\n"
        "from gateway.analysis.follow import Follower\n"
        "from gateway.analysis.progress import Progress\n"
        "from gateway.analysis.session import open_session\n"
        "with open_session('local[1]', memory='512m', partitions=2) as spark:\n"
        "    Follower(spark, sys.argv[1], sys.argv[2], Progress(sys.stderr, 5), bucket_s=60,\n"
        "        lateness_s=120, files_at_once=1).run(threading.Event(), is_once=True)\n"
    )
    commits = tmp_path / "out" / "follow" / "checkpoint" / "commits"
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "in"), str(tmp_path / "out")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=environment(TMPDIR=str(tmp_path), **QUICK_JAVA),
    )
    try:
        wait_until(lambda: (commits / "3").exists(), 60.0, "four batches of the first run")
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait(10.0)
    assert not (commits / str(_MINUTES)).exists(), "it ended before it was killed"
    follow(spark, tmp_path)
    assert counted(spark, tmp_path) == expected(spark, tmp_path, minutes=_MINUTES - 3)
    shutil.rmtree(tmp_path / "out")
