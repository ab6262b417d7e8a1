"""When the shortcut of lone samples from DDS to wires leaves a sample alone: it is not sure of
it, or somebody has to look first.
"""

# mypy: disable-error-code="arg-type"
# (cyclonedds' type constructors are values, not types, to a checker.)

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from edge_broker.dds import shortcuts
from gateway.tunnel.frames import (
    decode_batch,
)
from tests.edge.outward_parts import Out, leave_a_rest
from tests.edge.parts import Keyed, Plain, take
from tests.edge.shortcut_parts import LONG_S, Wires

pytestmark = pytest.mark.dds


def test_who_waits_is_told_of_what_cannot_wait(
    outwards: Callable[[type], Out], wires: Wires
) -> None:
    """The sample has to go to others, too."""
    out = outwards(Plain)
    out.set(wires, is_all=False)
    out.pair.writer.write(Plain(1, []))
    assert out.wait() == []
    assert shortcuts.taken() == [out.reader]
    assert decode_batch(wires.record()[4:]).count == 1
    assert len(take(out.reader)) == 1


def test_samples_that_come_together_go_together(
    outwards: Callable[[type], Out], wires: Wires
) -> None:
    out = outwards(Plain)
    for index in range(1, 6):
        out.pair.writer.write(Plain(index, []))
    out.pair.settle()
    out.set(wires)
    assert out.wait() == [out.reader]
    assert out.aim.lower()
    assert out.sent_ns() is None
    assert len(take(out.reader)) == 5
    assert wires.is_silent()


def test_none_goes_while_one_that_went_waits_for_too_long_to_be_accounted_for(
    outwards: Callable[[type], Out], wires: Wires
) -> None:
    """No answer has come to it, perhaps none will: it is time to look for another way."""
    out = outwards(Plain)
    out.set(wires, count=10, overdue_s=0.0)
    out.pair.writer.write(Plain(1, []))
    out.pair.settle()
    wires.record()
    out.pair.writer.write(Plain(2, []))
    out.pair.settle()
    assert out.wait() is not None
    assert wires.is_silent()
    assert out.aim.lower()
    assert out.sent_ns() is not None
    assert len(take(out.reader)) == 1
    assert out.sent_ns() is None
    assert len(take(out.reader)) == 1


def test_none_goes_over_a_wire_over_which_an_answer_is_overdue(
    outwards: Callable[[type], Out], wires: Wires
) -> None:
    """Whoever sent what is not answered."""
    out = outwards(Plain)
    shortcuts.expect(wires.near.fileno(), time.time_ns() - 1)
    out.set(wires)
    out.pair.writer.write(Plain(1, []))
    out.pair.settle()
    assert out.wait() == [out.reader]
    assert wires.is_silent()
    assert len(take(out.reader)) == 1
    out.set(wires, is_timed=False)
    out.pair.writer.write(Plain(2, []))
    out.pair.settle()
    wires.record()
    assert out.aim.lower()
    assert len(take(out.reader)) == 1
    shortcuts.expect(wires.near.fileno(), time.time_ns() + int(LONG_S * 1e9))
    out.set(wires)
    out.pair.writer.write(Plain(2, []))
    out.pair.settle()
    wires.record()
    assert out.aim.lower()


@pytest.mark.parametrize("why", ["late", "lowered", "wire lowered", "all", "a rest"])
def test_it_takes_nothing_unless_it_may(
    outwards: Callable[[type], Out], wires: Wires, why: str
) -> None:
    """The sample is there for whoever takes it then."""
    out = outwards(Plain)
    if why == "a rest":
        leave_a_rest(outwards(Plain), wires)
    out.set(wires, good_s=-1.0 if why == "late" else LONG_S)
    if why == "lowered":
        assert not out.aim.lower()
    elif why == "wire lowered":
        wires.ahead.lower(wires.near.fileno())
    elif why == "all":
        shortcuts.lower_all()
    out.pair.writer.write(Plain(1, []))
    assert out.wait() == [out.reader]
    assert not out.aim.lower()
    assert len(take(out.reader)) == 1
    if why != "a rest":
        assert wires.is_silent()


@pytest.mark.parametrize("what", ["large", "disposed", "a stranger's"])
def test_what_it_is_not_sure_of_is_only_taken(
    outwards: Callable[[type], Out], wires: Wires, what: str
) -> None:
    out = outwards(Keyed)
    out.set(wires, writer=out.writer + 1 if what == "a stranger's" else 0)
    if what == "disposed":
        out.pair.writer.dispose(Keyed(0, 1, []))
    else:
        out.pair.writer.write(Keyed(1, 1, [0] * (9000 if what == "large" else 1)))
    assert out.wait() == []
    assert shortcuts.taken() == [out.reader]
    assert out.aim.lower()
    assert out.sent_ns() is None
    assert len(take(out.reader)) == 1
    assert wires.is_silent()


def test_a_reader_that_goes_takes_what_was_taken_with_it(
    outwards: Callable[[type], Out], wires: Wires
) -> None:
    out = outwards(Plain)
    out.set(wires)
    out.pair.writer.write(Plain(1, []))
    assert wires.record()
    out.aim.close()
    assert not shortcuts.taken()
    assert take(out.reader) == []
