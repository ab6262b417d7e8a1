"""The compiled loops refuse what would make them read past the end of a column, and do the same as
those in Python.
"""

# mypy: disable-error-code="arg-type, no-untyped-call"
# (cyclonedds' type constructors are values, not types, to a checker.)

from __future__ import annotations

import random
from array import array
from functools import partial
from typing import Any

import pytest
from cyclonedds.core import Policy
from cyclonedds.core import Qos as CycloneQos
from cyclonedds.domain import DomainParticipant

from edge_broker.dds import bulk, bulk_in_python, native, samples
from tests.edge.parts import RELIABLE, Keyed, Pair, Plain, batch_of, gather, until

pytestmark = pytest.mark.dds

THREE = array("q", [1, 2, 3])


@pytest.mark.parametrize(
    ("payload", "sizes", "uniform", "times", "kinds", "start"),
    [
        (b"123456", None, 3, THREE, b"", 0),
        (b"123456", array("I", [1, 2]), 0, THREE, b"", 0),
        (b"123456", array("I", [1, 2, 4]), 0, THREE, b"", 0),
        (b"123456", array("I", [7, 0xFFFFFFFF, 0]), 0, THREE, b"", 0),
        (b"123456", None, 2, THREE, b"\0\0", 0),
        (b"123456", None, 2, THREE, b"\0\0\4", 0),
        (b"123456", None, 2, THREE, b"", -1),
        (b"123456", None, 2, THREE, b"", 4),
        (b"123456", None, -2, THREE, b"", 0),
    ],
)
def test_columns_that_contradict_each_other_are_refused(
    payload: bytes,
    sizes: array[int] | None,
    uniform: int,
    times: array[int],
    kinds: bytes,
    start: int,
) -> None:
    with pytest.raises(ValueError, match="contradict"):
        bulk.write(1, memoryview(payload), sizes, uniform, times, kinds, start)


def test_what_is_no_number_or_no_column_is_refused() -> None:
    with pytest.raises(TypeError):
        bulk.take("reader", 1, 1)
    with pytest.raises(OverflowError):
        bulk.take(1 << 70, 1, 1)
    with pytest.raises(TypeError):
        bulk.take(1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        bulk.write(1, "text", None, 1, THREE, b"", 0)
    with pytest.raises(ValueError, match="addresses"):
        bulk.bind([1, 2, 3])


class TwoReaders:
    """One writer, and two readers that see the same."""

    def __init__(self, near: DomainParticipant, far: DomainParticipant, type_: type) -> None:
        lasting = Policy.WriterDataLifecycle(autodispose=False)
        qos = CycloneQos(RELIABLE, Policy.History.KeepAll, lasting)
        one = Pair(far, near, type_, offered=qos, asked=qos)
        other = Pair(far, near, type_, offered=qos, asked=qos, name=one.name)
        until(partial(has_two_readers, one.writer._ref))
        self._pairs = (one, other)
        self.writers = (one.writer, other.writer)

    def take(self) -> tuple[Any, Any]:
        """What the compiled loop takes and the one in Python."""
        for pair in self._pairs:
            pair.settle()
        one, other = (pair.reader._ref for pair in self._pairs)
        compiled = bulk.take(one, 100, 0x7F)
        assert bulk.take(one, 100, 0x7F) is None
        return compiled, bulk_in_python.take(other, 100, 0x7F)


def has_two_readers(writer: int) -> bool:
    return native.matched_readers(writer) == 2


@pytest.mark.parametrize(
    ("is_plain", "values"),
    [
        (True, [Plain(1, [2]), Plain(3, [4])]),
        (True, [Plain(1, [2]), Plain(3, list(range(200)))]),
        (True, [Plain(1, list(range(250)) * 400)]),
        (True, [Keyed(1, 1, []), Keyed(2, 2, []), Keyed(3, 1, [])]),
        (False, [Keyed(1, 1, []), None, Keyed(2, 1, [])]),
    ],
)
def test_both_take_the_same(
    near: DomainParticipant, far: DomainParticipant, is_plain: bool, values: list[Any]
) -> None:
    """Samples of one size and of several, of several instances, and a dead one."""
    readers = TwoReaders(near, far, type(values[0]))
    for time, value in enumerate(values, 1):
        if value is None:
            readers.writers[0].dispose(Keyed(0, 1, []), time)
        else:
            readers.writers[0].write(value, time)
    compiled, in_python = readers.take()
    assert isinstance(compiled, tuple) == is_plain
    assert compiled == in_python


def test_both_put_them_in_the_same_order(near: DomainParticipant, far: DomainParticipant) -> None:
    """Of many instances, by one writer whose clock is set back now and then, or by two."""
    readers = TwoReaders(near, far, Keyed)
    choose = random.Random(7)
    for several in [False] * 9 + [True] * 3:
        for index in range(choose.randint(1, 30)):
            sample = Keyed(index, choose.randint(0, 3), [0] * choose.randint(0, 9))
            writer = readers.writers[several and choose.randint(0, 1)]
            writer.write(sample, 100 + index - 20 * (choose.random() < 0.2))
        compiled, in_python = readers.take()
        assert isinstance(compiled, tuple)
        assert compiled == in_python


@pytest.mark.usefixtures("loops")
def test_a_sample_no_reader_would_take_holds_up_none_behind_it(
    near: DomainParticipant, far: DomainParticipant
) -> None:
    """In an encoding DDS does not know: garbage of another edge, or of a broken application."""
    pair = Pair(near, far, Plain)
    writer = pair.writer._ref
    sound = b"\0\1\0\0" + bytes(8)
    codes: list[int] = []
    data = [sound, b"\0\x81\0\0" + bytes(8), b"", b"\0", b"\0\4\0\0" + bytes(8), sound]
    for kinds in (b"", bytes(len(data))):
        batch = batch_of(data, list(range(1, len(data) + 1)), kinds)
        assert samples.write(writer, batch, 0, codes.append) == len(data)
        assert codes == [native.RETCODE_BAD_PARAMETER] * 4
        codes.clear()
        pair.settle()
        assert [info.source_timestamp for _, info in gather(pair.reader._ref, 2)] == [1, 6]
