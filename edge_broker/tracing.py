"""Which batches are traced, and the rows of those that arrive. Made by the edge's app when there is
a directory for traces; called by outflows and by egress. What rows mean is in trace_schema.py.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.arrivals import Arrivals
from edge_broker.clocks import Clock, LinkClocks
from edge_broker.deadlines import Group
from edge_broker.links import DIRECT, EXPRESS, Link
from gateway.config import Trace
from gateway.model import INFINITE_NS
from gateway.observe.trace_schema import (
    Selection,
    TracedBatch,
    TracedStream,
    is_sampled,
    share_of,
)
from gateway.tunnel.frames import Batch, BatchTrace, Peer, StreamKey
from gateway.tunnel.router_link import RouterLink
from gateway.tunnel.traced import with_trace

if TYPE_CHECKING:  # the door to pyarrow opens only where traces are written
    from gateway.observe.traces import TraceWriter

_HEARD_S = 60.0
"""What a traced batch told of its edge's clock serves others of that edge so long."""


class Tracing:
    """Of one edge."""

    def __init__(
        self, settings: Trace, fabric: str, me: Peer, lan: str, writer: TraceWriter
    ) -> None:
        self._settings = settings
        self._fabric = fabric
        self._me = me
        self._lan = lan
        self._writer = writer
        self._clocks = LinkClocks()
        self._heard: dict[str, tuple[Clock, float]] = {}

    def tick(self) -> None:
        self._clocks.tick()

    def share(self, topic: str) -> float:
        return share_of(topic, self._settings.topics, self._settings.share)

    def outgoing(self, key: StreamKey, topic: str) -> OutgoingTrace | None:
        """None: nothing of this stream is traced."""
        share = self.share(topic)
        return OutgoingTrace(key, share, self._clocks) if share > 0 else None

    def incoming(
        self,
        key: StreamKey,
        topic: str,
        origin_lan: str,
        deadline_ns: int,
        arrivals: Arrivals,
        *,
        is_reliable: bool,
    ) -> IncomingTrace:
        stream = TracedStream(
            fabric=self._fabric,
            topic=topic,
            origin_lan=origin_lan,
            origin_edge=key.edge,
            origin_incarnation=key.incarnation,
            stream=key.number,
            destination_lan=self._lan,
            destination_edge=self._me.edge,
            is_reliable=is_reliable,
            deadline_ns=deadline_ns,
        )
        return IncomingTrace(
            stream,
            self,
            arrivals,
            wants_late=self._settings.deadline_misses and deadline_ns < INFINITE_NS,
        )

    def append(self, batch: TracedBatch) -> None:
        self._writer.append(batch)

    def copies_to_here(self, trace: BatchTrace) -> int:
        return trace.copies.get(self._me.edge, 1)

    # ------------------------------------------------------------ clocks

    def clock_at(self, link: Link) -> Clock | None:
        return self._clocks.of(link)

    def origin_clock(
        self, edge: str, link: Link, trace: BatchTrace | None, arrivals: Arrivals
    ) -> Clock | None:
        """The best that is known of the clock of the edge a batch came from."""
        now_s = time.monotonic()
        at_link = self._clocks.of(link)
        found = [arrivals.clock(edge, now_s)]
        if not isinstance(link, RouterLink):
            found.append(at_link)
        elif trace is not None and trace.router_clock_error_ns and at_link is not None:
            # Both edges know the router's clock.
            both = Clock(
                at_link.offset_ns - trace.router_clock_offset_ns,
                at_link.error_ns + trace.router_clock_error_ns,
            )
            self._heard[edge] = both, now_s
            found.append(both)
        elif (heard := self._heard.get(edge)) is not None:
            if now_s - heard[1] > _HEARD_S:
                del self._heard[edge]
            else:
                found.append(heard[0].aged(now_s - heard[1]))
        known = [each for each in found if each is not None]
        return min(known, key=lambda each: each.error_ns) if known else None


class OutgoingTrace:
    """Of one stream that leaves."""

    def __init__(self, key: StreamKey, share: float, clocks: LinkClocks) -> None:
        self._key = key
        self._share = share
        self._clocks = clocks

    def is_chosen(self, first: int) -> bool:
        return is_sampled(self._key.incarnation, self._key.number, first, self._share)

    def mark(
        self, frame: bytes, group: Group | None, plan: Sequence[Group], taken_ns: int
    ) -> bytes:
        """The frame as it is given to the link of this group now; None: to no link yet."""
        copies: Mapping[str, int] = {}
        if len(plan) > 1:
            counted = Counter(edge for each in plan for edge in each.edges)
            copies = {edge: count for edge, count in counted.items() if count > 1}
        clock = None
        if group is not None and isinstance(group.link, RouterLink):
            clock = self._clocks.of(group.link)
        trace = BatchTrace(
            self._share,
            taken_ns,
            0 if group is None else time.time_ns(),
            copies,
            0 if clock is None else clock.offset_ns,
            0 if clock is None else clock.error_ns,
        )
        return with_trace(frame, trace)


class Arrival(NamedTuple):
    """How one copy of a batch came."""

    at_ns: int
    path: str
    via: str
    link: Link


class IncomingTrace:
    """Of one stream that comes."""

    def __init__(
        self, stream: TracedStream, tracing: Tracing, arrivals: Arrivals, *, wants_late: bool
    ) -> None:
        self._stream = stream
        self._tracing = tracing
        self._arrivals = arrivals
        self._wants_late = wants_late
        self._share = tracing.share(stream.topic)

    def arrived(self, batch: Batch, path: str, via: str, link: Link, at_ns: int) -> Arrival | None:
        """None: nothing will be written of it."""
        if batch.trace is None and not self._wants_late:
            return None
        return Arrival(at_ns, path, via, link)

    def overtaken(self, batch: Batch, arrival: Arrival) -> None:
        """Another copy of a traced batch came before this one."""
        trace = batch.trace
        if trace is not None and self._tracing.copies_to_here(trace) > 1:
            self._row(batch, arrival, 0, batch.count, Selection.SAMPLED, None, 0)

    def written(
        self,
        batch: Batch,
        arrival: Arrival,
        places: range | Sequence[int],
        written_ns: int,
        lost: int,
    ) -> None:
        """The samples at these places of it, in their order, are in DDS since then."""
        selection = Selection.SAMPLED
        if batch.trace is None:
            selection = Selection.DEADLINE_MISS
            places = self._late(batch, arrival, places, written_ns)
        for first, count in _runs(places):
            self._row(batch, arrival, first, count, selection, written_ns, lost)

    def _late(
        self, batch: Batch, arrival: Arrival, places: range | Sequence[int], written_ns: int
    ) -> Sequence[int]:
        clock = self._origin_clock(batch, arrival)
        offset_ns = 0 if clock is None else clock.offset_ns
        oldest_ns = written_ns + offset_ns - self._stream.deadline_ns
        times = batch.timestamps
        if min(times) >= oldest_ns:
            return ()
        return [at for at in places if times[at] < oldest_ns]

    def _origin_clock(self, batch: Batch, arrival: Arrival) -> Clock | None:
        return self._tracing.origin_clock(
            self._stream.origin_edge, arrival.link, batch.trace, self._arrivals
        )

    def _row(
        self,
        batch: Batch,
        arrival: Arrival,
        first: int,
        count: int,
        selection: Selection,
        written_ns: int | None,
        lost: int,
    ) -> None:
        trace = batch.trace
        hops = BatchTrace(0.0, 0, 0, {}) if trace is None else trace
        is_direct = arrival.via in DIRECT
        clock = self._origin_clock(batch, arrival)
        router_clock = None if is_direct else self._tracing.clock_at(arrival.link)
        part = slice(first, first + count)
        sizes = batch.sizes
        self._tracing.append(
            TracedBatch(
                stream=self._stream,
                first=batch.first + first,
                samples=count,
                source_ns=batch.timestamps[part],
                sizes=None if sizes is None else sizes[part],
                uniform_size=batch.uniform_size,
                batch_samples=batch.count,
                path=EXPRESS if is_direct else arrival.path,
                router=None if is_direct else arrival.via,
                is_winner=written_ns is not None,
                selection=selection.value,
                share=self._share if trace is None else trace.share,
                egress_ns=arrival.at_ns,
                written_ns=written_ns,
                ingress_ns=hops.ingress_ns or None,
                sent_ns=hops.sent_ns or batch.sent_ns or None,
                router_in_ns=hops.router_in_ns or None,
                router_out_ns=hops.router_out_ns or None,
                clock_offset_ns=None if clock is None else clock.offset_ns,
                clock_error_ns=None if clock is None else clock.error_ns,
                router_clock_offset_ns=None if router_clock is None else router_clock.offset_ns,
                router_clock_error_ns=None if router_clock is None else router_clock.error_ns,
                copies=self._tracing.copies_to_here(hops),
                lost_before=lost if written_ns is not None else None,
            )
        )


def _runs(places: Iterable[int]) -> Iterator[tuple[int, int]]:
    """First and length of what follows each other without a gap."""
    if isinstance(places, range):
        if places:
            yield places.start, len(places)
        return
    first = last = -2
    for at in places:
        if at != last + 1:
            if first >= 0:
                yield first, last + 1 - first
            first = at
        last = at
    if first >= 0:
        yield first, last + 1 - first
