"""What the house relies on in the binding's private API and in Cyclone DDS, fact by fact: a new
version that breaks one must fail here, loudly.
"""

# mypy: disable-error-code="type-arg, valid-type, arg-type, no-untyped-call"
# (cyclonedds' type constructors are values, not types, to a checker.)
# No postponed annotations here: cyclonedds builds types from their values.

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

import cyclonedds.idl.annotations as annotate
import pytest
from cyclonedds.builtin import BuiltinDataReader, BuiltinTopicDcpsPublication
from cyclonedds.core import GuardCondition, Policy, WaitSet
from cyclonedds.core import Qos as CycloneQos
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import int16, int32, int64, uint32
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic

from edge_broker.dds import native, samples, watermark
from edge_broker.dds.matched import matched_writers
from gateway.tunnel.columns import DISPOSE, UNREGISTER, WRITE, WRITE_DISPOSE
from tests.edge.parts import (
    RELIABLE,
    Keyed,
    Pair,
    Plain,
    batch_of,
    gather,
    never,
    take,
    until,
    write,
)

pytestmark = [pytest.mark.dds, pytest.mark.usefixtures("loops")]

ALIVE, DISPOSED, NO_WRITERS = (
    native.INSTANCE_ALIVE,
    native.INSTANCE_DISPOSED,
    native.INSTANCE_NO_WRITERS,
)
KEPT_ALL = (RELIABLE, Policy.History.KeepAll, Policy.WriterDataLifecycle(autodispose=False))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 5, 1000, 70_000, 3_000_000])
def test_bytes_and_times_pass_unchanged(
    near: DomainParticipant, far: DomainParticipant, size: int
) -> None:
    first, second = Pair(far, near, Plain), Pair(near, far, Plain)
    sample = Plain(7, list(range(256)) * (size // 256) + [1] * (size % 256))
    first.writer.write(sample, 1234)
    taken = gather(first.reader._ref, 1)
    assert [info.source_timestamp for _, info in taken] == [1234]
    assert taken[0][1].valid_data
    data = taken[0][0]
    write(second.writer._ref, data, 1234)
    again = gather(second.reader._ref, 1)
    assert [(data, info.source_timestamp) for data, info in again] == [(data, 1234)]
    assert Plain.deserialize(again[0][0]) == sample


def test_order_within_an_instance_and_most(near: DomainParticipant, far: DomainParticipant) -> None:
    pair = Pair(far, near, Plain)
    for index in range(100):
        pair.writer.write(Plain(index, []), 1000 - index)
    pair.settle()
    taken = [*take(pair.reader._ref, 30), *take(pair.reader._ref)]
    assert len(taken) == 100
    assert samples.take(pair.reader._ref, 30) is None
    # In the order of arrival, whatever the source times say.
    assert [Plain.deserialize(data).index for data, _ in taken] == list(range(100))


def test_a_reader_that_is_gone_has_nothing() -> None:
    assert samples.take(123456, 10) is None


def test_publication_handle_is_the_instance_handle_of_discovery(
    near: DomainParticipant, far: DomainParticipant
) -> None:
    publications = BuiltinDataReader(near, BuiltinTopicDcpsPublication)
    pair = Pair(far, near, Plain)
    second: DataWriter[Any] = DataWriter(far, pair.topic, qos=CycloneQos(*KEPT_ALL))
    until(lambda: len(matched_writers(pair.reader._ref)) == 2)
    handles = {
        sample.key: sample.sample_info.instance_handle
        for sample in publications.take(N=1000)
        if sample.topic_name == pair.name
    }
    pair.writer.write(Plain(1, []))
    second.write(Plain(2, []))
    native.flush(second._ref)
    found = {
        Plain.deserialize(data).index: info.publication_handle
        for data, info in gather(pair.reader._ref, 2)
    }
    assert found == {1: handles[pair.writer.guid], 2: handles[second.guid]}


def full_pair(near: DomainParticipant, far: DomainParticipant) -> Pair:
    """A slow reader: it holds 4 samples. A writer is full by the bytes that wait for its readers,
    not by samples."""
    asked = CycloneQos(*KEPT_ALL, Policy.ResourceLimits(max_samples=4))
    return Pair(near, far, Plain, asked=asked)


def fill(pair: Pair) -> float:
    """Writes until nothing goes any more, which heartbeats would mend if only acknowledgements
    were late; the longest a write took."""
    sample = Plain(0, bytes(60_000)).serialize()
    longest_s, written, last_s = 0.0, 0, time.monotonic()

    def is_full() -> bool:
        nonlocal longest_s, written, last_s
        begun_s = time.monotonic()
        code = native.write_ts(pair.writer._ref, sample, 1)
        longest_s = max(longest_s, time.monotonic() - begun_s)
        assert code in (native.RETCODE_OK, native.RETCODE_TIMEOUT)
        if code == native.RETCODE_OK:
            written, last_s = written + 1, begun_s
            native.flush(pair.writer._ref)
        return begun_s - last_s > 0.3

    try:
        until(is_full)
    except AssertionError as error:
        readers = native.matched_readers(pair.writer._ref)
        raise AssertionError(f"not full: {written} written, {readers} readers") from error
    return longest_s


def empty(pair: Pair) -> None:
    """Takes everything: to delete a full reader takes DDS some ten seconds."""

    def is_empty() -> bool:
        return not take(pair.reader._ref) and native.wait_for_acks(pair.writer._ref, 1) == 0

    until(is_empty)


def test_full_writer_says_so_at_once_and_has_not_written(
    near: DomainParticipant, far: DomainParticipant
) -> None:
    pair = full_pair(near, far)
    data = [Plain(index, bytes(60_000)).serialize() for index in range(40)]
    batch = batch_of(data, range(1, len(data) + 1))
    done, refusals, got = 0, 0, list[int]()

    def has_all() -> bool:
        for sample, info in take(pair.reader._ref):
            got.append(int.from_bytes(sample[4:8], "little"))
            assert info.source_timestamp == got[-1] + 1
        return len(got) >= len(data)

    while done < len(data):
        done = samples.write(pair.writer._ref, batch, done, never)
        if done < len(data):
            refusals += 1
            has_all()
    until(has_all)
    assert refusals > 0
    assert got == list(range(len(data)))


def test_a_refused_write_does_not_wait(near: DomainParticipant, far: DomainParticipant) -> None:
    pair = full_pair(near, far)
    longest_s = fill(pair)
    assert longest_s < 0.2, "a write on a full writer waits, and holds the interpreter lock"
    empty(pair)


def test_a_writer_holds_to_its_mark(near: DomainParticipant, far: DomainParticipant) -> None:
    samples = [fill_to(full_pair(near, far), most_bytes) for most_bytes in (20_000, 200_000)]
    # What the reader holds, and a sample beyond the mark, in both.
    assert 20 <= samples[1] - samples[0] <= 40, samples


def fill_to(pair: Pair, most_bytes: int) -> int:
    """How many samples of 6 kB go until nothing goes any more."""
    mark = watermark.find(pair.writer._ref)
    assert mark is not None, "this version of Cyclone keeps the mark elsewhere"
    assert mark.value == watermark.FIRST_BYTES
    sample = Plain(0, bytes(6_000)).serialize()
    written, last_s = 0, time.monotonic()

    def is_full() -> bool:
        nonlocal written, last_s
        mark.value = most_bytes  # Cyclone raises it at every refusal
        if native.write_ts(pair.writer._ref, sample, 1) == native.RETCODE_OK:
            written, last_s = written + 1, time.monotonic()
            native.flush(pair.writer._ref)
        return time.monotonic() - last_s > 0.3

    until(is_full)
    empty(pair)
    return written


def test_a_writer_without_a_bound_has_no_mark(near: DomainParticipant) -> None:
    last = CycloneQos(RELIABLE, Policy.History.KeepLast(1))
    writer: DataWriter[Any] = DataWriter(near, Topic(near, "no_mark", Plain), qos=last)
    assert watermark.find(writer._ref) is None
    assert watermark.find(123456) is None


def test_a_full_reader_stops_its_whole_domain(
    near: DomainParticipant, far: DomainParticipant
) -> None:
    """Not relied on but reckoned with: DDS's receive thread waits until the reader has room. Other
    topics, discovery and leases wait with it."""
    full, other = full_pair(near, far), Pair(near, far, Plain)
    fill(full)
    sample = Plain(0, []).serialize()
    write(other.writer._ref, sample, 1)
    time.sleep(0.3)
    assert take(other.reader._ref) == []
    got: list[int] = []

    def has_room() -> bool:
        take(full.reader._ref)
        got.extend(info.source_timestamp for _, info in take(other.reader._ref))
        return bool(got)

    until(has_room)
    empty(full)


def test_batched_writes_leave_with_the_flush(
    near: DomainParticipant, far: DomainParticipant
) -> None:
    pair = Pair(near, far, Plain)
    sample = Plain(0, []).serialize()
    pair.writer.write(Plain(0, []))  # what a new reader may ask for
    assert len(gather(pair.reader._ref, 1)) == 1
    for index in range(10):
        assert native.write_ts(pair.writer._ref, sample, index + 1) == native.RETCODE_OK
    # All but what a new reader happens to ask for again.
    assert native.wait_for_acks(pair.writer._ref, 50_000_000) == native.RETCODE_TIMEOUT
    early = take(pair.reader._ref)
    assert len(early) < 10
    assert native.flush(pair.writer._ref) == native.RETCODE_OK
    late = gather(pair.reader._ref, 10 - len(early))
    assert [info.source_timestamp for _, info in early + late] == list(range(1, 11))


def test_malformed_samples_are_rejected_and_passed_over(
    near: DomainParticipant, far: DomainParticipant
) -> None:
    """The code is negative, not TIMEOUT; the process lives; what follows arrives."""
    pair = Pair(near, far, Keyed)
    good = Keyed(1, 2, [3, 4, 5, 6]).serialize()
    bad = [b"", b"\x00", b"\x00\x01\x00", b"\x00\x01\x00\x00", b"\x00\x01\x00\x00\x01\x00"]
    codes: list[int] = []
    batch = batch_of([*bad, good], range(len(bad) + 1))
    assert samples.write(pair.writer._ref, batch, 0, codes.append) == batch.count
    assert len(codes) == len(bad)
    assert all(code < 0 and code != native.RETCODE_TIMEOUT for code in codes)
    assert [data for data, _ in gather(pair.reader._ref, 1)] == [good]


@dataclass
@annotate.final
class Inner(IdlStruct, typename="edge.Inner"):
    id: int32
    annotate.key("id")
    note: str


@dataclass
@annotate.final
class KeyNested(IdlStruct, typename="edge.KeyNested"):
    index: uint32
    inner: Inner
    annotate.key("inner")
    rest: int64


@dataclass
@annotate.final
class KeyText(IdlStruct, typename="edge.KeyText"):
    index: uint32
    name: str
    annotate.key("name")
    unit: int16
    annotate.key("unit")
    wide: int64
    annotate.key("wide")


@dataclass
@annotate.appendable
class KeyAppendable(IdlStruct, typename="edge.KeyAppendable"):
    index: uint32
    name: str
    annotate.key("name")
    wide: int64
    annotate.key("wide")


@dataclass
@annotate.mutable
class KeyMutable(IdlStruct, typename="edge.KeyMutable"):
    index: uint32
    name: str
    annotate.key("name")
    wide: int64
    annotate.key("wide")
    maybe: Optional[int32]  # noqa: UP045


KEYED_SAMPLES: dict[str, Callable[[int], Any]] = {
    "key not first": lambda n: Keyed(1, n, [1, 2, 3]),
    "nested": lambda n: KeyNested(1, Inner(n, "no key"), 2),
    "text and numbers": lambda n: KeyText(1, "näme", n, 2**40),
    "appendable": lambda n: KeyAppendable(1, "a", n),
    "appendable, aligned": lambda n: KeyAppendable(1, "abcdefg", 2**40 + n),
    "mutable": lambda n: KeyMutable(1, "abc", n, None),
}


@pytest.mark.parametrize("is_xcdr2", [False, True], ids=["xcdr1", "xcdr2"])
@pytest.mark.parametrize("make", KEYED_SAMPLES.values(), ids=KEYED_SAMPLES.keys())
def test_every_kind_crosses_with_a_key_sample(
    near: DomainParticipant, far: DomainParticipant, make: Callable[[int], Any], is_xcdr2: bool
) -> None:
    """write, dispose, write-dispose, unregister on raw bytes; keys made from whole samples."""
    sample = make(5 + is_xcdr2)  # DDS keeps a key in the representation that came first
    representation = Policy.DataRepresentation(
        use_cdrv0_representation=not is_xcdr2, use_xcdrv2_representation=is_xcdr2
    )
    qos = CycloneQos(*KEPT_ALL, representation)
    first = Pair(far, near, type(sample), offered=qos, asked=qos)
    second = Pair(near, far, type(sample), offered=qos, asked=qos)
    writer = second.writer._ref

    first.writer.write(sample, 10)
    ((data, _),) = gather(first.reader._ref, 1)
    topic: Topic[Any] = Topic(near, first.name, type(sample))
    key = native.key_sample(topic._ref, data)

    def replay(kind: int, data: bytes, time: int) -> list[tuple[int, bool, int]]:
        write(writer, data, time, kind)
        return [
            (info.instance_state, bool(info.valid_data), info.source_timestamp)
            for _, info in gather(second.reader._ref, 1)
        ]

    assert replay(WRITE, data, 10) == [(ALIVE, True, 10)]
    assert replay(DISPOSE, key, 20) == [(DISPOSED, False, 20)]
    assert replay(WRITE, data, 30) == [(ALIVE, True, 30)]
    assert replay(WRITE_DISPOSE, data, 40) == [(DISPOSED, True, 40)]
    assert replay(WRITE, data, 50) == [(ALIVE, True, 50)]
    assert replay(UNREGISTER, key, 60) == [(NO_WRITERS, False, 60)]

    # A dispose as the application sends it: what is taken can be written as it is.
    first.writer.dispose(sample, 70)
    ((taken, info),) = gather(first.reader._ref, 1)
    assert (info.instance_state, bool(info.valid_data)) == (DISPOSED, False)
    assert replay(WRITE, data, 65) == [(ALIVE, True, 65)]
    assert replay(DISPOSE, taken, 70) == [(DISPOSED, False, 70)]
    # ... and DDS itself makes the key just as we do.
    assert taken == key


def test_waitset_reports_readers_with_data_and_a_trigger(
    near: DomainParticipant, far: DomainParticipant
) -> None:
    one, other = Pair(far, near, Plain), Pair(far, near, Plain)
    waitset, guard = WaitSet(near), GuardCondition(near)
    for pair in (one, other):
        assert native.watch_data(waitset._ref, pair.reader._ref) == native.RETCODE_OK
    assert native.watch_trigger(waitset._ref, guard._ref) == native.RETCODE_OK
    brief, long = 20_000_000, 5_000_000_000
    assert samples.wait(waitset._ref, brief) == []
    other.writer.write(Plain(1, []))
    native.flush(other.writer._ref)
    assert samples.wait(waitset._ref, long) == [other.reader._ref]
    # The flag is cleared by reporting, not by taking; new data sets it again.
    assert samples.wait(waitset._ref, brief) == []
    other.writer.write(Plain(2, []))
    native.flush(other.writer._ref)
    assert samples.wait(waitset._ref, long) == [other.reader._ref]
    native.unwatch(waitset._ref, other.reader._ref)
    other.writer.write(Plain(3, []))
    one.writer.write(Plain(4, []))
    native.flush(other.writer._ref)
    native.flush(one.writer._ref)
    assert samples.wait(waitset._ref, long) == [one.reader._ref]
    guard.set(True)
    assert guard._ref in samples.wait(waitset._ref, long)


def test_deleting_a_writer_without_autodispose_leaves_no_writers(
    near: DomainParticipant, far: DomainParticipant
) -> None:
    pair = Pair(near, far, Keyed)
    pair.writer.write(Keyed(1, 1, []))
    gather(pair.reader._ref, 1)
    assert native.delete(pair.writer._ref) == native.RETCODE_OK
    ((_, info),) = gather(pair.reader._ref, 1)
    assert (info.instance_state, bool(info.valid_data)) == (NO_WRITERS, False)


def test_a_late_joiner_gets_what_the_durability_service_keeps(
    near: DomainParticipant, far: DomainParticipant
) -> None:
    durable = (RELIABLE, Policy.Durability.TransientLocal, Policy.History.KeepLast(1))
    service = Policy.DurabilityService(0, Policy.History.KeepLast(3), -1, -1, -1)
    asked = CycloneQos(RELIABLE, Policy.Durability.TransientLocal, Policy.History.KeepAll)
    pair = Pair(near, far, Plain, offered=CycloneQos(*durable, service), asked=asked)
    for index in range(10):
        pair.writer.write(Plain(index, []))
    pair.settle()
    late: DataReader[Any] = DataReader(far, Topic(far, pair.name, Plain), qos=asked)
    assert [Plain.deserialize(data).index for data, _ in gather(late._ref, 3)] == [7, 8, 9]
