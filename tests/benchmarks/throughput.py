"""The highest rate without loss through edge, router and edge, beside plain DDS in the same run:
ddsperf on both ends, and one topic against 32. Run by `./dev bench throughput`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.benchmarks.measure import (
    Meter,
    Result,
    environment,
    median,
    median_usage,
    print_table,
    print_usage,
    write_json,
)
from tests.benchmarks.options import Options
from tests.lab.fabric import Fabric
from tests.lab.namespaces import Lab
from tests.lab.process import Process, ProcessFailed, wait_until

TARGETS = {64: 0.40, 1024: 0.25, 16 * 1024: 0.20, 64 * 1024: 0.20}
"""Share of plain DDS's rate to reach, by size in bytes."""
MANY = 32
MANY_TARGET = 0.8
"""What 32 topics carry together, over what one carries."""
START_S = 3.0
"""Granted for discovery and the first second, not counted."""
SMOKE_S = 60.0
"""A smoke test ends as soon as there is a rate; this is the most it may take."""
_FEWER = 0.7
_TRIES = 6
_LOAD_ENVIRONMENT = {
    # 32 writers of the default high-water mark (500 kB) together overrun a socket buffer of the
    # reader; losing and repeating packets is not what is measured here.
    "CYCLONEDDS_URI": "<Internal><Watermarks><WhcHigh>100kB</WhcHigh></Watermarks></Internal>"
}


@dataclass(frozen=True, slots=True)
class Way:
    """From one LAN to another, or inside one without the gateway."""

    name: str
    from_lan: str
    to_lan: str

    @property
    def is_plain(self) -> bool:
        return self.from_lan == self.to_lan


PLAIN = Way("plain", "plain", "plain")
GATEWAY = Way("gateway", "a", "b")


def run(options: Options) -> int:
    lans = ["a", "b"]
    began = environment()
    sizes = list(TARGETS)[:1] if options.is_quick else list(TARGETS)
    by_size: dict[int, dict[str, list[Result]]] = {}
    many: dict[str, list[Result]] = {}
    with Lab(*lans, PLAIN.from_lan) as lab, Fabric(lab, lans) as fabric:
        for size in sizes:
            runs = by_size.setdefault(size, {})
            for _ in range(options.repetitions):
                for way in (PLAIN, GATEWAY):
                    found = highest_rate(fabric, options, way, size)
                    runs.setdefault(way.name, []).append(found)
                    print(f"{size} B, {way.name}: {found['rate']:,.0f}/s", flush=True)
        for repetition in range(options.repetitions):
            for way in (PLAIN, GATEWAY):
                for topics in (1, MANY):
                    found = load(fabric, options, way, topics, repetition)
                    many.setdefault(f"{way.name} {topics}", []).append(found)
                    print(f"{topics} topics, {way.name}: {found['rate']:,.0f}/s", flush=True)
    result = conclude(options, by_size, many) | {"environment": began}
    show(result)
    write_json(options.json, result)
    return 0


def highest_rate(fabric: Fabric, options: Options, way: Way, size: int) -> Result:
    """Full speed, as a reliable writer is slowed to what its readers take. Should samples be lost
    all the same, the highest of ever lower rates without loss."""
    found = ddsperf(fabric, options, way, size, None)
    for _ in range(_TRIES):
        if found["lost"] == 0:
            return found
        if options.is_quick:
            break
        found = ddsperf(fabric, options, way, size, found["rate"] * _FEWER)
    raise ProcessFailed(f"{way.name}, {size} B: samples are lost at any rate: {found}")


def ddsperf(fabric: Fabric, options: Options, way: Way, size: int, rate_hz: float | None) -> Result:
    lasts_s = SMOKE_S if options.is_quick else START_S + options.seconds
    at = [] if rate_hz is None else [f"{rate_hz:.0f}Hz"]
    subscriber = fabric.lab.lan(way.to_lan).spawn(
        ["ddsperf", f"-D{lasts_s + 4:g}", "-1", "sub"], name="ddsperf-sub"
    )
    subscriber.wait_for_line("new \\(self\\)", 10.0)
    subscriber_started = time.monotonic()
    publisher = fabric.lab.lan(way.from_lan).spawn(
        ["ddsperf", f"-D{lasts_s:g}", "pub", *at, "size", str(size)], name="ddsperf-pub"
    )
    until = time.monotonic() - subscriber_started + lasts_s
    applications = {"publisher": publisher, "subscriber": subscriber}
    with Meter(None if way.is_plain else fabric, applications) as meter:
        if options.is_quick:
            wait_until(lambda: len(seconds_of(subscriber)) > 1, SMOKE_S, "there is a rate")
            publisher.terminate()
            subscriber.terminate()
        publisher.wait_for_success(lasts_s + 20.0)
        code = subscriber.wait(30.0)
    return reception(subscriber, code, until, options) | {
        "processes": meter.used(total_of(subscriber))
    }


def reception(subscriber: Process, code: int, until: float, options: Options) -> Result:
    """The sustained rate: from a second and a half after the first sample to the publisher's end.
    A buffer that fills at the start and drains at the end is outside. A smoke test takes what
    there is."""
    rows = [
        (float(words[1]), int(words[words.index("total") + 1]), int(words[words.index("lost") + 1]))
        for words in (line.split() for line in subscriber.lines())
        if "total" in words
    ]
    first = next((moment for moment, total, _ in rows if total > 0), float("inf"))
    window = [row for row in rows if first + 0.5 <= row[0] <= until]
    if len(window) < 2 and options.is_quick:
        window = rows
    if len(window) < 2:
        raise ProcessFailed(
            f"too few seconds with samples; is the machine busy?\n{subscriber.tail()}"
        )
    seconds = window[-1][0] - window[0][0]
    lost = rows[-1][2]
    if code != 0 and lost == 0:
        raise ProcessFailed(f"ddsperf ended with {code}:\n{subscriber.tail()}")
    return {"rate": (window[-1][1] - window[0][1]) / seconds, "seconds": seconds, "lost": lost}


def total_of(subscriber: Process) -> int:
    return seconds_of(subscriber)[-1]


def seconds_of(subscriber: Process) -> list[int]:
    """How many samples had come at the end of each second since they come."""
    rows = [line.split() for line in subscriber.lines() if " total " in line]
    totals = [int(words[words.index("total") + 1]) for words in rows]
    return [total for total in totals if total]


def load(fabric: Fabric, options: Options, way: Way, topics: int, repetition: int) -> Result:
    """What so many topics carry together, 64 bytes a sample."""
    arguments = [
        f"--topic=load{repetition}.{topics}/",
        f"--topics={topics}",
        "--size=64",
        f"--seconds={options.seconds}",
    ]
    subscriber = fabric.lab.lan(way.to_lan).python(
        "tests.apps.load", "sub", *arguments, env=_LOAD_ENVIRONMENT
    )
    subscriber.wait_for_line('"ready"', 20.0)
    publisher = fabric.lab.lan(way.from_lan).python(
        "tests.apps.load", "pub", *arguments, env=_LOAD_ENVIRONMENT
    )
    publisher.wait_for_line('"matched"', 40.0)
    publisher.wait_for_success(options.seconds + 60.0)
    subscriber.wait_for_success(30.0)
    measured = subscriber.records()[-1]
    if not measured["is_whole"]:
        raise ProcessFailed(f"samples were lost, repeated or reordered: {measured}")
    return {"rate": measured["rate"], "received": measured["received"]}


def conclude(
    options: Options, by_size: dict[int, dict[str, list[Result]]], many: dict[str, list[Result]]
) -> Result:
    sizes = {}
    for size, runs in by_size.items():
        plain = median(row["rate"] for row in runs["plain"])
        gateway = median(row["rate"] for row in runs["gateway"])
        sizes[size] = {
            "plain_per_s": plain,
            "gateway_per_s": gateway,
            "share": gateway / plain,
            "target": TARGETS[size],
            "processes": median_usage([row["processes"] for row in runs["gateway"]]),
            "plain_processes": median_usage([row["processes"] for row in runs["plain"]]),
        }
    rates = {name: median(row["rate"] for row in rows) for name, rows in many.items()}
    return {
        "benchmark": "throughput",
        "repetitions": options.repetitions,
        "seconds": options.seconds,
        "is_quick": options.is_quick,
        "sizes": sizes,
        "many_topics": {
            "topics": MANY,
            "size": 64,
            "per_s": rates,
            "gateway_ratio": rates[f"gateway {MANY}"] / rates["gateway 1"],
            "plain_ratio": rates[f"plain {MANY}"] / rates["plain 1"],
            "target": MANY_TARGET,
        },
        "runs": {"sizes": by_size, "many_topics": many},
    }


def show(result: Result) -> None:
    judged = not result["is_quick"]
    print_table(
        "samples per second without loss, ddsperf on both ends, medians of runs",
        ("size", "plain DDS", "gateway", "share", "target"),
        [
            (
                f"{size} B",
                f"{row['plain_per_s']:,.0f}",
                f"{row['gateway_per_s']:,.0f}",
                f"{row['share']:.2f}" if judged else "-",
                f"≥ {row['target']:.2f}",
            )
            for size, row in result["sizes"].items()
        ],
    )
    many = result["many_topics"]
    print_table(
        f"one topic against {MANY}, 64 B, samples per second in all",
        ("", "1 topic", f"{MANY} topics", "ratio", "target"),
        [
            (
                name,
                f"{many['per_s'][f'{name} 1']:,.0f}",
                f"{many['per_s'][f'{name} {MANY}']:,.0f}",
                f"{many[f'{name}_ratio']:.2f}" if judged else "-",
                f"≥ {MANY_TARGET}" if name == "gateway" else "",
            )
            for name in ("plain", "gateway")
        ],
    )
    for size, row in result["sizes"].items():
        print_usage(f"{size} B, with the gateway", row["processes"])
        print_usage(f"{size} B, plain DDS", row["plain_processes"])
