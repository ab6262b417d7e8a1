"""What being watched costs: the same throughput without metrics, with them, and with traces, as
ratios within one run. Run by `./dev bench overhead`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.measure import Meter, Result, environment, median, print_table, write_json
from tests.benchmarks.options import Options
from tests.benchmarks.throughput import reception, total_of
from tests.lab.fabric import EDGE_METRICS, Fabric, edge_of
from tests.lab.namespaces import Lab
from tests.lab.process import Process, ProcessFailed

SIZES = (64, 1024)
START_S = 3.0
"""Granted for discovery and the first second, not counted."""
_SCRAPE_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Variant:
    """Edges of a pair of LANs of their own, which differ in nothing else."""

    name: str
    against: str | None
    """The variant its costs are told by; None: it is the yardstick."""
    most_cost: float | None
    """The share of the rate it may cost."""
    module: str = "gateway.cli"
    trace_share: float | None = None

    @property
    def is_counted(self) -> bool:
        return self.module == "gateway.cli"


NOTHING, METRICS = "nothing", "metrics"
VARIANTS = (
    Variant(NOTHING, None, None, module="tests.benchmarks.uncounted"),
    Variant(METRICS, NOTHING, 0.02),
    Variant("traces 1 %", METRICS, 0.03, trace_share=0.01),
    Variant("traces 100 %", METRICS, None, trace_share=1.0),
)
_BY_LAN = {
    f"{side}{number}": variant for number, variant in enumerate(VARIANTS) for side in ("a", "b")
}


class _Watched(Fabric):
    """One router for all variants, two edges for each."""

    def _ddswan(self, id: str, *arguments: str, lan: str = "") -> Process:
        variant = _BY_LAN.get(lan)
        if variant is None:
            return super()._ddswan(id, *arguments)
        settings = dict(EDGE_METRICS)
        if variant.trace_share is not None:
            settings["DDSWAN_TRACE_DIRECTORY"] = str(self.lab.directory / "traces" / lan)
            settings["DDSWAN_TRACE_SHARE"] = str(variant.trace_share)
        process = self.lab.lan(lan).python(variant.module, *arguments, name=id, env=settings)
        self.brokers[id] = process
        return process


def run(options: Options) -> int:
    began = environment()
    sizes = SIZES[:1] if options.is_quick else options.sizes or SIZES
    runs: dict[int, list[dict[str, Result]]] = {size: [] for size in sizes}
    variants = VARIANTS[:2] if options.is_quick else VARIANTS
    lans = [lan for lan, variant in _BY_LAN.items() if variant in variants]
    with Lab(*lans) as lab, _Watched(lab, lans) as fabric:
        for size in sizes:
            for repetition in range(options.repetitions):
                # Each begins once in every place, so that what a run leaves behind meets all.
                turn = repetition % len(variants)
                found = {}
                for variant in (*variants[turn:], *variants[:turn]):
                    found[variant.name] = measure(fabric, options, variant, size)
                    rate = found[variant.name]["rate"]
                    print(f"{size} B, {variant.name}: {rate:,.0f}/s", flush=True)
                runs[size].append(found)
    result = conclude(options, runs) | {"environment": began}
    show(result)
    write_json(options.json, result)
    return 0


def measure(fabric: Fabric, options: Options, variant: Variant, size: int) -> Result:
    """ddsperf at full speed, which a reliable writer is slowed from to what its reader takes."""
    lan_a, lan_b = (lan for lan, each in _BY_LAN.items() if each is variant)
    lasts_s = START_S + options.seconds
    subscriber = fabric.lab.lan(lan_b).spawn(
        ["ddsperf", f"-D{lasts_s + 3:g}", "-1", "sub"], name="ddsperf-sub"
    )
    subscriber.wait_for_line("new \\(self\\)", 10.0)
    started = time.monotonic()
    publisher = fabric.lab.lan(lan_a).spawn(
        ["ddsperf", f"-D{lasts_s:g}", "pub", "size", str(size)], name="ddsperf-pub"
    )
    until = time.monotonic() - started + lasts_s
    scraped = (lan_a, lan_b) if variant.is_counted else ()
    with _scraping(fabric, scraped), Meter(fabric, {}) as meter:
        publisher.wait_for_success(lasts_s + 20.0)
        code = subscriber.wait(30.0)
    found = reception(subscriber, code, until, options)
    if found["lost"]:
        raise ProcessFailed(f"{variant.name}, {size} B: {found['lost']} samples are lost")
    used = meter.used(total_of(subscriber))
    return {
        "rate": found["rate"],
        "cpu_s_per_million": sum(used[edge_of(lan)]["cpu_s_per_million"] for lan in (lan_a, lan_b)),
    }


@contextmanager
def _scraping(fabric: Fabric, lans: tuple[str, ...]) -> Iterator[None]:
    """More often than any Prometheus would."""
    ended = threading.Event()

    def scrape() -> None:
        while not ended.wait(_SCRAPE_EVERY_S):
            for lan in lans:
                fabric.ask(lan, "/metrics")

    thread = threading.Thread(target=scrape, name="scraper")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def conclude(options: Options, runs: dict[int, list[dict[str, Result]]]) -> dict[str, Any]:
    """Ratios are made within a repetition, whose variants follow each other closely."""
    sizes: dict[int, dict[str, Result]] = {}
    for size, repetitions in runs.items():
        rows = sizes[size] = {}
        for variant in VARIANTS:
            if variant.name not in repetitions[0]:
                continue  # a smoke test
            own = [found[variant.name] for found in repetitions]
            row: Result = {
                key: median(one[key] for one in own) for key in ("rate", "cpu_s_per_million")
            }
            if variant.against is not None:
                base = [found[variant.against] for found in repetitions]
                for key in ("rate", "cpu_s_per_million"):
                    ratios = [a[key] / b[key] for a, b in zip(own, base, strict=True) if b[key]]
                    row[f"{key}_ratios"] = ratios
                    row[f"{key}_ratio"] = median(ratios)
            rows[variant.name] = row | {"against": variant.against, "most_cost": variant.most_cost}
    return {
        "benchmark": "overhead",
        "repetitions": options.repetitions,
        "seconds": options.seconds,
        "is_quick": options.is_quick,
        "sizes": sizes,
        "runs": runs,
    }


def show(result: Result) -> None:
    for size, rows in result["sizes"].items():
        print_table(
            f"{size} B, medians of {result['repetitions']}; ratios are made within a repetition "
            "(in brackets the lowest and the highest)",
            ("edges with", "samples/s", "rate", "", "edges' CPU s/million", "ratio", "to reach"),
            [_line(name, row) for name, row in rows.items()],
        )


def _line(name: str, row: Result) -> tuple[str, ...]:
    rate, cpu = f"{row['rate']:,.0f}", f"{row['cpu_s_per_million']:.2f}"
    if row["against"] is None:
        return name, rate, "", "", cpu, "", ""
    ratios = row["rate_ratios"]
    return (
        f"{name} (against {row['against']})",
        rate,
        f"{row['rate_ratio']:.3f}",
        f"({min(ratios):.2f} to {max(ratios):.2f})",
        cpu,
        f"{row['cpu_s_per_million_ratio']:.3f}",
        "" if row["most_cost"] is None else f"> {1 - row['most_cost']:.2f}",
    )
