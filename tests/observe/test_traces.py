"""The trace writer: what is appended is in whole files, within its bounds, whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from array import array
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gateway.config import Trace
from gateway.errors import ConfigError
from gateway.model import INFINITE_NS
from gateway.observe.metrics import BrokerMetrics
from gateway.observe.trace_schema import (
    COLUMNS,
    SCHEMA_VERSION,
    Selection,
    TracedBatch,
    TracedStream,
    TracePath,
    is_sampled,
    share_of,
)
from gateway.observe.traces import ARROW_SCHEMA, TraceWriter, lay_out
from tests.lab.process import wait_until

_ROOT = str(Path(__file__).parents[2])
_STREAM = TracedStream("f", "t", "a", "e-a", 2**64 - 1, 3, "b", "e-b", True, INFINITE_NS)


def batch(first: int, samples: int = 4, **changes: Any) -> TracedBatch:
    values = TracedBatch(
        stream=_STREAM,
        first=first,
        samples=samples,
        source_ns=array("q", range(1000 + first, 1000 + first + samples)),
        sizes=None,
        uniform_size=64,
        batch_samples=samples,
        path=TracePath.ROUTED,
        router="r1",
        is_winner=True,
        selection=Selection.SAMPLED,
        share=0.01,
        egress_ns=2000,
    )
    return values._replace(**changes)


def writer(
    directory: Path, metrics: BrokerMetrics | None = None, edge: str = "e-b", **settings: Any
) -> TraceWriter:
    return TraceWriter(
        Trace(directory=str(directory), **settings),
        edge,
        7,
        metrics or BrokerMetrics("edge", "1"),
    )


def rows(directory: Path) -> list[dict[str, Any]]:
    """All rows a reader may see, with every file whole."""
    files = sorted(directory.glob("*.parquet"))
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def value(metrics: BrokerMetrics, name: str, **labels: str) -> float:
    families = text_string_to_metric_families(metrics.render().decode())
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return next(sample.value for sample in samples if sample.labels == labels)


@given(
    sizes=st.lists(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=5), max_size=5),
    deadline=st.one_of(st.just(INFINITE_NS), st.integers(1, 10**12)),
)
def test_rows_are_the_samples_of_the_batches(sizes: list[list[int]], deadline: int) -> None:
    stream = _STREAM._replace(deadline_ns=deadline)
    batches, first = [], 5
    for column in sizes:
        batches.append(
            batch(first, len(column), sizes=array("I", column), stream=stream, written_ns=first)
        )
        first += len(column)
    batches.append(batch(first, 2, stream=stream, router=None, is_winner=False))
    table = lay_out(batches)
    assert table.schema.equals(ARROW_SCHEMA)
    made = table.to_pylist()
    flat = [size for column in sizes for size in column] + [64, 64]
    assert [row["size_bytes"] for row in made] == flat
    assert [row["number"] for row in made] == list(range(5, 5 + len(flat)))
    assert [row["source_ns"] for row in made] == [1000 + row["number"] for row in made]
    for row in made:
        assert row["origin_incarnation"] == -1
        assert row["schema_version"] == SCHEMA_VERSION
        assert row["deadline_ns"] == (None if deadline == INFINITE_NS else deadline)
    assert [row["written_ns"] is None for row in made][-2:] == [True, True]
    assert [row["router"] for row in made][-2:] == [None, None]


def test_what_is_appended_is_in_whole_files(tmp_path: Path) -> None:
    metrics = BrokerMetrics("edge", "1")
    traces = writer(tmp_path / "new" / "deep", metrics, file_age_s=0.01)
    traces.start()
    traces.append(batch(1))
    wait_until(lambda: rows(tmp_path / "new" / "deep"), 10.0, "the file that is old enough")
    traces.append(batch(5))
    traces.stop()
    assert [row["number"] for row in rows(tmp_path / "new" / "deep")] == list(range(1, 9))
    assert value(metrics, "ddswan_trace_rows_total") == 8
    assert value(metrics, "ddswan_trace_disk_bytes") > 0
    assert not list((tmp_path / "new" / "deep").glob(".*"))


def test_too_much_is_dropped_and_counted_and_costs_nothing(tmp_path: Path) -> None:
    metrics = BrokerMetrics("edge", "1")
    traces = writer(tmp_path, metrics, queue_samples=1000)
    for number in range(300):  # nobody writes yet
        traces.append(batch(1 + 4 * number))
    traces.start()
    traces.stop()
    assert [row["number"] for row in rows(tmp_path)] == list(range(1, 1001))
    assert value(metrics, "ddswan_trace_rows_dropped_total", reason="queue") == 200


def test_a_malformed_batch_costs_only_itself(tmp_path: Path) -> None:
    metrics = BrokerMetrics("edge", "1")
    traces = writer(tmp_path, metrics)
    traces.append(batch(1))
    traces.append(batch(5, 3, source_ns=array("q", [1])))
    traces.append(batch(8, egress_ns=2**63))
    traces.append(batch(12))
    traces.start()
    traces.stop()
    assert [row["number"] for row in rows(tmp_path)] == [1, 2, 3, 4, 12, 13, 14, 15]
    assert value(metrics, "ddswan_trace_rows_dropped_total", reason="malformed") == 7


def test_the_disk_is_bounded_and_the_oldest_go_first(tmp_path: Path) -> None:
    """Of one's own: another edge's files in the same directory are left alone."""
    metrics = BrokerMetrics("edge", "1")
    other = writer(tmp_path, edge="e-b-2")
    other.append(batch(1))
    other.start()
    other.stop()
    (foreign,) = tmp_path.glob("*.parquet")
    bound = 1_048_576
    traces = writer(tmp_path, metrics, disk_bytes=bound, file_bytes=65_536, queue_samples=100_000)
    traces.start()
    samples = 70_000

    def is_handled(wanted: int) -> bool:
        dropped = value(metrics, "ddswan_trace_rows_dropped_total", reason="disk")
        return value(metrics, "ddswan_trace_rows_total") + dropped >= wanted

    for number in range(30):
        noise = array("I", os.urandom(4 * samples))
        times = array("q", os.urandom(8 * samples))
        first = 1 + number * samples
        traces.append(batch(first, samples, sizes=noise, source_ns=times))
        wanted = (number + 1) * samples
        wait_until(partial(is_handled, wanted), 20.0, "the file to be written")
    traces.stop()
    mine = [file for file in tmp_path.glob("*.parquet") if file != foreign]
    assert foreign.exists()
    assert sum(file.stat().st_size for file in mine) <= bound
    assert value(metrics, "ddswan_trace_disk_bytes") == sum(f.stat().st_size for f in mine)
    assert max(row["number"] for row in rows(tmp_path)) == 30 * samples


def test_a_full_disk_drops_and_counts_and_heals(tmp_path: Path) -> None:
    """A file system of 1 MiB, mounted for the test in a namespace of its own, fills up."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "import os, pathlib\n"
        "from array import array\n"
        "from tests.observe.test_traces import batch, rows, value, writer\n"
        "from tests.lab.process import wait_until\n"
        "from gateway.observe.metrics import BrokerMetrics\n"
        "place = pathlib.Path(sys.argv[1])\n"
        "metrics = BrokerMetrics('edge', '1')\n"
        "traces = writer(place, metrics, file_age_s=0.05, queue_samples=10**6)\n"
        "(place / 'ballast').write_bytes(bytes(900_000))\n"
        "traces.start()\n"
        "n = 60_000\n"
        "noise = array('q', os.urandom(8 * n))\n"
        "traces.append(batch(1, n, source_ns=noise))\n"
        "dropped = lambda: value(metrics, 'ddswan_trace_rows_dropped_total', reason='disk')\n"
        "wait_until(lambda: dropped() == n, 10.0, 'rows dropped')\n"
        "assert not [f for f in place.iterdir() if f.name != 'ballast'], list(place.iterdir())\n"
        "(place / 'ballast').unlink()\n"
        "traces.append(batch(1, n, source_ns=noise))\n"
        "traces.stop()\n"
        "assert len(rows(place)) == n\n"
    )
    script = f'mount -t tmpfs -o size=1m none "{tmp_path}" && exec "$0" -c "$1" "{tmp_path}" "$2"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, sys.executable, program, _ROOT],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "free the disk" in done.stderr


def test_killed_while_writing_it_leaves_only_whole_files(tmp_path: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "import pathlib, time\n"
        "from tests.observe.test_traces import batch, writer\n"
        "traces = writer(pathlib.Path(sys.argv[1]), file_age_s=0.01)\n"
        "traces.start()\n"
        "n = 1\n"
        "while True:\n"
        "    traces.append(batch(n)); n += 4; time.sleep(0.0001)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program, str(tmp_path), _ROOT])
    try:
        wait_until(lambda: len(list(tmp_path.glob("*.parquet"))) >= 3, 30.0, "some files")
        wait_until(lambda: list(tmp_path.glob(".*.tmp")), 30.0, "one being written")
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(10.0)
    assert len(rows(tmp_path)) > 0  # every file is whole
    again = writer(tmp_path)
    again.start()
    again.stop()
    assert not list(tmp_path.glob(".*")), "the next life removes what the last one left"


def test_a_place_that_cannot_be_written_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"change trace\.directory"):
        writer(tmp_path / "file").start()


def test_the_hot_path_never_waits_for_the_disk(tmp_path: Path) -> None:
    """However long the writer's turn takes, an append is a list's append."""
    traces = writer(tmp_path, queue_samples=10**6)
    traces.start()
    longest = []

    def append() -> None:
        for number in range(2000):
            began = time.thread_time_ns()
            traces.append(batch(1 + 4 * number))
            longest.append(time.thread_time_ns() - began)

    threads = [threading.Thread(target=append) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    traces.stop()
    assert sorted(longest)[len(longest) // 2] < 50_000  # processor time, making the batch included
    assert len(rows(tmp_path)) == 2 * 2000 * 4


@given(
    share=st.sampled_from([0.0, 0.001, 0.01, 0.25, 1.0]),
    step=st.integers(1, 5000),
    incarnation=st.integers(0, 2**64 - 1),
)
def test_the_share_is_kept_for_batches_of_any_size(
    share: float, step: int, incarnation: int
) -> None:
    chosen = [is_sampled(incarnation, 1, first, share) for first in range(1, 1 + 4000 * step, step)]
    assert chosen == [
        is_sampled(incarnation, 1, first, share) for first in range(1, 1 + 4000 * step, step)
    ]
    if share in (0.0, 1.0):
        assert set(chosen) == {bool(share)}
    else:
        assert abs(sum(chosen) / 4000 - share) < 0.5 * share + 0.01


def test_shares_of_single_topics() -> None:
    shares = Trace.model_validate({"topics": "arm/*=1.0, x=y=0.5"}).topics
    assert shares == {"arm/*": 1.0, "x=y": 0.5}
    assert [share_of(t, shares, 0.01) for t in ("arm/1", "x=y", "leg")] == [1.0, 0.5, 0.01]


def test_the_contract_is_documented_column_by_column() -> None:
    page = Path(_ROOT, "docs", "traces.md").read_text(encoding="utf-8")
    for column in COLUMNS:
        null = "yes" if column.is_nullable else ""
        assert (
            f"| `{column.name}` | {column.type} | {column.unit} | {null} | {column.meaning} |"
            in page
        )
