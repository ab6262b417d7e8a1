"""Rows an edge writes of traced batches and of late samples: whose clock is how far off, which
samples of a batch have a row, and which have none.
"""

from __future__ import annotations

import time
from array import array
from typing import cast

from edge_broker.arrivals import Arrivals
from edge_broker.links import Link
from edge_broker.tracing import IncomingTrace, OutgoingTrace, Tracing
from gateway.config import Trace
from gateway.model import INFINITE_NS
from gateway.observe.trace_schema import TracedBatch
from gateway.observe.traces import TraceWriter
from gateway.tunnel.frames import Batch, BatchTrace, Peer, StreamKey
from gateway.tunnel.messages import Probe
from gateway.tunnel.router_link import RouterLink
from tests.tunnel.parts import hello

MS = 1_000_000
ROUTER_AHEAD_MS, ORIGIN_AHEAD_MS = 50, 120
"""Of the destination's clock."""
ME = Peer("e-b", 2)
KEY = StreamKey("e-a", 1, 4)


class Rows(list[TracedBatch]):
    """In the place of the writer, whose thread is not asked about here."""


class Silent:
    """A link that takes everything."""

    def send(self, frame: bytes) -> bool:
        return True


def pinged(ahead_ms: int, round_trip_ms: int = 2) -> RouterLink:
    """A link to a router whose clock is so far ahead."""
    link = RouterLink("r:1", hello("e-b"), on_frame=lambda *_: None, on_state=lambda _: None)
    link.router, link.is_up = "r1", True
    now_ns = time.time_ns()
    sent_ns = now_ns - round_trip_ms * MS
    link.clock = (sent_ns, (sent_ns + now_ns) // 2 + ahead_ms * MS, now_ns)
    return link


def batch(times: list[int], trace: BatchTrace | None = None) -> Batch:
    payload = memoryview(bytes(4 * len(times)))
    return Batch(KEY, 11, len(times), array("q", times), None, 4, b"", payload, 0, trace)


def traced(**fields: object) -> BatchTrace:
    told = BatchTrace(0.5, 1, 2, {"e-b": 2}, 0, 0, 3, 4)
    return told._replace(**fields)  # type: ignore[arg-type]


class Edge:
    def __init__(self, deadline_ns: int = INFINITE_NS, *, wants_late: bool = True) -> None:
        self.rows = Rows()
        settings = Trace(directory="/nowhere", share=0.25, deadline_misses=wants_late)
        self.arrivals = Arrivals(ME, bool)
        self.tracing = Tracing(settings, "f", ME, "b", cast(TraceWriter, self.rows))
        self.stream: IncomingTrace = self.tracing.incoming(
            KEY, "T", "a", deadline_ns, self.arrivals, is_reliable=True
        )

    def write(self, came: Batch, link: Link, places: range | list[int] | None = None) -> None:
        arrival = self.stream.arrived(came, "routed", "r1", link, time.time_ns())
        if arrival is not None:
            everything = range(came.count)
            self.stream.written(came, arrival, places or everything, time.time_ns(), 3)


def test_the_origins_clock_is_known_by_the_router_between() -> None:
    edge = Edge()
    trace = traced(
        router_clock_offset_ns=(ROUTER_AHEAD_MS - ORIGIN_AHEAD_MS) * MS, router_clock_error_ns=MS
    )
    edge.write(batch([5], trace), pinged(ROUTER_AHEAD_MS))
    (row,) = edge.rows
    assert row.clock_offset_ns is not None and row.clock_error_ns is not None
    assert abs(row.clock_offset_ns - ORIGIN_AHEAD_MS * MS) < MS // 10
    assert 2 * MS <= row.clock_error_ns < 3 * MS
    assert row.router_clock_offset_ns is not None
    assert abs(row.router_clock_offset_ns - ROUTER_AHEAD_MS * MS) < MS // 10
    assert (row.copies, row.share, row.router, row.path) == (2, 0.5, "r1", "routed")
    assert (row.ingress_ns, row.sent_ns, row.router_in_ns, row.router_out_ns) == (1, 2, 3, 4)
    assert (row.first, row.samples, row.lost_before, row.is_winner) == (11, 1, 3, True)


def test_what_was_read_ahead_came_when_it_was_read() -> None:
    """Not when it was accounted for: that is the edge's own time, not the network's."""
    edge = Edge(deadline_ns=1)
    came = batch([5], None)
    read_at_ns = time.time_ns() - 24 * MS
    arrival = edge.stream.arrived(came, "express", "e-a", pinged(0), read_at_ns)
    assert arrival is not None
    edge.stream.written(came, arrival, range(1), read_at_ns + MS, 0)
    (row,) = edge.rows
    assert row.written_ns is not None
    assert (row.egress_ns, row.written_ns - row.egress_ns) == (read_at_ns, MS)


def test_what_the_origin_says_of_its_clock_is_taken_when_it_is_tighter() -> None:
    edge = Edge()
    probe = Probe(Peer("e-a", 1), 1, -ORIGIN_AHEAD_MS * MS, 1000)
    edge.arrivals.answer(probe, cast(Link, Silent()))
    assert edge.arrivals.clock_offset_ns("e-a") == -ORIGIN_AHEAD_MS * MS
    trace = traced(router_clock_offset_ns=77 * MS, router_clock_error_ns=MS)
    edge.write(batch([5], trace), pinged(ROUTER_AHEAD_MS))
    assert edge.rows[0].clock_offset_ns == ORIGIN_AHEAD_MS * MS
    assert edge.rows[0].clock_error_ns is not None and edge.rows[0].clock_error_ns < MS


def test_late_samples_of_untraced_batches_have_rows_and_only_they() -> None:
    edge = Edge(deadline_ns=40 * MS)
    link = pinged(ROUTER_AHEAD_MS)
    link.clock = None
    now_ns = time.time_ns()
    late, fresh = now_ns - 60 * MS, now_ns
    edge.write(batch([late, late, fresh, late, fresh]), link)
    assert [(row.first, row.samples) for row in edge.rows] == [(11, 2), (14, 1)]
    assert {row.selection for row in edge.rows} == {"deadline_miss"}
    assert {(row.share, row.clock_offset_ns, row.ingress_ns) for row in edge.rows} == {
        (0.25, None, None)
    }
    edge.rows.clear()
    edge.write(batch([late, late, late, late]), link, [0, 3])  # the others had expired
    assert [(row.first, row.samples) for row in edge.rows] == [(11, 1), (14, 1)]
    edge.rows.clear()
    edge.write(batch([fresh]), link)
    assert edge.rows == []


def test_a_traced_batch_teaches_the_clock_to_judge_others_by() -> None:
    edge = Edge(deadline_ns=40 * MS)
    link = pinged(ROUTER_AHEAD_MS)
    told = (ROUTER_AHEAD_MS - ORIGIN_AHEAD_MS) * MS
    trace = traced(router_clock_offset_ns=told, router_clock_error_ns=MS)
    by_origin_ns = time.time_ns() + ORIGIN_AHEAD_MS * MS
    edge.write(batch([by_origin_ns], trace), link)
    edge.rows.clear()
    edge.write(batch([by_origin_ns - 60 * MS]), link)
    edge.write(batch([by_origin_ns - 20 * MS]), link)
    assert [row.samples for row in edge.rows] == [1]


def test_without_a_deadline_or_when_not_wanted_late_is_nobodys_business() -> None:
    for edge in (Edge(), Edge(deadline_ns=MS, wants_late=False)):
        edge.write(batch([1]), pinged(0))
        assert edge.rows == []


def test_the_slower_of_two_copies_is_a_row_but_what_was_sent_again_is_none() -> None:
    edge = Edge()
    link = pinged(ROUTER_AHEAD_MS)
    for copies, rows in (({"e-b": 2}, 1), ({}, 0), ({"e-c": 2}, 0)):
        edge.rows.clear()
        came = batch([5, 6], traced(copies=copies))
        arrival = edge.stream.arrived(came, "standby", "r1", link, time.time_ns())
        assert arrival is not None
        edge.stream.overtaken(came, arrival)
        assert len(edge.rows) == rows
        for row in edge.rows:
            assert (row.is_winner, row.written_ns, row.path, row.samples) == (
                False,
                None,
                "standby",
                2,
            )


def test_about_the_share_of_batches_is_chosen_and_all_or_none_at_the_ends() -> None:
    edge = Edge()
    trace = edge.tracing.outgoing(KEY, "T")
    assert isinstance(trace, OutgoingTrace)
    chosen = sum(trace.is_chosen(first) for first in range(1, 40_000, 10))
    assert 900 < chosen < 1100
    nothing = Trace(directory="/nowhere", share=1, topics={"T*": 0.0})
    tracing = Tracing(nothing, "f", ME, "b", cast(TraceWriter, edge.rows))
    assert tracing.outgoing(KEY, "Tx") is None
    assert tracing.outgoing(KEY, "U") is not None
