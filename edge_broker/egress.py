"""From the tunnel into DDS: opens and ends the streams that feed mirrors, has what arrives written
in order and once, and acknowledges it. Called by arriving messages and by a tick. Which mirrors
there are (mirrors.py) and the pace of writing (write_pump.py) stay out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from edge_broker.answers import Answers
from edge_broker.arrivals import Arrivals
from edge_broker.dds.domain import LanDomain
from edge_broker.dds.shortcuts import Accounts
from edge_broker.links import ROUTED, Link, Links
from edge_broker.mirror import Inbound, Mirror
from edge_broker.mirrors import Mirrors
from edge_broker.moment import Moment
from edge_broker.tracing import Tracing
from edge_broker.type_shop import TypeShop
from edge_broker.write_pump import WritePump
from gateway.observe.logs import get_logger
from gateway.observe.metrics import BrokerMetrics
from gateway.plan.demand import MirrorKey
from gateway.shared_loop import running_loop
from gateway.tunnel.frames import Batch, Peer, StreamKey
from gateway.tunnel.messages import Alive, Close, Open, Probe, Refused

_log = get_logger("edge.egress")

_ANSWER_AFTER_S = 0.025
"""What is to be said of all that came in that long travels together."""


class Egress:
    """All streams into one edge."""

    def __init__(
        self,
        me: Peer,
        domain: LanDomain,
        types: TypeShop,
        links: Links,
        metrics: BrokerMetrics,
        *,
        window_bytes: int,
        clock: Callable[[], float] = time.monotonic,
        on_read: Callable[[int, bytes], None],
        tracing: Tracing | None = None,
    ) -> None:
        """`on_read` gets what was read ahead of turns."""
        self.accounts = Accounts(on_read, self._answering_late, running_loop())
        self._me = me
        self._tracing = tracing
        self._links = links
        self._metrics = metrics
        self._window_bytes = window_bytes
        self._clock = clock
        self._inbound: dict[StreamKey, tuple[Inbound, Mirror]] = {}
        self._moment = Moment(_ANSWER_AFTER_S, self._answer)
        self._answers = Answers(me, links, self._inbound, clock, self._moment.ask)
        self._arrivals = Arrivals(me, self._moment.ask)
        self._pump = WritePump(self._inbound, self._answers, window_bytes, self._finish_if_complete)
        self.mirrors = Mirrors(
            me,
            domain,
            types,
            links,
            metrics,
            clock,
            clock_offset_ns=self._arrivals.clock_offset_ns,
            forget=self._forget,
        )

    # ------------------------------------------------------------ messages

    def on_batch(self, batch: Batch, via: str, link: Link) -> None:
        read_at_ns = self.accounts.read_at_ns
        found = self._inbound.get(batch.stream)
        if found is not None and found[0].is_aimed and not read_at_ns:
            self._settle_aim(found[0])
            found = self._inbound.get(batch.stream)
        if batch.sent_ns:
            # Also for a stream that has just ended or is not open yet: this tells of the path.
            origin = Peer(batch.stream.edge, batch.stream.incarnation)
            arrived_ns = read_at_ns or time.time_ns()
            self._arrivals.note(
                origin, via, link, batch.sent_ns, arrived_ns, is_current=found is not None
            )
        if found is None:
            self._answers.say_unknown(batch.stream)
            return
        inbound, mirror = found
        path = ROUTED
        if batch.sent_ns:
            inbound.answer_link = link
            path = self._links.name_of(mirror.key.topic, via)
        if inbound.trace is None:
            inbound.offer(batch, path)
        else:
            self._offer_traced(inbound, mirror, batch, via, link)
        if inbound.pending:
            self._pump.write(batch.stream)
        if inbound.incoming.has_gap or not inbound.pending:
            self._answers.acknowledge_soon(batch.stream)
        if batch.count == 1 and mirror.shortcut is not None and link.is_read_ahead:
            inbound.take_aim(mirror.shortcut)
        elif inbound.is_aimed:
            inbound.lower_aim()

    def _settle_aim(self, inbound: Inbound) -> None:
        """Before anything else is done with the stream: what was written ahead of it is accounted
        for, which takes aim again, and nothing more is."""
        while inbound.lower_aim() and self.accounts.settle():
            continue

    @contextmanager
    def _answering_late(self, since_ns: int) -> Iterator[None]:
        """Batches that come meanwhile came earlier, the first of them then: what is to be said of
        them has waited for so long already."""
        self._moment.hold()
        try:
            yield
        finally:
            self._moment.let_go(max(0, time.time_ns() - since_ns) / 1e9)

    def _answer(self) -> None:
        self._answers.acknowledge_due(self._arrivals.reports())

    def _offer_traced(
        self, inbound: Inbound, mirror: Mirror, batch: Batch, via: str, link: Link
    ) -> None:
        assert inbound.trace is not None
        path = self._links.name_of(mirror.key.topic, via)
        at_ns = self.accounts.read_at_ns or time.time_ns()
        arrival = inbound.trace.arrived(batch, path, via, link, at_ns)
        known = inbound.incoming.duplicates
        inbound.offer(batch, path if batch.sent_ns else ROUTED, arrival)
        if arrival is not None and inbound.incoming.duplicates - known >= batch.count:
            inbound.trace.overtaken(batch, arrival)

    def on_open(self, message: Open) -> None:
        if message.subscriber_incarnation != self._me.incarnation:
            return  # meant for a former life of this edge
        stream = message.stream
        known = self._inbound.get(stream)
        if known is not None:
            self._resynchronise(known[0], message.first)
            return
        if self._answers.is_finished(stream):
            self._answers.say_finished(stream, message.topic)
            return
        key = MirrorKey(stream.edge, stream.incarnation, message.topic, message.profile)
        mirror = self.mirrors.find(key)
        if mirror is None or mirror.writer is None:
            if self.mirrors.is_unwanted(key):
                self._answers.say_finished(stream, message.topic)
            return
        # The LAN may have had some of it from a former mirror, whose acknowledgements were lost.
        first = max(message.first, self.mirrors.recall(stream) + 1)
        inbound = Inbound(stream, first, reliable=message.reliable, hold_bytes=self._window_bytes)
        if self._tracing is not None and not self._is_prelude(stream):
            inbound.trace = self._tracing.incoming(
                stream,
                message.topic,
                mirror.lan,
                mirror.profile.qos.deadline_ns,
                self._arrivals,
                is_reliable=message.reliable,
            )
        if message.history:
            prelude = StreamKey(stream.edge, stream.incarnation, message.history)
            if not self._answers.is_finished(prelude):
                inbound.waits_for = prelude
                if (replay := self._inbound.get(prelude)) is not None:
                    replay[0].trace = None
        self._inbound[stream] = (inbound, mirror)
        mirror.inbound[stream] = inbound
        mirror.is_waiting_for_open = False
        _log.info("stream opened", topic=message.topic, origin=stream.edge, stream=stream.number)
        self._answers.acknowledge_soon(stream)

    def _is_prelude(self, stream: StreamKey) -> bool:
        """Whether its samples are history: then they are not late, they are old."""
        return any(inbound.waits_for == stream for inbound, _ in self._inbound.values())

    def on_close(self, message: Close) -> None:
        found = self._inbound.get(message.stream)
        if found is None:
            self._answers.say_unknown(message.stream)
            return
        inbound, mirror = found
        inbound.closes_after = message.last
        self._finish_if_complete(inbound, mirror)

    def on_refused(self, message: Refused) -> None:
        """The publisher's edge has given this stream up: begin again."""
        if message.stream is None:
            return
        found = self._inbound.get(message.stream)
        if found is not None:
            inbound, mirror = found
            _log.warning(
                "a stream was refused; asking again", topic=mirror.key.topic, reason=message.reason
            )
            self._forget(inbound, mirror)
            mirror.ask_again()
        else:
            self._release_those_after(message.stream)

    def on_alive(self, message: Alive) -> None:
        """The writer of this stream, whose liveliness is manual, has said that it lives."""
        found = self._inbound.get(message.stream)
        if found is not None:
            found[1].assert_liveliness()

    def on_probe(self, message: Probe, link: Link) -> None:
        self._arrivals.answer(message, link)

    def on_links_changed(self) -> None:
        self._answers.on_links_changed()

    def _resynchronise(self, inbound: Inbound, first: int) -> None:
        """An edge that was left behind is told where the stream is now; what lies between is
        lost to this LAN."""
        self._settle_aim(inbound)
        lost_before = inbound.incoming.lost
        inbound.advance(first)
        lost = inbound.incoming.lost - lost_before
        if lost:
            _log.warning(
                "this LAN was left behind and lost samples; check its subscribers and its link",
                stream=inbound.key.number,
                samples=lost,
            )
        if inbound.pending:
            self._pump.add(inbound.key)

    # ------------------------------------------------------------ the end of streams

    def _finish_if_complete(self, inbound: Inbound, mirror: Mirror) -> None:
        if not inbound.is_complete or inbound.waits_for is not None:
            return
        self._forget(inbound, mirror)
        self._answers.finish(inbound.key, mirror.key.topic)
        self._release_those_after(inbound.key)
        self.mirrors.on_finished(mirror)

    def _release_those_after(self, stream: StreamKey) -> None:
        """Streams that waited for this one go on."""
        for inbound, mirror in list(self._inbound.values()):
            if inbound.waits_for == stream:
                inbound.waits_for = None
                if inbound.pending:
                    self._pump.add(inbound.key)
                self._finish_if_complete(inbound, mirror)

    def _forget(self, inbound: Inbound, mirror: Mirror) -> None:
        inbound.close()
        mirror.count_losses(inbound)
        mirror.inbound.pop(inbound.key, None)
        self._inbound.pop(inbound.key, None)

    # ------------------------------------------------------------ time and the end

    def tick(self) -> None:
        """What time brings to mirrors, and answers that may have been lost."""
        self.mirrors.tick()
        now_s = self._clock()
        for inbound, mirror in self._inbound.values():
            if inbound.waits_for is not None and inbound.waits_for not in self._inbound:
                self._answers.say_unknown(inbound.waits_for)
            self._answers.remind(inbound, mirror, now_s)

    def close(self) -> None:
        self._moment.close()
        self._pump.close()
        self.mirrors.close()

    # ------------------------------------------------------------ looking on

    def observe(self) -> None:
        """Writes what is known of mirrors and streams into the metrics."""
        for inbound, mirror in self._inbound.values():
            mirror.count_losses(inbound)
        waiting_bytes = sum(inbound.waiting_bytes for inbound, _ in self._inbound.values())
        self._metrics.pending_bytes.set(waiting_bytes)
        self.mirrors.observe()
