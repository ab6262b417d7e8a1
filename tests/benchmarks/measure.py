"""What every benchmark needs: where it ran, what each process used, medians, the written result.
Used by latency.py and throughput.py; measures nothing itself.
"""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.lab.fabric import Fabric
from tests.lab.namespaces import REPOSITORY
from tests.lab.process import Process, Usage

Result = dict[str, Any]
_LOOK_EVERY_S = 0.25
_PACKAGES = ("cyclonedds", "grpcio", "protobuf", "kazoo")


def environment() -> Result:
    """Enough to tell whether two results may be compared."""
    cpu = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "kernel": platform.release(),
        "cpu": cpu[1] if cpu else platform.processor(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_before": os.getloadavg()[0],
        "python": sys.version.split()[0],
        "packages": {name: _version(name) for name in _PACKAGES},
        "ddsperf": _debian_version("cyclonedds-tools"),
        "commit": _output("git", "-C", str(REPOSITORY), "describe", "--always", "--dirty"),
    }


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def medians(rows: Sequence[Result], keys: Sequence[str]) -> Result:
    return {key: median(row[key] for row in rows) for key in keys}


class Meter:
    """What processes use while a measurement runs, brokers and applications alike. An application
    ends by itself, so it is looked at now and then, and its last reading counts."""

    def __init__(self, fabric: Fabric | None, applications: dict[str, Process]) -> None:
        brokers = {} if fabric is None else fabric.brokers
        self._applications = {name: process.pid for name, process in applications.items()}
        self._pids = self._applications | {name: each.pid for name, each in brokers.items()}
        if fabric is not None:
            # The command named zookeeper only watches over the Java process.
            for pid, line in fabric.lab.pids().items():
                if "java" in line:
                    self._pids["zookeeper"] = pid
        self._before: dict[str, Usage] = {}
        self._last: dict[str, Usage] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="meter")

    def __enter__(self) -> Meter:
        self._look(self._pids, self._before)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._look(self._pids, self._last)

    def used(self, samples: int) -> dict[str, Result]:
        """By process: CPU seconds for a million samples, and the most memory it ever had."""
        return {
            name: {
                "cpu_s_per_million": (last.cpu_s - self._before[name].cpu_s) / samples * 1e6
                if samples
                else 0.0,
                "peak_rss_bytes": last.peak_rss_bytes,
            }
            for name, last in self._last.items()
        }

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_EVERY_S):
            self._look(self._applications, self._last)

    def _look(self, pids: dict[str, int], into: dict[str, Usage]) -> None:
        for name, pid in pids.items():
            usage = Usage.of(pid)
            if usage is not None:
                into[name] = usage


def median_usage(runs: Sequence[dict[str, Result]]) -> dict[str, Result]:
    names = [name for name in runs[0] if all(name in run for run in runs)]
    keys = ("cpu_s_per_million", "peak_rss_bytes")
    return {name: medians([run[name] for run in runs], keys) for name in names}


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[n]) for row in [head, *rows]) for n in range(len(head))]
    print(f"\n{title}")
    for row in [head, *rows]:
        cells = [
            cell.ljust(width) if n == 0 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  " + "  ".join(cells).rstrip())


def print_usage(title: str, usage: dict[str, Result]) -> None:
    print_table(
        title,
        ("process", "CPU s per million samples", "peak MiB"),
        [
            (name, f"{used['cpu_s_per_million']:.2f}", f"{used['peak_rss_bytes'] / 2**20:.0f}")
            for name, used in sorted(usage.items())
        ],
    )


def write_json(path: Path | None, result: Result) -> None:
    if path is not None:
        path.write_text(json.dumps(result, indent=2) + "\n")
        print(f"\nwritten to {path}")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _debian_version(package: str) -> str:
    return _output("dpkg-query", "--show", "--showformat=${Version}", package)


def _output(*argv: str) -> str:
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
