"""The paper's experiment on topics with strict deadlines: eight combinations of good and bad links
(its Table 1), by single paths, by both and adaptively, side by side. Run by `./dev bench deadline`;
what the numbers say is judged and shown in deadline_report.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.deadline_report import conclude, show, write_plot
from tests.benchmarks.measure import Result, environment, write_json
from tests.benchmarks.options import Options
from tests.lab.fabric import EDGE_METRICS, Fabric
from tests.lab.namespaces import Lab
from tests.lab.process import Process, ProcessFailed
from tests.lab.wan import CLOUD, Wan
from tests.lab.wan_model import Counters, Impairments

LINKS = {"A": Impairments(delay_ms=30.0), "B": Impairments(delay_ms=250.0, loss=0.01)}
"""In each direction; losses are of single packets, independent."""
CASES = {
    1: "AAA",
    2: "AAB",
    3: "ABA",
    4: "ABB",
    5: "BAA",
    6: "BAB",
    7: "BBA",
    8: "BBB",
}
"""Table 1: the publisher's uplink, the subscriber's uplink, the direct link."""
DEADLINES_MS = (50, 100, 300, 600)
"""Offered and asked for, each by one topic."""
RATE_HZ = 50
"""Of each topic."""
SIZE = 64
WARM_UP_S = 10.0
"""Paths are learned in the first seconds: some 500 delays for a target of 0.1 %."""
QUICK_WARM_UP_S = 1.0
LOOKED_AT_SHARE = 0.75
QUICK_LOOKED_AT_SHARE = 0.25
"""Of the measured time: when edges are asked for their reasons. In a smoke test they may take most
of it to answer."""
_QUICK_CASES = (3,)
TCP_CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to use the paths, with two LANs of its own."""

    name: str
    mode: str
    has_direct: bool = True

    @property
    def lans(self) -> tuple[str, str]:
        """The publisher's and the subscriber's."""
        return f"{self.name}-from", f"{self.name}-to"

    @property
    def links(self) -> dict[str, tuple[str, str]]:
        """L1, L2 and L3 of Table 1 by their ends."""
        publisher, subscriber = self.lans
        routed = {"L1": (publisher, CLOUD), "L2": (CLOUD, subscriber)}
        return routed | ({"L3": (publisher, subscriber)} if self.has_direct else {})


ARMS = (
    Arm("routed", "single", has_direct=False),
    Arm("direct", "single"),
    Arm("duplicate", "duplicate"),
    Arm("adaptive", "adaptive"),
)


def run(options: Options) -> int:
    cases = options.cases or (_QUICK_CASES if options.is_quick else tuple(CASES))
    began = environment()
    measured: list[Result] = []
    for case in cases:
        rows = [measure(options, case, repetition) for repetition in range(options.repetitions)]
        measured.append({"case": case, "links": CASES[case], "runs": rows})
    about = {
        "benchmark": "deadline",
        "links": {
            kind: {"delay_ms": link.delay_ms, "loss": link.loss} for kind, link in LINKS.items()
        },
        "deadlines_ms": DEADLINES_MS,
        "rate_hz": RATE_HZ,
        "size": SIZE,
        "seconds": options.seconds,
        "repetitions": options.repetitions,
        "is_quick": options.is_quick,
        "environment": began | {"tcp_congestion_control": TCP_CONGESTION.read_text().strip()},
    }
    result = about | conclude(measured, DEADLINES_MS)
    show(result)
    write_json(options.json, result)
    if options.json is not None:
        write_plot(options.json.with_suffix(".svg"), result)
    return 0


def measure(options: Options, case: int, repetition: int) -> dict[str, Result]:
    """All arms at the same time, so that a disturbance of the machine meets all of them."""
    with fabric_of(case, repetition) as fabric:
        subscribers = [start(fabric, arm, options, "sub") for arm in ARMS]
        for subscriber in subscribers:
            subscriber.wait_for_line('"ready"', 30.0)
        for arm in ARMS:
            status(fabric, arm)  # the first time takes longer than a smoke test lasts
        publishers = [start(fabric, arm, options, "pub") for arm in ARMS]
        with ThreadPoolExecutor(len(ARMS)) as pool:
            found = pool.map(
                lambda arm, publisher, subscriber: follow(
                    fabric, options, arm, publisher, subscriber
                ),
                *(ARMS, publishers, subscribers),
            )
            rows = {arm.name: row for arm, row in zip(ARMS, found, strict=True)}
        fabric.check_running()
    print(f"case {case} ({CASES[case]}), run {repetition + 1}: measured", flush=True)
    return rows


@contextmanager
def fabric_of(case: int, repetition: int) -> Iterator[Fabric]:
    """One ZooKeeper and one router for all arms, and the links of this case."""
    lans = [lan for arm in ARMS for lan in arm.lans]
    direct = [arm.lans for arm in ARMS if arm.has_direct]
    settings = {
        **EDGE_METRICS,
        "DDSWAN_EXPRESS_MODES": ",".join(f"{arm.name}*={arm.mode}" for arm in ARMS),
    }
    fates = {
        made: name
        for arm in ARMS
        for name, ends in arm.links.items()
        for made in (ends, ends[::-1])
    }
    wan = Wan(direct=direct, seed=100 * repetition + case, fates=fates)
    with Lab(*lans, wan=wan) as lab, Fabric(lab, lans, settings=settings) as fabric:
        for arm in ARMS:
            for kind, ends in zip(CASES[case], arm.links.values(), strict=False):
                lab.wan[ends].apply(LINKS[kind])
        yield fabric


def start(fabric: Fabric, arm: Arm, options: Options, side: str) -> Process:
    lan = arm.lans[0 if side == "pub" else 1]
    return fabric.lab.lan(lan).python(
        "tests.apps.load",
        side,
        f"--topic={arm.name}",
        f"--topics={len(DEADLINES_MS)}",
        f"--deadline-ms={','.join(map(str, DEADLINES_MS))}",
        f"--size={SIZE}",
        f"--rate={RATE_HZ}",
        f"--seconds={options.seconds}",
        f"--warm-up-s={warm_up_s(options)}",
        "--wait-s=60",
        *([f"--record={record_of(fabric, arm)}"] if side == "sub" else []),
        name=f"{side}-{arm.name}",
    )


def follow(
    fabric: Fabric, options: Options, arm: Arm, publisher: Process, subscriber: Process
) -> Result:
    """What one arm does from its first sample to its last."""
    publisher.wait_for_line('"matched"', 60.0)
    time.sleep(warm_up_s(options))
    began = time.monotonic()
    before = count(fabric, arm)
    # Asked while samples still flow: streams, and with them the reasons, end with their writers.
    share = QUICK_LOOKED_AT_SHARE if options.is_quick else LOOKED_AT_SHARE
    time.sleep(share * options.seconds)
    looked = status(fabric, arm)
    # What is still on its way then is made up for by what was on its way when this began.
    time.sleep(max(0.0, began + options.seconds - time.monotonic()))
    after = count(fabric, arm)
    publisher.wait_for_success(60.0)
    subscriber.wait_for_success(60.0)
    measured = subscriber.records()[-1]
    if not measured["is_whole"]:
        raise ProcessFailed(f"samples were lost, repeated or reordered: {measured}")
    wire = {name: after[name] - before[name] for name in after}
    overrun = sum(counters.overrun for counters in after.values())
    if overrun:
        raise ProcessFailed(
            f"the emulator was too slow for {overrun} packets: this run says nothing; repeat it "
            "on a quiet machine"
        )
    return {
        "latencies_ns": json.loads(record_of(fabric, arm).read_text()),
        "bytes": {name: counters.bytes for name, counters in wire.items()},
        "packets": {name: counters.packets for name, counters in wire.items()},
        "lost_packets": {name: counters.lost for name, counters in wire.items()},
        **looked,
    }


def count(fabric: Fabric, arm: Arm) -> dict[str, Counters]:
    """What was put onto each link so far, both directions together."""
    return {name: fabric.lab.wan[ends].counters().total for name, ends in arm.links.items()}


def status(fabric: Fabric, arm: Arm) -> dict[str, Any]:
    """What the publisher's edge says of its paths and why it chose as it did."""
    found = fabric.edge_status(arm.lans[0])
    return {
        "pairs": found["pairs"],
        "choices": {
            outflow["topic"]: outflow["deadline"]
            for outflow in sorted(found["outflows"], key=lambda each: str(each["topic"]))
            if outflow["deadline"]
        },
    }


def record_of(fabric: Fabric, arm: Arm) -> Path:
    return fabric.lab.directory / f"latencies-{arm.name}.json"


def warm_up_s(options: Options) -> float:
    return QUICK_WARM_UP_S if options.is_quick else WARM_UP_S
