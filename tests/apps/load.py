"""A DDS publisher and subscriber that cost little themselves: raw CDR in and out, many topics in
one process. The benchmarks use the same pair with and without the gateway. Knows no ddswan.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import argparse
import ctypes
import json
import resource
import struct
import sys
import time
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from cyclonedds._clayer import ddspy_take, ddspy_write
from cyclonedds.core import InstanceState, Policy, Qos, ReadCondition, SampleState, ViewState
from cyclonedds.core import WaitSet as CycloneWaitSet
from cyclonedds.domain import DomainParticipant
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

from tests.apps.samples import Plain

HEADER = struct.Struct("<4sII")
"""Encapsulation, index, length of the octets that follow."""
LITTLE_ENDIAN = b"\x00\x01\x00\x00"
ANY_STATE = SampleState.Any | ViewState.Any | InstanceState.Any
BURST = 32
"""Samples of one topic in a row at full speed, sent as a batch."""
TAKE_MOST = 256


def main() -> int:
    command = argparse.ArgumentParser(description=__doc__)
    command.add_argument("side", choices=["pub", "sub"])
    command.add_argument("--domain", type=int, default=0)
    command.add_argument("--topic", default="Load")
    command.add_argument("--topics", type=int, default=1)
    command.add_argument("--size", type=int, default=64, help="octets of a sample")
    command.add_argument("--rate", type=float, default=0.0, help="of each topic; 0: full speed")
    command.add_argument("--seconds", type=float, default=5.0, help="of publishing")
    command.add_argument("--warm-up-s", type=float, default=1.0, help="not counted, at a rate")
    command.add_argument(
        "--deadline-ms",
        type=lambda text: [float(part) for part in text.split(",")],
        default=[0.0],
        metavar="MS[,MS]",
        help="offered or asked for, by topic in turn; 0: none",
    )
    command.add_argument("--record", type=Path, help="file for the latencies of each topic in ns")
    command.add_argument("--wait-s", type=float, default=30.0, help="for a match, and for the end")
    options = command.parse_args()
    return publish(options) if options.side == "pub" else subscribe(options)


def qos(deadline_ms: float) -> Qos:
    """As ddsperf: reliable, everything kept, bounded."""
    policies = [
        Policy.Reliability.Reliable(duration(seconds=60)),
        Policy.History.KeepAll,
        Policy.ResourceLimits(max_samples=10_000),
    ]
    if deadline_ms > 0:
        policies.append(Policy.Deadline(duration(milliseconds=deadline_ms)))
    return Qos(*policies)


def topics(options: argparse.Namespace) -> list[tuple[str, Qos]]:
    deadlines = options.deadline_ms
    return [
        (f"{options.topic}{number}", qos(deadlines[number % len(deadlines)]))
        for number in range(options.topics)
    ]


def publish(options: argparse.Namespace) -> int:
    participant = DomainParticipant(options.domain)
    library = cyclone_library()
    if options.rate == 0:
        library.dds_write_set_batch(True)
    writers = [
        DataWriter(participant, Topic(participant, name, Plain), qos=policies)
        for name, policies in topics(options)
    ]
    report(event="ready")
    end = time.monotonic() + options.wait_s
    while not all(writer.get_publication_matched_status().current_count for writer in writers):
        if time.monotonic() > end:
            report(event="unmatched")
            return 1
        time.sleep(0.005)
    references = [writer._ref for writer in writers]
    octets = bytes(max(1, options.size - HEADER.size))
    report(event="matched")
    began = time.monotonic()
    write = write_at_rate if options.rate > 0 else write_at_full_speed
    counts = write(references, octets, options, library)
    seconds = time.monotonic() - began
    for reference, count in zip(references, counts, strict=True):
        # The end of a topic: its index says how many samples came before, its octet that it ends.
        ddspy_write(reference, sample(count, b"\x01"))
        library.dds_write_flush(reference)
    for reference in references:
        library.dds_wait_for_acks(reference, int(options.wait_s * 1e9))
    report(event="done", count=sum(counts), seconds=seconds, **used())
    return 0


def write_at_rate(
    references: list[int], octets: bytes, options: argparse.Namespace, library: Any
) -> list[int]:
    """One sample after the other, evenly spaced over all topics."""
    rounds = round((options.warm_up_s + options.seconds) * options.rate)
    interval_s = 1 / (options.rate * len(references))
    due = time.monotonic()
    for index in range(rounds):
        for reference in references:
            due += interval_s
            wait_s = due - time.monotonic()
            if wait_s > 0:
                time.sleep(wait_s)
            ddspy_write(reference, sample(index, octets))
    return [rounds] * len(references)


def write_at_full_speed(
    references: list[int], octets: bytes, options: argparse.Namespace, library: Any
) -> list[int]:
    """Bursts of one topic after the other; the reader's pace is DDS's own backpressure."""
    padding = octets + bytes(-len(octets) % 4)
    size = struct.pack("<I", len(octets))
    end = time.monotonic() + options.seconds
    first = 0
    while time.monotonic() < end:
        burst = [
            LITTLE_ENDIAN + index.to_bytes(4, "little") + size + padding
            for index in range(first, first + BURST)
        ]
        for reference in references:
            for one in burst:
                ddspy_write(reference, one)
            library.dds_write_flush(reference)
        first += BURST
    return [first] * len(references)


@dataclass
class Reception:
    """What one topic has brought."""

    expected: int | None = None
    next_index: int = 0
    received: int = 0
    disorder: int = 0
    """Samples that were not the next one: each means loss, a duplicate or another order."""
    latencies_ns: list[int] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        return self.expected is not None and self.received >= self.expected


@dataclass
class Measured:
    topics: list[Reception] = field(default_factory=list)
    first_ns: int = 0
    last_ns: int = 0


def subscribe(options: argparse.Namespace) -> int:
    participant = DomainParticipant(options.domain)
    readers = [
        DataReader(participant, Topic(participant, name, Plain), qos=policies)
        for name, policies in topics(options)
    ]
    waitset = CycloneWaitSet(participant)
    conditions = [
        ReadCondition(reader, ViewState.Any | InstanceState.Any | SampleState.NotRead)
        for reader in readers
    ]
    for condition in conditions:
        waitset.attach(condition)
    report(event="ready")
    warm_up = round(options.warm_up_s * options.rate)
    measured = Measured([Reception() for _ in readers])
    pairs = [(reader._ref, got) for reader, got in zip(readers, measured.topics, strict=True)]
    end = time.monotonic() + options.wait_s + options.warm_up_s + options.seconds
    while time.monotonic() < end and not all(got.is_complete for got in measured.topics):
        waitset.wait(duration(milliseconds=100))
        for reference, got in pairs:
            take(reference, got, measured, warm_up, keeps_latency=options.rate > 0)
    if options.record is not None:
        options.record.write_text(json.dumps([got.latencies_ns for got in measured.topics]))
    return conclude(measured)


def take(
    reference: int, got: Reception, measured: Measured, warm_up: int, *, keeps_latency: bool
) -> None:
    samples = ddspy_take(reference, ANY_STATE, TAKE_MOST)
    now_ns = time.time_ns()
    for data, info in samples:
        if not info.valid_data:
            continue
        index = int.from_bytes(data[4:8], "little")
        if len(data) > 12 and data[12] == 1:
            got.expected = index
            continue
        if index != got.next_index:
            got.disorder += 1
        got.next_index = index + 1
        got.received += 1
        if keeps_latency and index >= warm_up:
            got.latencies_ns.append(now_ns - info.source_timestamp)
    if samples:
        measured.first_ns = measured.first_ns or now_ns
        measured.last_ns = now_ns


def conclude(measured: Measured) -> int:
    expected = sum(got.expected or 0 for got in measured.topics)
    received = sum(got.received for got in measured.topics)
    disorder = sum(got.disorder for got in measured.topics)
    is_whole = all(got.is_complete for got in measured.topics) and received == expected
    ordered = sorted(chain.from_iterable(got.latencies_ns for got in measured.topics))
    seconds = (measured.last_ns - measured.first_ns) / 1e9
    report(
        event="measured",
        is_whole=is_whole and disorder == 0,
        unfinished=sum(not got.is_complete for got in measured.topics),
        expected=expected,
        received=received,
        disorder=disorder,
        seconds=seconds,
        rate=received / seconds if seconds else 0.0,
        latency={
            "count": len(ordered),
            "p50_us": percentile(ordered, 0.50) / 1e3,
            "p99_us": percentile(ordered, 0.99) / 1e3,
            "max_us": percentile(ordered, 1.0) / 1e3,
        }
        if ordered
        else None,
        **used(),
    )
    return 0 if is_whole and disorder == 0 else 1


def percentile(ordered: list[int], share: float) -> int:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def sample(index: int, octets: bytes) -> bytes:
    return HEADER.pack(LITTLE_ENDIAN, index, len(octets)) + octets + bytes(-len(octets) % 4)


def cyclone_library() -> Any:
    """Cyclone's own library, for calls its Python binding leaves out."""
    from cyclonedds.__library__ import library_path

    library = ctypes.CDLL(str(library_path))
    library.dds_write_set_batch.argtypes = [ctypes.c_bool]
    library.dds_write_set_batch.restype = None
    library.dds_write_flush.argtypes = [ctypes.c_int32]
    library.dds_wait_for_acks.argtypes = [ctypes.c_int32, ctypes.c_int64]
    return library


def used() -> dict[str, float]:
    own = resource.getrusage(resource.RUSAGE_SELF)
    return {"cpu_s": own.ru_utime + own.ru_stime, "peak_rss_bytes": own.ru_maxrss * 1024}


def report(**record: Any) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
