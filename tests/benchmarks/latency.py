"""One-way latency through edge, router and edge, beside plain DDS in the same run: ten topics of
20 samples a second, 64 bytes, RELIABLE KEEP_ALL. Run by `./dev bench latency`.
"""

from __future__ import annotations

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

TOPICS = 10
RATE_HZ = 20
SIZE = 64
P50_TARGET = 8.0
"""The gateway's median over plain DDS's."""
P99_TARGET = 3.0
"""The gateway's 99th percentile over its own median."""
_KEYS = ("p50_us", "p99_us", "max_us")
_COUNT = "count"
WARM_UP_S = 2.0
QUICK_WARM_UP_S = 0.5


def run(options: Options) -> int:
    lans = ["a", "b"]
    plain: list[Result] = []
    through: list[Result] = []
    began = environment()
    with Lab(*lans, "plain") as lab, Fabric(lab, lans) as fabric:
        for repetition in range(options.repetitions):
            plain.append(measure(fabric, options, repetition, "plain", "plain"))
            through.append(measure(fabric, options, repetition, "a", "b"))
    result = conclude(options, plain, through) | {"environment": began}
    show(result)
    write_json(options.json, result)
    return 0


def measure(
    fabric: Fabric, options: Options, repetition: int, from_lan: str, to_lan: str
) -> Result:
    """One repetition; with the same LAN twice no gateway is involved."""
    arguments = [
        f"--topic=latency{repetition}/",
        f"--topics={TOPICS}",
        f"--size={SIZE}",
        f"--rate={RATE_HZ}",
        f"--seconds={options.seconds}",
        f"--warm-up-s={QUICK_WARM_UP_S if options.is_quick else WARM_UP_S}",
    ]
    subscriber = fabric.lab.lan(to_lan).python("tests.apps.load", "sub", *arguments)
    subscriber.wait_for_line('"ready"', 20.0)
    publisher = fabric.lab.lan(from_lan).python("tests.apps.load", "pub", *arguments)
    publisher.wait_for_line('"matched"', 40.0)
    applications = {"publisher": publisher, "subscriber": subscriber}
    is_plain = from_lan == to_lan
    with Meter(None if is_plain else fabric, applications) as meter:
        publisher.wait_for_success(options.seconds + 30.0)
        subscriber.wait_for_success(30.0)
    measured = subscriber.records()[-1]
    if not measured["is_whole"]:
        raise ProcessFailed(f"samples were lost, repeated or reordered: {measured}")
    found: Result = measured["latency"] | {"processes": meter.used(measured["received"])}
    where = "plain DDS" if is_plain else "gateway"
    print(f"{where}: " + ", ".join(f"{key} {found[key]:.0f}" for key in _KEYS), flush=True)
    return found


def conclude(options: Options, plain: list[Result], through: list[Result]) -> Result:
    direct, gateway = (medians(rows, (*_KEYS, _COUNT)) for rows in (plain, through))
    return {
        "benchmark": "latency",
        "topics": TOPICS,
        "rate_hz": RATE_HZ,
        "size": SIZE,
        "repetitions": options.repetitions,
        "seconds": options.seconds,
        "is_quick": options.is_quick,
        "plain": direct,
        "gateway": gateway,
        "p50_over_plain": gateway["p50_us"] / direct["p50_us"],
        "p99_over_own_p50": gateway["p99_us"] / gateway["p50_us"],
        "targets": {"p50_over_plain": P50_TARGET, "p99_over_own_p50": P99_TARGET},
        "processes": median_usage([row["processes"] for row in through]),
        "plain_processes": median_usage([row["processes"] for row in plain]),
        "runs": {"plain": plain, "gateway": through},
    }


def show(result: Result) -> None:
    rows = [(name, *(f"{result[name][key]:.0f}" for key in _KEYS)) for name in ("plain", "gateway")]
    title = f"one-way latency, {TOPICS} topics of {SIZE} B at {RATE_HZ} Hz, medians of runs (µs)"
    print_table(title, ("", "p50", "p99", "max"), rows)
    if not result["is_quick"]:
        print_table(
            "against the targets",
            ("", "measured", "target"),
            [
                ("gateway p50 / plain p50", f"{result['p50_over_plain']:.1f}", f"< {P50_TARGET}"),
                ("gateway p99 / own p50", f"{result['p99_over_own_p50']:.1f}", f"< {P99_TARGET}"),
            ],
        )
    print_usage("with the gateway", result["processes"])
    print_usage("plain DDS", result["plain_processes"])
