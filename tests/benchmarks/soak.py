"""Reliable topics in every mode, both ways, while links are cut, reset, slowed and made lossy, and
brokers are killed, at random by a seed: every sample has to arrive once and in order. Says nothing
of speed. Run by `./dev bench soak`; each repetition has its own seed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.benchmarks.measure import Result, environment, write_json
from tests.benchmarks.options import Options
from tests.lab.fabric import Fabric
from tests.lab.namespaces import Lab
from tests.lab.process import Process, ProcessFailed
from tests.lab.wan import CLOUD, Wan
from tests.lab.wan_model import Impairments

LANS = ("a", "b")
DEADLINE_MS = 200
KINDS = {
    "routed": (),
    "adaptive": (f"--deadline-ms={DEADLINE_MS}",),
    "single": (f"--deadline-ms={DEADLINE_MS}",),
    "duplicate": (f"--deadline-ms={DEADLINE_MS}",),
}
"""By the first part of a topic's name: what its applications are started with."""
TOPICS = 3
RATES_HZ = (15, 40, 120)
"""Of each topic of a kind, drawn for each kind and direction."""
USUAL = Impairments(delay_ms=8.0)
SETTINGS = {
    "DDSWAN_ZOOKEEPER_SESSION_TIMEOUT_S": "4",
    "DDSWAN_EXPRESS_MODES": ",".join(f"{kind}*={kind}" for kind in KINDS if kind != "routed"),
}
PAUSE_S = (0.3, 2.0)
"""Between one fault and the next; several may last at the same time."""
PATIENCE_S = 60.0
"""For what was written to arrive when all is well again."""
_CONNECTIONS = "( sport = :7500 or dport = :7500 or sport >= :7600 or dport = :7447 )"


def run(options: Options) -> int:
    result: Result = {"benchmark": "soak", "environment": environment(), "runs": []}
    for seed in range(options.repetitions):
        result["runs"].append(soak(seed, options.seconds))
    write_json(options.json, result)
    return 0


def soak(seed: int, seconds: float) -> Result:
    """Fails when anything is lost, comes twice or out of order."""
    wan = Wan(direct=[LANS], seed=seed)
    with (
        Lab(*LANS, wan=wan) as lab,
        Fabric(lab, list(LANS), routers=2, settings=SETTINGS) as fabric,
    ):
        faults = Faults(fabric, seed)
        faults.heal()
        chance = random.Random(seed)
        flows = [
            Flow(fabric, kind, lans, seconds, chance.choice(RATES_HZ))
            for kind in KINDS
            for lans in (LANS, LANS[::-1])
        ]
        for flow in flows:
            flow.publisher.wait_for_line('"matched"', PATIENCE_S)
        counts = faults.happen(seconds)
        faults.heal()
        received = sum(flow.received() for flow in flows)
        fabric.check_running()
    print(
        f"seed {seed}: {received:,} samples, each once and in order, through {counts}", flush=True
    )
    return {"seed": seed, "samples": received, "faults": counts}


class Flow:
    """Topics of one kind from one LAN to the other."""

    def __init__(
        self, fabric: Fabric, kind: str, lans: tuple[str, ...], seconds: float, rate_hz: int
    ) -> None:
        self.name = f"{kind} {lans[0]} to {lans[1]}, {rate_hz} Hz"
        sides = []
        for side, lan in zip(("sub", "pub"), reversed(lans), strict=True):
            process = fabric.lab.lan(lan).python(
                "tests.apps.load",
                side,
                f"--topic={kind}/{lans[0]}/",
                f"--topics={TOPICS}",
                f"--rate={rate_hz}",
                f"--seconds={seconds}",
                "--warm-up-s=0",
                f"--wait-s={2 * PATIENCE_S}",
                *KINDS[kind],
                name=f"{side}-{kind}-{lans[0]}",
            )
            process.wait_for_line('"ready"', 30.0)
            sides.append(process)
        self.subscriber: Process = sides[0]
        self.publisher: Process = sides[1]

    def received(self) -> int:
        self.publisher.wait_for_success(2 * PATIENCE_S)
        self.subscriber.wait(2 * PATIENCE_S)
        measured = self.subscriber.records()[-1]
        if not measured.get("is_whole"):
            raise ProcessFailed(f"{self.name}: lost, repeated or reordered samples: {measured}")
        return int(measured["received"])


class Faults:
    """What befalls a fabric."""

    def __init__(self, fabric: Fabric, seed: int) -> None:
        self._fabric = fabric
        self._chance = random.Random(seed)
        self._links = [LANS, *((lan, CLOUD) for lan in LANS)]
        self._ends: list[tuple[float, Callable[[], object]]] = []
        """When each that lasts is over, and how."""

    def happen(self, seconds: float) -> dict[str, int]:
        """Faults until then; how many of each kind."""
        counts: dict[str, int] = {}
        end_s = time.monotonic() + seconds
        kinds = (self._cut, self._lose, self._slow, self._reset, self._kill_router, self._kill_tree)
        weights = (4, 4, 4, 4, 1, 1)
        while time.monotonic() < end_s:
            (kind,) = self._chance.choices(kinds, weights)
            kind()
            name = kind.__name__.strip("_").replace("_", " ")
            counts[name] = counts.get(name, 0) + 1
            time.sleep(self._chance.uniform(*PAUSE_S))
            self._end_what_is_over(time.monotonic())
        self._end_what_is_over(float("inf"))
        return counts

    def heal(self) -> None:
        for link in self._links:
            self._fabric.lab.wan[link].apply(USUAL)

    def _end_what_is_over(self, now_s: float) -> None:
        over = [end for due_s, end in self._ends if due_s <= now_s]
        self._ends = [each for each in self._ends if each[0] > now_s]
        for end in over:
            end()

    def _for_a_while(self, end: Callable[[], object]) -> None:
        self._ends.append((time.monotonic() + self._chance.uniform(0.3, 4.0), end))

    def _trouble(self, **trouble: Any) -> None:
        link = self._fabric.lab.wan[self._chance.choice(self._links)]
        link.apply(replace(USUAL, **trouble))
        self._for_a_while(lambda: link.apply(USUAL))

    def _cut(self) -> None:
        self._trouble(cut=True)

    def _lose(self) -> None:
        self._trouble(loss=self._chance.uniform(0.005, 0.1))

    def _slow(self) -> None:
        delay_ms, jitter_ms = self._chance.uniform(20.0, 400.0), self._chance.uniform(0.0, 20.0)
        self._trouble(delay_ms=delay_ms, jitter_ms=jitter_ms)

    def _reset(self) -> None:
        lan = self._fabric.lab.lan(self._chance.choice(LANS))
        lan.run(["ss", "-K", "state", "established", _CONNECTIONS])

    def _kill_router(self) -> None:
        router = self._chance.choice(["r1", "r2"])
        if self._fabric.brokers[router].is_running:
            self._fabric.brokers[router].kill()
            self._for_a_while(lambda: self._fabric.start_router(router))

    def _kill_tree(self) -> None:
        self._fabric.brokers["zookeeper"].kill()
        self._fabric.start_zookeeper()
