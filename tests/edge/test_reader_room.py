"""A reader holds fewer samples when they are large. What is relied on is inside Cyclone: a version
that keeps it elsewhere must fail here.
"""

# mypy: disable-error-code="arg-type, no-untyped-call"
# (cyclonedds' type constructors are values, not types, to a checker.)

from __future__ import annotations

import time

import pytest
from cyclonedds.core import Policy
from cyclonedds.domain import DomainParticipant

from edge_broker.dds import native, qos
from edge_broker.dds.reader_room import ReaderRoom
from gateway.model import Qos, Reliability
from tests.edge.parts import Pair, Plain, take, until

pytestmark = pytest.mark.dds

MOST_BYTES = 1 << 20
SMALL, LARGE = MOST_BYTES // 200, MOST_BYTES // 20


def pair_of(near: DomainParticipant, far: DomainParticipant, offered: Qos) -> Pair:
    return Pair(
        near, far, Plain, offered=qos.mirror_writer(offered), asked=qos.ingress_reader(offered, 100)
    )


def write_until_full(pair: Pair, most: int) -> int:
    """How many samples a reliable reader and what is under way hold."""
    sample = Plain(0, bytes(60_000)).serialize()
    written, last_s = 0, time.monotonic()

    def is_full() -> bool:
        nonlocal written, last_s
        if native.write_ts(pair.writer._ref, sample, 1) == native.RETCODE_OK:
            written, last_s = written + 1, time.monotonic()
            native.flush(pair.writer._ref)
        return written >= most or time.monotonic() - last_s > 0.3

    until(is_full)
    return written


def take_all(pair: Pair) -> None:
    def is_empty() -> bool:
        return not take(pair.reader._ref) and native.wait_for_acks(pair.writer._ref, 1) == 0

    until(is_empty)


def test_a_reliable_reader_pushes_back_earlier(
    near: DomainParticipant, far: DomainParticipant
) -> None:
    pair = pair_of(near, far, Qos(reliability=Reliability.RELIABLE))
    room = ReaderRoom(pair.reader._ref, 100, MOST_BYTES)
    room.fit(SMALL, is_empty=False)
    assert room.samples == 100
    room.fit(LARGE, is_empty=False)
    assert room.samples == 20
    few = write_until_full(pair, 1000)
    take_all(pair)
    room.fit(SMALL, is_empty=True)
    assert room.samples == 100
    many = write_until_full(pair, 1000)
    take_all(pair)
    assert 70 <= many - few <= 90, (few, many)
    room.fit(1 << 30, is_empty=True)
    assert room.samples == 16  # never none


def test_another_reader_keeps_fewer_of_the_latest(
    near: DomainParticipant, far: DomainParticipant
) -> None:
    pair = pair_of(near, far, Qos(reliability=Reliability.BEST_EFFORT))
    room = ReaderRoom(pair.reader._ref, 100, MOST_BYTES)

    def newest(count: int) -> list[int]:
        for index in range(count):
            pair.writer.write(Plain(index, []))
        native.flush(pair.writer._ref)
        until(lambda: any(each.index == count - 1 for each in pair.reader.read(N=1000)))
        return [Plain.deserialize(data).index for data, _ in take(pair.reader._ref)]

    assert newest(120) == list(range(20, 120))
    room.fit(LARGE, is_empty=False)
    assert room.samples == 100  # it might hold more already
    room.fit(LARGE, is_empty=True)
    assert newest(120) == list(range(100, 120))
    room.fit(SMALL, is_empty=True)
    assert newest(120) == list(range(20, 120))


def test_a_reader_that_is_gone_or_made_otherwise_is_left_alone(
    near: DomainParticipant, far: DomainParticipant
) -> None:
    pair = pair_of(near, far, Qos(reliability=Reliability.RELIABLE))
    for reader, most_samples in ((123456, 100), (pair.reader._ref, 99)):
        room = ReaderRoom(reader, most_samples, MOST_BYTES)
        room.fit(1 << 20, is_empty=True)
        assert room.samples == most_samples
    assert Policy.ResourceLimits(max_samples=100) in pair.reader.get_qos()
