"""What a source makes of samples that were taken ahead is what it makes of others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cyclonedds.core import GuardCondition, WaitSet
from cyclonedds.domain import DomainParticipant
from cyclonedds.pub import DataWriter

from edge_broker.dds import native, samples, shortcuts
from edge_broker.dds.domain import Port
from edge_broker.dds.reader_room import ReaderRoom
from edge_broker.source import ReaderSource
from gateway.tunnel.columns import UNREGISTER, WRITE, WRITE_DISPOSE
from gateway.tunnel.frames import lone_batch_head, stream_id
from tests.edge.parts import Keyed, Pair
from tests.edge.shortcut_parts import KEY, LONG_S, Wires

pytestmark = pytest.mark.dds

Written = tuple[int, int]
"""The number of a sample and what was done with it."""


def _sample(number: int, instance: int) -> Any:
    return Keyed(number, instance, [])  # type: ignore[arg-type]


class Lan:
    """A writer, and the source of an edge that has taken its first sample."""

    def __init__(self, near: DomainParticipant, far: DomainParticipant) -> None:
        self.pair = Pair(far, near, Keyed)
        self.accepts = True
        reader = self.pair.reader._ref
        port = Port(reader, reader, self.pair.topic._ref, ("", "", None, ""))
        room = ReaderRoom(reader, 8192, 1 << 26)
        self.source = ReaderSource(port, lambda _: None, lambda _: self.accepts, room)
        self.waitset, guard = WaitSet(near), GuardCondition(near)
        self._guard = guard
        native.watch_data(self.waitset._ref, reader)
        native.watch_trigger(self.waitset._ref, guard._ref)
        shortcuts.wake_by(guard._ref)
        self.pair.writer.write(_sample(0, 9))
        self.pair.settle()
        samples.wait(self.waitset._ref, int(LONG_S * 1e9))
        assert self.take() == [(0, WRITE)]

    def aim(self, wires: Wires) -> None:
        writer = self.source.lone_writer
        assert writer is not None
        self.source.aim.set(
            ((wires.near.fileno(), lone_batch_head(("e-b",))),),
            writer,
            stream_id(KEY),
            2,
            60,
            time.monotonic() + LONG_S,
            overdue_s=LONG_S,
            is_all=True,
            is_timed=True,
        )

    def take(self, *, is_sent: bool = False) -> list[Written]:
        packed = self.source.take(256, is_sent=is_sent).packed
        kinds = packed.kinds or bytes(packed.count)
        numbers = [int.from_bytes(bytes(each)[4:8], "little") for each in packed.samples()]
        return list(zip(numbers, kinds, strict=True))


@pytest.fixture
def lan(near: DomainParticipant, far: DomainParticipant) -> Iterator[Lan]:
    made = Lan(near, far)
    yield made
    made.source.aim.close()


def _dispose(writer: DataWriter[Keyed]) -> None:
    for number in (1, 2, 3):
        writer.write(_sample(number, 1))
    writer.dispose(_sample(0, 1))


def _unregister(writer: DataWriter[Keyed]) -> None:
    for number in (1, 2, 3):
        writer.write(_sample(number, 1))
    writer.unregister_instance(_sample(0, 1))


def _alternate(writer: DataWriter[Keyed]) -> None:
    for number, instance in ((1, 1), (2, 2), (3, 1), (4, 2)):
        writer.write(_sample(number, instance))


@pytest.mark.parametrize("is_aimed", [False, True])
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (_dispose, [(1, WRITE), (2, WRITE), (3, WRITE_DISPOSE)]),
        (_unregister, [(1, WRITE), (2, WRITE), (3, WRITE), (1, UNREGISTER)]),
        (_alternate, [(1, WRITE), (2, WRITE), (3, WRITE), (4, WRITE)]),
    ],
)
def test_two_of_many_that_were_taken_tell_no_other_story_than_all(
    lan: Lan,
    wires: Wires,
    script: Callable[[DataWriter[Keyed]], None],
    expected: list[Written],
    is_aimed: bool,
) -> None:
    """An instance that died after its last sample did not die after every second one."""
    script(lan.pair.writer)
    lan.pair.settle()
    if is_aimed:
        lan.aim(wires)
    samples.wait(lan.waitset._ref, int(LONG_S * 1e9))
    lan.source.aim.lower()
    assert lan.take() == expected
    assert lan.take() == []


def test_a_writer_whose_samples_belong_elsewhere_by_now_is_aimed_at_no_more(
    lan: Lan, wires: Wires
) -> None:
    lan.aim(wires)
    lan.pair.writer.write(_sample(1, 9))
    lan.pair.settle()
    wires.record()
    lan.accepts = False
    assert lan.source.lone_writer is None
    assert lan.take(is_sent=True) == [(1, WRITE)], "it has its number"
    assert lan.source.lone_writer is None
    lan.accepts = True
    assert lan.source.lone_writer is not None
