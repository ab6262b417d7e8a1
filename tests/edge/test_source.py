"""A reader source goes over to readers for larger samples while its writers write on: nothing is
lost, nothing comes twice, each writer's order stays.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from cyclonedds.core import Policy
from cyclonedds.core import Qos as CycloneQos
from cyclonedds.domain import DomainParticipant
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic

from edge_broker.dds import native
from edge_broker.dds.domain import Port
from edge_broker.lifecycle import WRITE_DISPOSE
from edge_broker.source import ReaderSource
from tests.edge.parts import PATIENCE_S, RELIABLE, Keyed, Plain, until

pytestmark = pytest.mark.dds

WRITER = CycloneQos(RELIABLE, Policy.History.KeepAll, Policy.WriterDataLifecycle(autodispose=False))


class Readers:
    """Opens and closes readers as ingress does, and counts them."""

    def __init__(
        self, participant: DomainParticipant, name: str, type_: type[Any], *, durable: bool = False
    ) -> None:
        self._participant = participant
        self._topic: Topic[Any] = Topic(participant, name, type_)
        self._durable = durable
        self._open: dict[int, DataReader[Any]] = {}
        self.on_open: Callable[[], None] = lambda: None
        """Called when a reader is there and its predecessor still is."""
        self.rooms: list[int] = []

    def open(self, most_samples: int, with_history: bool) -> Port:
        durability = (
            Policy.Durability.TransientLocal
            if self._durable and with_history
            else Policy.Durability.Volatile
        )
        qos = CycloneQos(
            RELIABLE,
            durability,
            Policy.History.KeepAll,
            Policy.ResourceLimits(max_samples=most_samples),
        )
        reader: DataReader[Any] = DataReader(self._participant, self._topic, qos=qos)
        self.rooms.append(most_samples)
        self._open[reader._ref] = reader
        self.on_open()
        return Port(reader._ref, reader._ref, self._topic._ref, ("", "", None))

    def close(self, port: Port) -> None:
        native.delete(port.ref)
        del self._open[port.ref]

    @property
    def count(self) -> int:
        return len(self._open)


@contextmanager
def source_of(
    readers: Readers, *, most_samples: int = 4096, most_bytes: int = 1 << 20
) -> Iterator[ReaderSource]:
    source = ReaderSource(
        readers.open,
        readers.close,
        lambda handle: True,
        most_samples=most_samples,
        most_bytes=most_bytes,
    )
    yield source
    while source.take(1000)[1]:  # a full reader holds up its domain, and its own deletion
        pass
    source.close()
    assert readers.count == 0


def write_all(writer: DataWriter[Any], sizes: list[int], pace_s: float) -> None:
    """Samples that start with their number."""
    for number, size in enumerate(sizes):
        sample = number.to_bytes(4, "little") + size.to_bytes(4, "little") + bytes(size)
        sample = b"\x00\x01\x00\x00" + sample + bytes(-len(sample) % 4)
        end_s = time.monotonic() + PATIENCE_S
        while (code := native.write_ts(writer._ref, sample, number + 1)) != native.RETCODE_OK:
            assert code == native.RETCODE_TIMEOUT
            assert time.monotonic() < end_s
            time.sleep(0.001)
        native.flush(writer._ref)
        if pace_s:
            time.sleep(pace_s)


def numbers(samples: Any) -> list[int]:
    return [int.from_bytes(sample[4:8], "little") for sample in samples]


SCHEDULES: dict[str, list[int]] = {
    "large from the start": [60_000] * 150,
    "small then large": [10] * 400 + [60_000] * 150,
    "ever larger": [10] * 100 + [3_000] * 100 + [12_000] * 100 + [60_000] * 60,
    "a few huge ones": [10] * 50 + [1_500_000] * 8 + [10] * 50,
}


@pytest.mark.parametrize("pace_s", [0.0, 0.0005], ids=["flat out", "paced"])
@pytest.mark.parametrize("sizes", SCHEDULES.values(), ids=SCHEDULES.keys())
def test_replaced_readers_lose_repeat_and_reorder_nothing(
    near: DomainParticipant, far: DomainParticipant, sizes: list[int], pace_s: float
) -> None:
    name = f"source-{time.monotonic_ns()}"
    topic: Topic[Any] = Topic(far, name, Plain)
    writer: DataWriter[Any] = DataWriter(far, topic, qos=WRITER)
    readers = Readers(near, name, Plain)
    got: list[int] = []
    with source_of(readers) as source:
        until(lambda: native.matched_readers(writer._ref) == 1)
        thread = threading.Thread(target=write_all, args=(writer, sizes, pace_s), name="writer")
        thread.start()
        try:

            def has_all() -> bool:
                columns, _ = source.take(32)
                got.extend(numbers(columns.samples))
                assert list(columns.timestamps) == [n + 1 for n in numbers(columns.samples)]
                return len(got) >= len(sizes)

            until(has_all, 3 * PATIENCE_S)
        finally:
            thread.join()
        for _ in range(20):  # what comes twice would come soon
            columns, _ = source.take(32)
            got.extend(numbers(columns.samples))
            time.sleep(0.005)
    assert got == list(range(len(sizes)))
    assert 1 < len(readers.rooms) <= 5
    assert readers.rooms == sorted(readers.rooms, reverse=True)
    assert readers.rooms[-1] >= 64


def test_several_writers_and_instances_that_die_meanwhile(
    near: DomainParticipant, far: DomainParticipant
) -> None:
    name = f"source-{time.monotonic_ns()}"
    topic: Topic[Any] = Topic(far, name, Keyed)
    writers: list[DataWriter[Any]] = [DataWriter(far, topic, qos=WRITER) for _ in range(3)]
    readers = Readers(near, name, Keyed)
    per_writer, large = 60, bytes(40_000)
    got: dict[int, list[tuple[int, int]]] = {0: [], 1: [], 2: []}

    def write(which: int) -> None:
        for number in range(per_writer):
            # Instances of one's own, each written once and disposed with the same sample.
            raw = (
                b"\x00\x01\x00\x00"
                + number.to_bytes(4, "little")
                + (which * 1000 + number).to_bytes(4, "little")
                + len(large).to_bytes(4, "little")
                + large
            )
            act: Callable[..., int] = native.writedispose_ts if number % 3 else native.write_ts
            end_s = time.monotonic() + PATIENCE_S
            while act(writers[which]._ref, raw, number + 1) != native.RETCODE_OK:
                assert time.monotonic() < end_s
                time.sleep(0.001)
            native.flush(writers[which]._ref)

    with source_of(readers) as source:
        until(lambda: all(native.matched_readers(writer._ref) == 1 for writer in writers))
        threads = [threading.Thread(target=write, args=(n,), name=f"writer {n}") for n in range(3)]
        for thread in threads:
            thread.start()

        def has_all() -> bool:
            columns, _ = source.take(16)
            kinds = columns.kinds or bytes(len(columns.samples))
            for sample, kind in zip(columns.samples, kinds, strict=True):
                if len(sample) > 100:
                    id_ = int.from_bytes(sample[8:12], "little")
                    got[id_ // 1000].append((id_ % 1000, kind))
            return sum(map(len, got.values())) >= 3 * per_writer

        try:
            until(has_all, 3 * PATIENCE_S)
        finally:
            for thread in threads:
                thread.join()
    assert len(readers.rooms) > 1
    for samples in got.values():
        assert sorted(samples) == [
            (number, WRITE_DISPOSE if number % 3 else 0) for number in range(per_writer)
        ]


def test_history_comes_once(near: DomainParticipant, far: DomainParticipant) -> None:
    """The successor of a reader asks for no history: its predecessor had it."""
    name = f"source-{time.monotonic_ns()}"
    topic: Topic[Any] = Topic(far, name, Plain)
    durable = CycloneQos(
        RELIABLE,
        Policy.Durability.TransientLocal,
        Policy.History.KeepAll,
        Policy.DurabilityService(0, Policy.History.KeepAll, -1, -1, -1),
    )
    writer: DataWriter[Any] = DataWriter(far, topic, qos=durable)
    write_all(writer, [30_000] * 10, 0.0)
    readers = Readers(near, name, Plain, durable=True)
    got: list[int] = []
    with source_of(readers) as source:

        def has_ten() -> bool:
            got.extend(numbers(source.take(4)[0].samples))
            return len(got) >= 10

        until(has_ten)
        until(lambda: len(readers.rooms) > 1)
        for _ in range(20):
            got.extend(numbers(source.take(4)[0].samples))
            time.sleep(0.005)
    assert got == list(range(10))


def test_a_full_reader_is_closed_at_once(near: DomainParticipant, far: DomainParticipant) -> None:
    """A subscriber that leaves while it holds everything up must not stop the edge for long."""
    name = f"source-{time.monotonic_ns()}"
    writer: DataWriter[Any] = DataWriter(far, Topic(far, name, Plain), qos=WRITER)
    readers = Readers(near, name, Plain)
    source = ReaderSource(
        readers.open, readers.close, lambda handle: True, most_samples=4, most_bytes=1 << 20
    )
    until(lambda: native.matched_readers(writer._ref) == 1)
    sample = b"\x00\x01\x00\x00" + bytes(4) + (60_000).to_bytes(4, "little") + bytes(60_000)
    refused = 0

    def is_full() -> bool:
        nonlocal refused
        code = native.write_ts(writer._ref, sample, 1)
        native.flush(writer._ref)
        refused = refused + 1 if code == native.RETCODE_TIMEOUT else 0
        time.sleep(0.001)
        return refused > 20

    until(is_full)
    begun_s = time.monotonic()
    source.close()
    assert time.monotonic() - begun_s < 2.0


@pytest.mark.parametrize("overlap_s", [0.0, 0.02])
def test_what_two_readers_got_counts_once(
    near: DomainParticipant, monkeypatch: pytest.MonkeyPatch, overlap_s: float
) -> None:
    """However soon the second reader is replaced by a third. Within one domain DDS delivers
    before a write returns: both readers have what is written between opening and closing."""
    monkeypatch.setattr("edge_broker.source._OVERLAP_S", overlap_s)
    name = f"source-{time.monotonic_ns()}"
    writer: DataWriter[Any] = DataWriter(near, Topic(near, name, Plain), qos=WRITER)
    readers = Readers(near, name, Plain)
    written, got = 0, list[int]()

    def write(size: int, count: int) -> None:
        nonlocal written
        for _ in range(count):
            head = written.to_bytes(4, "little") + size.to_bytes(4, "little")
            data = b"\x00\x01\x00\x00" + head + bytes(size)
            # All have one time, as those of a writer that does not say when.
            assert native.write_ts(writer._ref, data, 1) == native.RETCODE_OK
            written += 1

    with source_of(readers) as source:
        readers.on_open = lambda: write(4_000 * 4 ** len(readers.rooms), 5)
        write(1_000, 5)

        def has_all() -> bool:
            got.extend(numbers(source.take(3)[0].samples))
            if len(readers.rooms) < 3 and len(got) == written:
                write(60_000, 4)
            return len(readers.rooms) >= 3 and len(got) >= written

        until(has_all)
        for _ in range(20):
            got.extend(numbers(source.take(3)[0].samples))
            time.sleep(0.002)
    assert got == list(range(written))


def test_the_largest_samples_do_not_replace_readers_for_ever(
    near: DomainParticipant, far: DomainParticipant
) -> None:
    name = f"source-{time.monotonic_ns()}"
    topic: Topic[Any] = Topic(far, name, Plain)
    writer: DataWriter[Any] = DataWriter(far, topic, qos=WRITER)
    readers = Readers(near, name, Plain)
    got: list[int] = []
    with source_of(readers, most_bytes=100_000) as source:
        until(lambda: native.matched_readers(writer._ref) == 1)
        for number in range(12):
            write_all(writer, [50_000], 0.0)

            def has_next(number: int = number) -> bool:
                got.extend(numbers(source.take(4)[0].samples))
                return len(got) > number

            until(has_next)
    assert readers.rooms == [4096, 64]
