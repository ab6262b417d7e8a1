"""A reader source hands out what writers wrote, once and in order, however full it is closed."""

from __future__ import annotations

import threading
import time
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
from edge_broker.dds.matched import matched_writers
from edge_broker.dds.reader_room import ReaderRoom
from edge_broker.source import ReaderSource
from gateway.tunnel.columns import WRITE
from tests.edge.parts import PATIENCE_S, RELIABLE, Plain, until

pytestmark = [pytest.mark.dds, pytest.mark.usefixtures("loops")]

WRITER = CycloneQos(RELIABLE, Policy.History.KeepAll, Policy.WriterDataLifecycle(autodispose=False))


class Reader:
    """A bounded reader and its source."""

    def __init__(self, participant: DomainParticipant, name: str, most_samples: int) -> None:
        self.accepts = True
        self._topic: Topic[Any] = Topic(participant, name, Plain)
        qos = CycloneQos(
            RELIABLE, Policy.History.KeepAll, Policy.ResourceLimits(max_samples=most_samples)
        )
        self._reader: DataReader[Any] | None = DataReader(participant, self._topic, qos=qos)
        port = Port(self._reader._ref, self._reader._ref, self._topic._ref, ("", "", None, ""))
        self.source = ReaderSource(
            port,
            self._delete,
            lambda handle: self.accepts,
            ReaderRoom(port.ref, most_samples, 1 << 26),
        )

    def _delete(self, port: Port) -> None:
        native.delete(port.ref)
        self._reader = None


def sample_of(number: int, size: int) -> bytes:
    sample = number.to_bytes(4, "little") + size.to_bytes(4, "little") + bytes(size)
    return b"\x00\x01\x00\x00" + sample + bytes(-len(sample) % 4)


def write_all(writer: DataWriter[Any], sizes: list[int]) -> None:
    """Samples that start with their number, as fast as the readers allow."""
    for number, size in enumerate(sizes):
        sample = sample_of(number, size)
        end_s = time.monotonic() + PATIENCE_S
        while (code := native.write_ts(writer._ref, sample, number + 1)) != native.RETCODE_OK:
            assert code == native.RETCODE_TIMEOUT
            assert time.monotonic() < end_s
            time.sleep(0.001)
        native.flush(writer._ref)


@pytest.mark.parametrize("most", [1, 7, 1000])
def test_everything_comes_once_and_in_order(
    near: DomainParticipant, far: DomainParticipant, most: int
) -> None:
    name = f"source-{time.monotonic_ns()}"
    sizes = [10] * 300 + [60_000] * 30 + [10] * 100
    writer: DataWriter[Any] = DataWriter(far, Topic(far, name, Plain), qos=WRITER)
    source = Reader(near, name, 64).source
    until(lambda: native.matched_readers(writer._ref) == 1)
    thread = threading.Thread(target=write_all, args=(writer, sizes), name="writer")
    thread.start()
    got: list[int] = []

    def has_all() -> bool:
        packed, _, has_more = source.take(most)
        assert not has_more or packed.count == most
        numbers = [int.from_bytes(sample[4:8], "little") for sample in packed.samples()]
        assert list(packed.times()) == [number + 1 for number in numbers]
        got.extend(numbers)
        return len(got) >= len(sizes)

    try:
        until(has_all, 3 * PATIENCE_S)
    finally:
        thread.join()
        source.close()
    assert got == list(range(len(sizes)))


def test_a_full_reader_is_closed_at_once(near: DomainParticipant, far: DomainParticipant) -> None:
    """A subscriber that leaves while it holds everything up must not stop the edge for long."""
    name = f"source-{time.monotonic_ns()}"
    writer: DataWriter[Any] = DataWriter(far, Topic(far, name, Plain), qos=WRITER)
    source = Reader(near, name, 4).source
    until(lambda: native.matched_readers(writer._ref) == 1)
    refused = 0

    def is_full() -> bool:
        nonlocal refused
        code = native.write_ts(writer._ref, sample_of(0, 60_000), 1)
        native.flush(writer._ref)
        refused = refused + 1 if code == native.RETCODE_TIMEOUT else 0
        time.sleep(0.001)
        return refused > 20

    until(is_full)
    begun_s = time.monotonic()
    source.close()
    assert time.monotonic() - begun_s < 2.0


def test_what_writers_that_left_have_written_comes_in_portions(
    near: DomainParticipant, far: DomainParticipant
) -> None:
    """However much there is, it must not leave at once, past windows and full links."""
    name = f"source-{time.monotonic_ns()}"
    writer: DataWriter[Any] = DataWriter(far, Topic(far, name, Plain), qos=WRITER)
    reader = Reader(near, name, 1000)
    until(lambda: native.matched_readers(writer._ref) == 1)
    write_all(writer, [10] * 500)
    native.delete(writer._ref)
    source = reader.source
    until(lambda: not matched_writers(source.reader.ref))
    got: list[int] = []
    kinds = b""
    has_more = True
    while has_more:
        packed, _, has_more = source.take(7)
        assert packed.count <= 7
        got += [int.from_bytes(sample[4:8], "little") for sample in packed.samples()]
        kinds += packed.kinds or bytes(packed.count)
    source.close()
    assert got[:500] == list(range(500))
    assert set(kinds[:500]) == {WRITE}


def test_what_has_gone_ahead_counts_wherever_its_writer_belongs_by_now(
    near: DomainParticipant, far: DomainParticipant
) -> None:
    """It has its number: whoever else got it would take the next sample for a copy."""
    name = f"source-{time.monotonic_ns()}"
    reader = Reader(near, name, 100)
    writer: DataWriter[Any] = DataWriter(far, Topic(far, name, Plain), qos=WRITER)
    until(lambda: native.matched_readers(writer._ref) == 1)
    reader.accepts = False
    for is_sent in (False, True):
        write_all(writer, [8])
        assert native.wait_for_acks(writer._ref, int(PATIENCE_S * 1e9)) == native.RETCODE_OK
        assert reader.source.take(10, is_sent=is_sent).packed.count == is_sent
    reader.source.close()
