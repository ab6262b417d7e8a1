"""Traces with known answers: a small fabric whose hops, clocks and losses are chosen by a seed,
written with the real writer's layout. Used by the tests of the analysis and by its benchmark.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.model import INFINITE_NS
from gateway.observe.trace_schema import Selection, TracedBatch, TracedStream, TracePath
from gateway.observe.traces import lay_out

MS = 1_000_000
S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Way:
    """One path of a pair: medians of its hops in nanoseconds."""

    path: TracePath = TracePath.ROUTED
    router: str | None = "r1"
    to_router_ns: int = 20 * MS
    router_ns: int = 200_000
    from_router_ns: int = 20 * MS


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one topic does between two LANs."""

    topic: str = "plant/pressure"
    origin: str = "a"
    destination: str = "b"
    ways: tuple[Way, ...] = (Way(),)
    deadline_ns: int = INFINITE_NS
    share: float = 1.0
    batch_samples: int = 4
    size: int = 64
    is_reliable: bool = True
    source_lan_ns: int = 300_000
    origin_edge_ns: int = 100_000
    destination_edge_ns: int = 150_000
    clock_offset_ns: int = 0
    """Origin's clock minus destination's; known to the edge."""
    router_offset_ns: int = 0
    clock_bias_ns: int = 0
    """What the origin's clock is wrong by without anybody's knowledge."""
    loss: float = 0.0
    slow_after_s: float | None = None
    """From then on the ways take three times as long."""
    has_router_times: bool = True
    stream: int = field(default=1)


def make_batches(
    traffic: Traffic, *, batches: int, seed: int = 1, begin_ns: int, every_ns: int = 100 * MS
) -> Iterator[TracedBatch]:
    """As the destination edge would append them: every copy, winners known."""
    dice = random.Random(f"{seed}/{traffic.topic}/{traffic.origin}/{traffic.destination}")
    deadline = traffic.deadline_ns
    stream = TracedStream(
        "default",
        traffic.topic,
        traffic.origin,
        f"e-{traffic.origin}",
        2**63 + 17,
        traffic.stream,
        traffic.destination,
        f"e-{traffic.destination}",
        traffic.is_reliable,
        deadline,
    )
    stride = max(1, round(1 / traffic.share)) if traffic.share else 1000
    lost = 0
    for index in range(batches):
        first = 1 + index * stride * traffic.batch_samples
        if dice.random() < traffic.loss:
            lost += traffic.batch_samples
            continue
        true_source = begin_ns + index * every_ns
        factor = 1.0
        if traffic.slow_after_s is not None and index * every_ns >= traffic.slow_after_s * S:
            factor = 3.0
        wrong = traffic.clock_offset_ns + traffic.clock_bias_ns
        ingress = true_source + _spread(dice, traffic.source_lan_ns)
        sent = ingress + _spread(dice, traffic.origin_edge_ns)
        copies = []
        for way in traffic.ways:
            router_in = sent + round(_spread(dice, way.to_router_ns) * factor)
            router_out = router_in + _spread(dice, way.router_ns) if way.router else router_in
            egress = router_out + round(_spread(dice, way.from_router_ns) * factor)
            copies.append((egress, router_in, router_out, way))
        copies.sort(key=lambda copy: copy[0])
        for rank, (egress, router_in, router_out, way) in enumerate(copies):
            written = egress + _spread(dice, traffic.destination_edge_ns) if rank == 0 else None
            latency = (written or egress) - (true_source + traffic.clock_bias_ns)
            is_chosen = traffic.share > 0
            if not is_chosen and latency <= deadline:
                continue
            has_router = way.router is not None and traffic.has_router_times
            yield TracedBatch(
                stream=stream,
                first=first,
                samples=traffic.batch_samples,
                source_ns=array("q", [true_source + wrong] * traffic.batch_samples),
                sizes=None,
                uniform_size=traffic.size,
                batch_samples=traffic.batch_samples,
                path=way.path,
                router=way.router,
                is_winner=rank == 0,
                selection=Selection.SAMPLED if is_chosen else Selection.DEADLINE_MISS,
                share=traffic.share,
                egress_ns=egress,
                written_ns=written,
                ingress_ns=ingress + wrong,
                sent_ns=sent + wrong,
                router_in_ns=router_in + traffic.router_offset_ns if has_router else None,
                router_out_ns=router_out + traffic.router_offset_ns if has_router else None,
                clock_offset_ns=traffic.clock_offset_ns,
                clock_error_ns=50_000,
                router_clock_offset_ns=traffic.router_offset_ns if has_router else None,
                router_clock_error_ns=50_000 if has_router else None,
                copies=len(traffic.ways),
                lost_before=lost,
            )


def write_file(directory: Path, name: str, batches: Sequence[TracedBatch]) -> pa.Table:
    """One trace file, as the writer would lay it out."""
    table = lay_out(batches)
    write_table(directory / f"{name}.parquet", table)
    return table


def write_table(path: Path, table: pa.Table) -> None:
    """Parquet with the version's columns; `table` may lack or have more than today's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd")


def an_hour_ago_ns() -> int:
    """A whole minute, so that periods of tests begin where they say."""
    return (int(time.time()) // 60 - 60) * 60 * S


def with_topics(traffic: Traffic, count: int) -> list[Traffic]:
    return [replace(traffic, topic=f"{traffic.topic}/{number:04d}") for number in range(count)]


def _spread(dice: random.Random, median_ns: int) -> int:
    return round(median_ns * dice.lognormvariate(0.0, 0.25))
