"""What being watched costs: one flow whose edges are switched, again and again, between no metrics,
metrics, and traces of few or all batches. Rates are compared, and the time is taken that the calls
need. Run by `./dev bench overhead`.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.measure import Result, environment, median, print_table, write_json
from tests.benchmarks.options import Options
from tests.benchmarks.switched import SPENT, TIMES_FILE, Mode
from tests.benchmarks.throughput import SMOKE_S, seconds_of
from tests.lab.fabric import EDGE_METRICS, Fabric
from tests.lab.namespaces import Lab
from tests.lab.process import Process, ProcessFailed, Usage, wait_until
from tests.lab.wan import WAN_INTERFACE

SIZES = (64, 1024)
START_S = 3.0
"""Granted for the first seconds, not counted."""
SETTLE_S = 0.7
"""Not counted after a switch: what is under way, and rows that wait for the trace writer."""


@dataclass(frozen=True, slots=True)
class Comparison:
    name: str
    against: Mode
    most_cost: float | None
    """The share of the rate it may cost."""


MODES = (Mode.NOTHING, Mode.METRICS, Mode.TRACES_1, Mode.TRACES_100)
TIMED = (Mode.TIMED_1, Mode.TIMED_100)
TIMED_PHASES = 3
COMPARISONS = {
    Mode.METRICS: Comparison("metrics", Mode.NOTHING, 0.02),
    Mode.TRACES_1: Comparison("traces of 1 %", Mode.METRICS, 0.03),
    Mode.TRACES_100: Comparison("traces of 100 %", Mode.METRICS, None),
}


class _Switched(Fabric):
    """Edges that obey the signals of switched.py."""

    def _ddswan(self, id: str, *arguments: str, lan: str = "") -> Process:
        if not lan:
            return super()._ddswan(id, *arguments)
        traces = {
            "DDSWAN_TRACE_DIRECTORY": str(self.lab.directory / "traces"),
            "DDSWAN_TRACE_SHARE": "1",
        }
        process = self.lab.lan(lan).python(
            "tests.benchmarks.switched",
            *arguments,
            name=id,
            env=EDGE_METRICS | traces | {TIMES_FILE: str(times_of(self, lan))},
        )
        self.brokers[id] = process
        return process


def times_of(fabric: Fabric, lan: str) -> Path:
    return fabric.lab.directory / f"times-{lan}"


def run(options: Options) -> int:
    began = environment()
    sizes = SIZES[:1] if options.is_quick else options.sizes or SIZES
    flows: dict[int, list[dict[Mode, Result]]] = {}
    spent: dict[int, dict[str, Result]] = {}
    with Lab("a", "b") as lab, _Switched(lab, ["a", "b"]) as fabric:
        for lan in ("a", "b"):
            fabric.ask(lan, "/metrics")  # whoever carries questions lives as long as this thread
        for size in sizes:
            for lan in ("a", "b"):
                times_of(fabric, lan).write_text("")
            flows[size] = flow(fabric, options, size)
            spent[size] = time_spent(fabric)
    result = conclude(options, flows, spent) | {"environment": began}
    show(result)
    write_json(options.json, result)
    return 0


def flow(fabric: Fabric, options: Options, size: int) -> list[dict[Mode, Result]]:
    """ddsperf at full speed through all phases, which a reliable writer is slowed from to what its
    reader takes. By repetition and mode: bytes a second, and the edges' CPU seconds for a byte."""
    phase_s = SETTLE_S + options.seconds
    # Few before all: what waits to be written would count for the few.
    timed = [mode for mode in TIMED for _ in range(1 if options.is_quick else TIMED_PHASES)]
    phases = options.repetitions * len(MODES) + len(timed) + 2
    # Far more than it takes: they are ended when the last phase is over.
    most = f"-D{SMOKE_S + START_S + 3 * phases * phase_s:.0f}"
    subscriber = fabric.lab.lan("b").spawn(["ddsperf", most, "-1", "sub"], name="ddsperf-sub")
    subscriber.wait_for_line("new \\(self\\)", 10.0)
    publisher = fabric.lab.lan("a").spawn(
        ["ddsperf", most, "pub", "size", str(size)], name="ddsperf-pub"
    )
    wait_until(lambda: seconds_of(subscriber), SMOKE_S, "samples flow")
    if not options.is_quick:
        time.sleep(START_S)
    found: list[dict[Mode, Result]] = []
    for repetition in range(options.repetitions):
        # There and back, so that what a phase leaves behind meets both neighbours alike.
        order = MODES if repetition % 2 == 0 else MODES[::-1]
        found.append({mode: phase(fabric, options, mode) for mode in order})
        rates = "  ".join(f"{found[-1][mode]['rate'] / 1e6:.1f}" for mode in MODES)
        print(f"{size} B, {repetition + 1} of {options.repetitions}, MB/s: {rates}", flush=True)
    for mode in (Mode.METRICS, *timed, Mode.METRICS):
        phase(fabric, options, mode)
    if not publisher.is_running:
        raise ProcessFailed(f"the publisher ended before the last phase:\n{publisher.tail()}")
    publisher.terminate()
    code = subscriber.terminate()
    words = [line.split() for line in subscriber.lines() if " lost " in line][-1]
    lost = int(words[words.index("lost") + 1])
    if code != 0 or lost:
        raise ProcessFailed(f"{size} B: {lost} samples are lost:\n{subscriber.tail()}")
    return found


def phase(fabric: Fabric, options: Options, mode: Mode) -> Result:
    for lan in ("a", "b"):
        os.kill(fabric.edge(lan).pid, mode.signal)
    time.sleep(SETTLE_S)
    if mode is not Mode.NOTHING:
        for lan in ("a", "b"):
            fabric.ask(lan, "/metrics")
    began_s, before, used_s = time.monotonic(), _received(fabric), _cpu_s(fabric)
    time.sleep(options.seconds)
    seconds, received = time.monotonic() - began_s, _received(fabric) - before
    if not received:
        raise ProcessFailed("nothing flows; see the edges' output")
    return {"rate": received / seconds, "cpu_s": (_cpu_s(fabric) - used_s) / received}


def time_spent(fabric: Fabric) -> dict[str, Result]:
    """By mode: the share of its CPU time that the edge which spends most on it spends in calls that
    count, in calls that trace, and on writing traces. Waiting for the interpreter is counted in."""
    found: dict[str, Result] = {}
    for mode in TIMED:
        shares: dict[str, list[float]] = {name: [] for name in SPENT}
        for lan in ("a", "b"):
            lines = map(json.loads, times_of(fabric, lan).read_text().splitlines())
            rows = [line for line in lines if line["mode"] == mode.name]
            cpu_s = sum(row["cpu_s"] for row in rows)
            for name, of_edges in shares.items():
                of_edges.append(sum(row[f"{name}_s"] for row in rows) / cpu_s)
        found[mode.name.lower()] = {name: max(of_edges) for name, of_edges in shares.items()}
    return found


def _received(fabric: Fabric) -> int:
    return fabric.lab.lan("b").interface_bytes(WAN_INTERFACE)[0]


def _cpu_s(fabric: Fabric) -> float:
    found = [Usage.of(fabric.edge(lan).pid) for lan in ("a", "b")]
    return sum(usage.cpu_s for usage in found if usage is not None)


def conclude(
    options: Options,
    flows: dict[int, list[dict[Mode, Result]]],
    spent: dict[int, dict[str, Result]],
) -> Result:
    return {
        "benchmark": "overhead",
        "repetitions": options.repetitions,
        "seconds": options.seconds,
        "is_quick": options.is_quick,
        "sizes": {
            size: {
                "bytes_per_s": median(row[Mode.METRICS]["rate"] for row in rows),
                "compared": [compare(rows, mode) for mode in COMPARISONS],
                "cpu_share": spent[size],
            }
            for size, rows in flows.items()
        },
        "runs": {
            size: [{mode.name.lower(): row[mode] for mode in MODES} for row in rows]
            for size, rows in flows.items()
        },
    }


def compare(rows: list[dict[Mode, Result]], mode: Mode) -> Result:
    """Ratios are made within a repetition, whose phases follow each other closely."""
    wanted = COMPARISONS[mode]
    found: Result = {
        "name": wanted.name,
        "against": wanted.against.name.lower(),
        "most_cost": wanted.most_cost,
    }
    for key in ("rate", "cpu_s"):
        logs = [math.log(row[mode][key] / row[wanted.against][key]) for row in rows]
        error = statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.nan
        found[f"{key}_ratio"] = math.exp(statistics.fmean(logs))
        found[f"{key}_error"] = error if math.isfinite(error) else None
    return found


def show(result: Result) -> None:
    for size, found in result["sizes"].items():
        print_table(
            f"{size} B, {found['bytes_per_s'] / 1e6:.0f} MB/s; means of {result['repetitions']} "
            "ratios and their standard errors",
            ("edges with", "against", "rate", "", "edges' CPU a sample", "", "rate to reach"),
            [_line(row) for row in found["compared"]],
        )
        few, all_of_them = (found["cpu_share"][mode.name.lower()] for mode in TIMED)
        print_table(
            f"{size} B: share of its CPU time that the edge which spends most spends on it",
            ("", "while samples pass", "writing files"),
            [
                ("metrics", f"{few['counting']:.2%}", ""),
                ("traces of 1 %", f"{few['tracing']:.2%}", f"{few['writing']:.2%}"),
                (
                    "traces of 100 %",
                    f"{all_of_them['tracing']:.2%}",
                    f"{all_of_them['writing']:.2%}",
                ),
            ],
        )


def _line(row: Result) -> tuple[str, ...]:
    def error(key: str) -> str:
        value = row[f"{key}_error"]
        return "" if value is None else f"± {value:.3f}"

    return (
        row["name"],
        row["against"],
        f"{row['rate_ratio']:.3f}",
        error("rate"),
        f"{row['cpu_s_ratio']:.3f}",
        error("cpu_s"),
        "" if row["most_cost"] is None else f"> {1 - row['most_cost']:.2f}",
    )
