"""How fast `ddswan analyze` is and how much memory it takes, against the size of the traces and the
cores it may use: `./dev bench analyze`. The command itself is measured, Java included.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.compute as pc

from gateway.observe.traces import lay_out
from tests.analysis.generated import MS, S, Traffic, Way, make_batches, with_topics, write_table
from tests.benchmarks.measure import Result, environment, print_table, write_json
from tests.benchmarks.options import Options
from tests.lab.namespaces import REPOSITORY
from tests.lab.process import Process, ProcessFailed

SIZES = (10**5, 10**6, 10**7)
CORES = (1, 2)
MEMORY = "1g"
TOPICS = 100
ROWS_PER_FILE = 500_000
_LIMIT_S = 1800.0
_LOOK_S = 0.2


def run(options: Options) -> int:
    sizes = (10**4,) if options.is_quick else SIZES
    cores = (2,) if options.is_quick else CORES
    began = environment()
    rows: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="ddswan-bench-") as name:
        folder = Path(name)
        for size in sizes:
            traces = folder / str(size)
            on_disk = {"trace_bytes": make_traces(traces, size)}
            rows += [measure(folder, traces, size, count) | on_disk for count in cores]
    result = {
        "benchmark": "analyze",
        "is_quick": options.is_quick,
        "driver_memory": MEMORY,
        "topics": min(TOPICS, sizes[0] // 100),
        "runs": rows,
        "environment": began,
    }
    show(result)
    write_json(options.json, result)
    return 0


def make_traces(folder: Path, rows: int) -> int:
    """Traces of many topics over an hour; the bytes they take. Made once in small and repeated
    with other numbers and times, because Python would need longer than Spark."""
    topics = min(TOPICS, rows // 100)
    begin_ns = int(time.time() - 7200) * S
    part = min(rows, ROWS_PER_FILE)
    ways = (Way(), Way(router="r2", router_ns=2 * MS))
    tables = []
    for number, traffic in enumerate(with_topics(Traffic(deadline_ns=60 * MS), topics)):
        changed = Traffic(
            topic=traffic.topic,
            origin="abcd"[number % 4],
            destination="efgh"[number % 3],
            ways=(ways[number % 2],),
            deadline_ns=traffic.deadline_ns,
            batch_samples=10,
        )
        batches = make_batches(
            changed,
            batches=part // topics // 10,
            begin_ns=begin_ns,
            every_ns=3600 * S * topics * 10 // rows,
        )
        tables.append(lay_out(list(batches)))
    table = pa.concat_tables(tables)
    copies = rows // table.num_rows
    for copy in range(copies):
        write_table(folder / f"{copy:04d}.parquet", _moved(table, copy, 3600 * S // copies))
    return sum(file.stat().st_size for file in folder.iterdir())


def _moved(table: pa.Table, copy: int, period_ns: int) -> pa.Table:
    """The same traffic, later."""
    times = ("source", "ingress", "sent", "router_in", "router_out", "egress", "written")
    shifts = {f"{name}_ns": copy * period_ns for name in times} | {"number": copy * 10**6}
    for name, shift in shifts.items():
        column = pc.add(table[name], pa.scalar(shift, pa.int64()))
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


def measure(folder: Path, traces: Path, rows: int, cores: int) -> Result:
    out = folder / f"out-{rows}-{cores}"
    began = time.monotonic()
    process = Process(
        [
            *(sys.executable, "-m", "gateway.cli", "analyze", str(traces), "--out", str(out)),
            *("--master", f"local[{cores}]", "--memory", MEMORY),
        ],
        name=f"analyze-{rows}-{cores}",
        output=folder / f"analyze-{rows}-{cores}.log",
        env=os.environ,
        cwd=REPOSITORY,
    )
    peak = 0
    cpu: dict[int, float] = {}
    try:
        while process.is_running:
            together = 0
            for member in _family(process.pid):
                with contextlib.suppress(psutil.NoSuchProcess):
                    times = member.cpu_times()
                    cpu[member.pid] = times.user + times.system
                    together += member.memory_info().rss
            peak = max(peak, together)
            if time.monotonic() - began > _LIMIT_S:
                raise ProcessFailed(f"analyze took longer than {_LIMIT_S:g} s: {process.tail()}")
            time.sleep(_LOOK_S)
        took_s = time.monotonic() - began
        process.wait_for_success()
    finally:
        if process.is_running:
            process.kill()
    report = (out / "report.html").stat().st_size
    found: Result = {
        "rows": rows,
        "cores": cores,
        "seconds": took_s,
        "rows_per_s": rows / took_s,
        "cpu_s": sum(cpu.values()),
        "peak_rss_bytes": peak,
        "report_bytes": report,
    }
    print(f"{rows:,} rows on {cores} cores: {took_s:.1f} s", flush=True)
    return found


def _family(pid: int) -> list[psutil.Process]:
    """The command and its Java."""
    try:
        command = psutil.Process(pid)
        return [command, *command.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def show(result: Result) -> None:
    print_table(
        f"ddswan analyze, {result['topics']} topics, driver memory {result['driver_memory']}",
        ("rows", "cores", "seconds", "rows/s", "CPU s", "peak MiB", "traces MB", "report kB"),
        [
            (
                f"{row['rows']:,}",
                str(row["cores"]),
                f"{row['seconds']:.1f}",
                f"{row['rows_per_s']:,.0f}",
                f"{row['cpu_s']:.1f}",
                f"{row['peak_rss_bytes'] / 2**20:.0f}",
                f"{row['trace_bytes'] / 1e6:.1f}",
                f"{row['report_bytes'] / 1e3:.0f}",
            )
            for row in result["runs"]
        ],
    )
