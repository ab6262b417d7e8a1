"""Whose turn it is to be written into DDS: streams that have something, one batch each a turn;
those whose writer is full rest. Owned by egress, which opens and ends them. How a batch is written
(mirror.py) stays out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from edge_broker.answers import Answers
from edge_broker.flight import Flight
from edge_broker.mirror import Inbound, Mirror
from gateway.tunnel.frames import StreamKey


class WritePump:
    """The streams that have something to write."""

    def __init__(
        self,
        inbound: Mapping[StreamKey, tuple[Inbound, Mirror]],
        answers: Answers,
        window_bytes: int,
        on_written: Callable[[Inbound, Mirror], None],
    ) -> None:
        """`inbound` are the open streams, as egress knows them. `on_written` is told of a stream
        that has nothing more to write for now."""
        self._inbound = inbound
        self._answers = answers
        self._window_bytes = window_bytes
        self._on_written = on_written
        self._writable: dict[StreamKey, None] = {}
        """One that is no longer open stays here until its turn."""
        self._resting: dict[StreamKey, None] = {}
        self._rest_timer: asyncio.TimerHandle | None = None
        self._is_scheduled = False
        self._flight = Flight()

    def write(self, stream: StreamKey) -> None:
        """What has just come is written at once, unless a turn is due anyway, or its writer is full
        and best left alone."""
        if stream in self._resting and self._flight.is_crowded:
            return
        self._writable[stream] = None
        if not self._is_scheduled:
            self._run()

    def add(self, stream: StreamKey) -> None:
        """It has something to write: in the next turn."""
        self._writable[stream] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        """One batch of each stream in turn, then the loop breathes."""
        self._is_scheduled = False
        for stream in list(self._writable):
            found = self._inbound.get(stream)
            if found is None or not found[0].pending or found[0].waits_for is not None:
                del self._writable[stream]
                continue
            inbound, mirror = found
            share = self._flight.share(mirror, time.monotonic())
            if share is not None:
                mirror.hold_to(share)
            if not mirror.write(inbound):
                del self._writable[stream]
                self._rest(stream)
            if inbound.unacknowledged_bytes >= self._window_bytes // 8:
                self._answers.acknowledge(inbound, mirror)
            else:
                self._answers.acknowledge_soon(stream)
            if not inbound.pending:
                self._writable.pop(stream, None)
                self._on_written(inbound, mirror)
        if self._writable and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _rest(self, stream: StreamKey) -> None:
        """The writer is full: its readers must acknowledge before it takes more."""
        self._resting[stream] = None
        if self._rest_timer is None:
            self._rest_timer = asyncio.get_running_loop().call_later(
                self._flight.patience_s, self._end_rest
            )

    def _end_rest(self) -> None:
        self._rest_timer = None
        resting, self._resting = self._resting, {}
        for stream in resting:
            self.add(stream)

    def close(self) -> None:
        """What rests is written no more."""
        if self._rest_timer is not None:
            self._rest_timer.cancel()
