"""One-way latency through edge, router and edge, and over a direct link, beside plain DDS in one
run: ten topics of 20 samples a second, 64 bytes, RELIABLE KEEP_ALL; once more with processors that
do not rest, and for one topic of 1000 samples a second. Run by `./dev bench latency`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import NamedTuple

from edge_broker.vigil import DEVICE
from tests.benchmarks import hops
from tests.benchmarks.measure import (
    Meter,
    Result,
    environment,
    median_usage,
    medians,
    print_table,
    print_usage,
    write_json,
)
from tests.benchmarks.options import Options
from tests.lab.fabric import Fabric
from tests.lab.namespaces import Lab
from tests.lab.process import ProcessFailed
from tests.lab.wan import Wan

TOPICS = 10
RATE_HZ = 20
FAST_HZ = 1000
"""Of one topic."""
SIZE = 64
DEADLINE_MS = 100
"""What topics for the direct link offer and ask for."""
AWAKE_DEADLINE_MS = 75
"""And those for which edges keep the processors awake."""
_KEYS = ("p50_us", "p99_us", "max_us")
_COUNT = "count"
WARM_UP_S = 2.0
QUICK_WARM_UP_S = 0.5


class Arm(NamedTuple):
    """One way samples take."""

    name: str
    from_lan: str
    to_lan: str
    options: tuple[str, ...] = ()
    p50_target: float = inf
    """Its median over plain DDS's."""
    p99_target: float = inf
    """Its 99th percentile over its own median."""
    topics: int = TOPICS
    rate_hz: int = RATE_HZ

    @property
    def is_plain(self) -> bool:
        return self.from_lan == self.to_lan


PLAIN = Arm("plain", "plain", "plain")
ROUTED = Arm("routed", "a", "b", (), 8.0, 3.0)
EXPRESS = Arm("express", "a", "b", (f"--deadline-ms={DEADLINE_MS}",), 3.0, 2.0)
AWAKE = Arm("express_awake", "a", "b", (f"--deadline-ms={AWAKE_DEADLINE_MS}",), 3.0, 2.0)
"""With processors that the edges keep awake."""
AWAKE_PLAIN = Arm("plain_awake", "plain", "plain")
"""What plain DDS takes if somebody does so for it."""
FAST_PLAIN = Arm("plain_fast", "plain", "plain", topics=1, rate_hz=FAST_HZ)
FAST_ROUTED = Arm("routed_fast", "a", "b", topics=1, rate_hz=FAST_HZ)
FAST_EXPRESS = Arm("express_fast", "a", "b", EXPRESS.options, topics=1, rate_hz=FAST_HZ)
YARDSTICKS = {
    ROUTED: PLAIN,
    EXPRESS: PLAIN,
    AWAKE: PLAIN,
    FAST_ROUTED: FAST_PLAIN,
    FAST_EXPRESS: FAST_PLAIN,
}
ARMS = (PLAIN, AWAKE_PLAIN, FAST_PLAIN, *YARDSTICKS)
SOCKETS = "sockets"
"""The hops of the express path with nothing but sockets in between."""
AWAKE_SOCKETS = "sockets_awake"
SETTINGS = {"DDSWAN_EXPRESS_AWAKE_DEADLINE_S": str(AWAKE_DEADLINE_MS / 1e3)}


def run(options: Options) -> int:
    lans = ["a", "b"]
    names = [*(arm.name for arm in ARMS), SOCKETS, AWAKE_SOCKETS]
    runs: dict[str, list[Result]] = {name: [] for name in names}
    began = environment()
    wan = Wan(direct=[("a", "b")], is_emulated=False)
    with Lab(*lans, "plain", wan=wan) as lab, Fabric(lab, lans, settings=SETTINGS) as fabric:
        for repetition in range(options.repetitions):
            # The brokers forget the topics of one arm, which takes some seconds, while they have
            # no part in the next.
            for arm in (ROUTED, PLAIN, EXPRESS):
                runs[arm.name].append(measure(fabric, options, repetition, arm))
            runs[SOCKETS].append(measure_sockets(fabric, options, 2 * repetition, SOCKETS))
            runs[AWAKE.name].append(measure(fabric, options, repetition, AWAKE))
            with processors_awake():
                runs[AWAKE_PLAIN.name].append(measure(fabric, options, repetition, AWAKE_PLAIN))
                found = measure_sockets(fabric, options, 2 * repetition + 1, AWAKE_SOCKETS)
                runs[AWAKE_SOCKETS].append(found)
            for arm in (FAST_ROUTED, FAST_PLAIN, FAST_EXPRESS):
                runs[arm.name].append(measure(fabric, options, repetition, arm))
    result = conclude(options, runs) | {"environment": began}
    show(result)
    write_json(options.json, result)
    return 0


@contextmanager
def processors_awake() -> Iterator[None]:
    """As an edge does it, for those that do not."""
    device = os.open(DEVICE, os.O_WRONLY)
    try:
        os.write(device, bytes(4))
        yield
    finally:
        os.close(device)


def measure(fabric: Fabric, options: Options, repetition: int, arm: Arm) -> Result:
    """One repetition."""
    arguments = [
        f"--topic={arm.name}{repetition}/",
        f"--topics={arm.topics}",
        f"--size={SIZE}",
        f"--rate={arm.rate_hz}",
        f"--seconds={options.seconds}",
        f"--warm-up-s={QUICK_WARM_UP_S if options.is_quick else WARM_UP_S}",
        *arm.options,
    ]
    subscriber = fabric.lab.lan(arm.to_lan).python("tests.apps.load", "sub", *arguments)
    subscriber.wait_for_line('"ready"', 20.0)
    publisher = fabric.lab.lan(arm.from_lan).python("tests.apps.load", "pub", *arguments)
    publisher.wait_for_line('"matched"', 40.0)
    applications = {"publisher": publisher, "subscriber": subscriber}
    with Meter(None if arm.is_plain else fabric, applications) as meter:
        publisher.wait_for_success(options.seconds + 30.0)
        subscriber.wait_for_success(30.0)
    measured = subscriber.records()[-1]
    if not measured["is_whole"]:
        raise ProcessFailed(f"samples were lost, repeated or reordered: {measured}")
    found: Result = measured["latency"] | {"processes": meter.used(measured["received"])}
    print(f"{arm.name}: " + ", ".join(f"{key} {found[key]:.0f}" for key in _KEYS), flush=True)
    return found


def measure_sockets(fabric: Fabric, options: Options, turn: int, name: str) -> Result:
    warm_up_s = QUICK_WARM_UP_S if options.is_quick else WARM_UP_S
    found = hops.measure(fabric, TOPICS * RATE_HZ, options.seconds, warm_up_s, turn)
    print(f"{name}: " + ", ".join(f"{key} {found[key]:.0f}" for key in _KEYS), flush=True)
    return found


def conclude(options: Options, runs: dict[str, list[Result]]) -> Result:
    arms = {name: medians(rows, (*_KEYS, _COUNT)) for name, rows in runs.items()}
    return {
        "benchmark": "latency",
        "topics": TOPICS,
        "rate_hz": RATE_HZ,
        "fast_hz": FAST_HZ,
        "size": SIZE,
        "deadline_ms": DEADLINE_MS,
        "repetitions": options.repetitions,
        "seconds": options.seconds,
        "is_quick": options.is_quick,
        "arms": arms,
        "against_targets": {
            arm.name: {
                "p50_over_plain": arms[arm.name]["p50_us"] / arms[plain.name]["p50_us"],
                "p50_over_plain_target": arm.p50_target,
                "p99_over_own_p50": arms[arm.name]["p99_us"] / arms[arm.name]["p50_us"],
                "p99_over_own_p50_target": arm.p99_target,
            }
            for arm, plain in YARDSTICKS.items()
        },
        "least": {
            name: {
                "p50_over_plain": arms[name]["p50_us"] / arms[PLAIN.name]["p50_us"],
                "p99_over_own_p50": arms[name]["p99_us"] / arms[name]["p50_us"],
            }
            for name in (SOCKETS, AWAKE_SOCKETS)
        },
        "processes": {
            arm.name: median_usage([row["processes"] for row in runs[arm.name]]) for arm in ARMS
        },
        "runs": runs,
    }


def _at_most(target: float) -> str:
    return "" if target == inf else f"< {target:g}"


def show(result: Result) -> None:
    rows = [(name, *(f"{row[key]:.0f}" for key in _KEYS)) for name, row in result["arms"].items()]
    title = (
        f"one-way latency, {TOPICS} topics of {SIZE} B at {RATE_HZ} Hz (fast: one at {FAST_HZ}), "
        "medians of runs (µs)"
    )
    print_table(title, ("", "p50", "p99", "max"), rows)
    if not result["is_quick"]:
        print_table(
            "against the targets",
            ("", "measured", "target"),
            [
                (f"{name} {words}", f"{found[key]:.1f}", _at_most(found[f"{key}_target"]))
                for name, found in result["against_targets"].items()
                for key, words in (
                    ("p50_over_plain", "p50 / plain p50"),
                    ("p99_over_own_p50", "p99 / own p50"),
                )
            ],
        )
        for name, least in result["least"].items():
            print(
                f"{name}, the hops of the express path in C: {least['p50_over_plain']:.1f} times "
                f"plain DDS, p99 {least['p99_over_own_p50']:.1f} times its own p50"
            )
    for name, usage in result["processes"].items():
        print_usage(name, usage)
