"""What tests of the shortcut from DDS to wires share: a LAN whose samples may go ahead."""

# mypy: disable-error-code="arg-type"
# (cyclonedds' type constructors are values, not types, to a checker.)

from __future__ import annotations

import socket
import time

from cyclonedds.core import GuardCondition, WaitSet
from cyclonedds.domain import DomainParticipant

from edge_broker.dds import native, samples, shortcuts
from edge_broker.dds.samples import Plain as Taken
from edge_broker.dds.shortcuts import OutgoingAim
from gateway.tunnel.frames import (
    encode_batch,
    lone_batch_head,
    stream_id,
)
from tests.edge.parts import Keyed, Pair, Plain
from tests.edge.shortcut_parts import KEY, LONG_S, Wires

SECOND_NS = 1_000_000_000


class Out:
    """A writer in the LAN, the edge's reader, and what waits for it."""

    def __init__(self, near: DomainParticipant, far: DomainParticipant, type_: type) -> None:
        self.pair = Pair(far, near, type_)
        self.reader = self.pair.reader._ref
        self.waitset, self.guard = WaitSet(near), GuardCondition(near)
        assert native.watch_data(self.waitset._ref, self.reader) == native.RETCODE_OK
        assert native.watch_trigger(self.waitset._ref, self.guard._ref) == native.RETCODE_OK
        shortcuts.wake_by(self.guard._ref)
        self.aim = OutgoingAim(self.reader)
        self.pair.writer.write(type_(*_NOTHING[type_]))
        assert self.wait() == [self.reader]
        taken = samples.take(self.reader, 10)
        assert isinstance(taken, Taken)
        (self.writer,) = taken.writer_handles()

    def wait(self) -> list[int]:
        """What has news but for what the shortcut has seen to; something has."""
        began_s = time.monotonic()
        found = samples.wait(self.waitset._ref, 20 * SECOND_NS)
        assert time.monotonic() - began_s < 10.0
        return found

    def set(
        self,
        wires: Wires,
        first: int = 2,
        to: tuple[str, ...] = ("e-b",),
        *,
        more: tuple[Wires, ...] = (),
        count: int = 1,
        writer: int = 0,
        good_s: float = LONG_S,
        overdue_s: float = LONG_S,
        is_all: bool = True,
        is_timed: bool = True,
    ) -> None:
        ways = tuple((each.near.fileno(), lone_batch_head(to)) for each in (wires, *more))
        self.aim.set(
            ways,
            writer or self.writer,
            stream_id(KEY),
            first,
            first + count,
            time.monotonic() + good_s,
            overdue_s=overdue_s,
            is_all=is_all,
            is_timed=is_timed,
        )

    def sent_ns(self) -> int | None:
        """When what the reader gives next was sent; None: it was not."""
        gone = self.aim.gone()
        return gone.sent_ns if gone is not None and gone.ways else None


_NOTHING: dict[type, tuple[object, ...]] = {Plain: (0, []), Keyed: (0, 1, [])}


def leave_a_rest(out: Out, wires: Wires) -> bytes:
    """A record that did not fit onto the wire; as the edge would have encoded it."""
    wires.near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    for _ in range(100):
        out.set(wires)
        out.pair.writer.write(Plain(1, [3] * 8000))
        out.pair.settle()  # it was received, and so was looked at
        assert out.aim.lower()
        sent_ns = out.sent_ns()
        taken = samples.take(out.reader, 10)
        assert isinstance(taken, Taken)
        assert sent_ns is not None
        frame = encode_batch(KEY, ("e-b",), 2, taken.packed, sent_ns)
        try:
            wires.ahead.send(wires.near.fileno(), b"")
        except BlockingIOError:
            return len(frame).to_bytes(4, "little") + frame
        wires.record()
    raise AssertionError("everything fitted")
