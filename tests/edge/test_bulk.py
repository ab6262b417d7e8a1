"""The compiled loops refuse what would make them read past the end of a column, and do the same as
those in Python.
"""

# mypy: disable-error-code="arg-type, no-untyped-call"
# (cyclonedds' type constructors are values, not types, to a checker.)

from __future__ import annotations

from array import array
from functools import partial

import pytest
from cyclonedds.core import Policy
from cyclonedds.core import Qos as CycloneQos
from cyclonedds.domain import DomainParticipant

from edge_broker.dds import bulk, bulk_in_python, native
from tests.edge.parts import RELIABLE, Keyed, Pair, Plain, until

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


def has_two_readers(writer: int) -> bool:
    return native.matched_readers(writer) == 2


def test_both_take_the_same(near: DomainParticipant, far: DomainParticipant) -> None:
    """Of readers that see the same: plain samples of one size and of several, and dead ones."""
    lasting = Policy.WriterDataLifecycle(autodispose=False)
    qos = CycloneQos(RELIABLE, Policy.History.KeepAll, lasting)
    for is_plain, values in (
        (True, [Plain(1, [2]), Plain(3, [4])]),
        (True, [Plain(1, [2]), Plain(3, list(range(200)))]),
        (True, [Plain(1, list(range(250)) * 400)]),
        (True, [Keyed(1, 1, []), Keyed(2, 1, []), Keyed(3, 2, [])]),
        (False, [Keyed(1, 1, []), Keyed(2, 2, []), Keyed(3, 1, [])]),
        (False, [Keyed(1, 1, []), None, Keyed(2, 1, [])]),
    ):
        type_ = type(values[0])
        one = Pair(far, near, type_, offered=qos, asked=qos)
        other = Pair(far, near, type_, offered=qos, asked=qos, name=one.name)
        until(partial(has_two_readers, one.writer._ref))
        for time, value in enumerate(values, 1):
            if value is None:
                one.writer.dispose(Keyed(0, 1, []), time)
            else:
                one.writer.write(value, time)
        one.settle()
        compiled = bulk.take(one.reader._ref, 100, 0x7F)
        in_python = bulk_in_python.take(other.reader._ref, 100, 0x7F)
        assert isinstance(compiled, tuple) == is_plain
        assert compiled == in_python
        assert bulk.take(one.reader._ref, 100, 0x7F) is None
