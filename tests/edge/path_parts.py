"""An edge with paths to another one over links that are not there, and time moved by hand: what
tests of paths share.
"""

from __future__ import annotations

from typing import Any, cast

from edge_broker.deadlines import DeadlinePolicy, DeadlineRouting
from edge_broker.links import EXPRESS, ROUTED, STANDBY, Link, Links, Way
from edge_broker.pairs import Pairs
from gateway.config import Express
from gateway.tunnel import messages
from gateway.tunnel.frames import Peer, decode
from gateway.tunnel.messages import ProbeAnswer

ME, OTHER = Peer("e-a", 1), Peer("e-b", 2)
MS = 1_000_000


class Clocks:
    """The wall clock of this machine and its monotonic one, moved by hand."""

    def __init__(self) -> None:
        self.wall_ns = 1_700_000_000_000_000_000
        self.now_s = 100.0

    def pass_ms(self, passed_ms: float) -> None:
        self.wall_ns += int(passed_ms * MS)
        self.now_s += passed_ms / 1e3

    def time_ns(self) -> int:
        return self.wall_ns

    def monotonic(self) -> float:
        return self.now_s


class FakeLink:
    """Takes frames; knows which messages they are."""

    open_descriptor = None

    def __init__(self) -> None:
        self.connects = 1
        self.frames: list[bytes] = []

    def send(self, frame: bytes) -> bool:
        self.frames.append(frame)
        return True

    def messages(self) -> list[Any]:
        return [messages.interpret(decode(frame)) for frame in self.frames]


class FakeLinks:
    """A direct link and two routers; topics may have either as their primary."""

    def __init__(self) -> None:
        self.generation = 0
        self.direct, self.r1, self.r2 = FakeLink(), FakeLink(), FakeLink()
        self.up = {EXPRESS, "r1", "r2"}
        self.primaries = {"one": ("r1", "r2"), "other": ("r2", "r1")}

    def link(self, via: str) -> Link:
        return cast(Link, {EXPRESS: self.direct, "r1": self.r1, "r2": self.r2}[via])

    def ways(self, topic: str, destination: str) -> list[Way]:
        named = [(EXPRESS, EXPRESS), *zip((ROUTED, STANDBY), self.primaries[topic], strict=True)]
        return [Way(name, via, self.link(via)) for name, via in named if via in self.up][:2]

    def all_ways(self, destination: str) -> list[Way]:
        return [Way(ROUTED, via, self.link(via)) for via in sorted(self.up)]


class World:
    """One edge's pairs."""

    def __init__(self, clocks: Clocks) -> None:
        self.clocks = clocks
        self.links = FakeLinks()
        self.pairs = Pairs(ME, cast(Links, self.links), clocks.monotonic)
        self.sent = {EXPRESS: 0, "r1": 0, "r2": 0}
        """Batches, by via."""
        self.number = 0
        """Of the last batch."""

    def routing(
        self, topic: str, mode: str = "adaptive", most_wait_s: float = 0.025
    ) -> DeadlineRouting:
        settings = {"mode": mode, "most_wait_s": most_wait_s}
        policy = DeadlinePolicy(Express.model_validate(settings))
        return DeadlineRouting(topic, 0.1, policy, self.pairs)

    def send(self, routing: DeadlineRouting) -> list[tuple[str, str]]:
        """One batch to the other edge: path names and vias it goes by."""
        now_ns, now_s = self.clocks.wall_ns, self.clocks.now_s
        edges, generation = (OTHER.edge,), self.links.generation
        plan = list(routing.plan(edges, now_ns, now_ns, now_s, generation))
        self.number += 1
        routing.sent(edges, now_ns, now_ns, now_ns, now_s, generation, self.number, 1, 64)
        vias = {id(self.links.link(via)): via for via in (EXPRESS, "r1", "r2")}
        taken = [(group.path, vias[id(group.link)]) for group in plan]
        for _, via in taken:
            self.sent[via] += 1
        return taken

    def report(self, via: str, *delays_ms: float) -> None:
        """All that was sent on it has arrived, probes too; these were the last delays."""
        if (path := self.pairs.pair(OTHER.edge).paths.get(via)) is not None:
            path.confirm_probe(self.clocks.wall_ns, self.clocks.now_s)
        delays_us = tuple(int(delay_ms * 1000) for delay_ms in delays_ms)
        told = messages.Arrivals(OTHER, self.clocks.wall_ns, self.sent[via], delays_us)
        self.pairs.on_arrivals(told, via)

    def learn(self, via: str, delay_ms: float, count: int = 600) -> None:
        """So many delays are reported for a path."""
        for _ in range(count):
            self.clocks.pass_ms(10)
            self.report(via, delay_ms)

    def set_clock(self, via: str = "r1") -> None:
        """A probe is answered by a clock that is the same."""
        now_ns = self.clocks.wall_ns
        if (path := self.pairs.pair(OTHER.edge).paths.get(via)) is not None:
            path.note_probe(now_ns - 2 * MS)
        self.pairs.on_answer(ProbeAnswer(OTHER, now_ns - 2 * MS, now_ns - MS), via)

    def row(self) -> dict[str, Any]:
        (row,) = self.pairs.summary()
        return row

    def path(self, via: str) -> dict[str, Any]:
        (path,) = [path for path in self.row()["paths"] if path["via"] == via]
        return cast(dict[str, Any], path)
