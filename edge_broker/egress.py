"""From the tunnel into DDS: keeps a mirror for each remote publisher profile local subscribers
match, asks its edge for samples, writes them in order and once, and acknowledges what is written.
Called by arriving messages, by reconcile and by a tick.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from edge_broker.answers import Answers
from edge_broker.arrivals import Arrivals
from edge_broker.dds.domain import LanDomain
from edge_broker.dds.shortcuts import Accounts
from edge_broker.flight import Flight
from edge_broker.links import ROUTED, Link, Links
from edge_broker.mirror import MIRROR_STATES, Inbound, Mirror
from edge_broker.moment import Moment
from edge_broker.tracing import Tracing
from edge_broker.type_shop import TypeShop
from gateway.errors import DdsError
from gateway.model import FabricView
from gateway.observe.logs import get_logger
from gateway.observe.metrics import BrokerMetrics
from gateway.plan.demand import MirrorKey, WantedMirror
from gateway.shared_loop import running_loop
from gateway.tunnel import messages
from gateway.tunnel.frames import Batch, Peer, StreamKey
from gateway.tunnel.messages import Alive, Close, Open, Probe, Refused

_log = get_logger("edge.egress")

_ANSWER_AFTER_S = 0.025
"""What is to be said of all that came in that long travels together."""
_SETTLE_S = 0.005
_ORPHAN_PATIENCE_S = 30.0
_OPENING_PATIENCE_S = 2.0
_LINGER_S = 1.0
"""How long a writer that leaves waits for readers that have not confirmed everything."""
_DELIVERY_LOOK_S = 0.02
_RETURN_S = 5.0
"""How long an edge that is back in the tree takes at most to be known with all it publishes."""
_MOST_LEFT = 4096


class Egress:
    """All mirrors of one edge."""

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
        self.accounts = Accounts(on_read, self._answering_late, running_loop().give_way)
        self._me = me
        self._tracing = tracing
        self._domain = domain
        self._types = types
        self._links = links
        self._metrics = metrics
        self._window_bytes = window_bytes
        self._clock = clock
        self._mirrors: dict[MirrorKey, Mirror] = {}
        self._inbound: dict[StreamKey, tuple[Inbound, Mirror]] = {}
        self._moment = Moment(_ANSWER_AFTER_S, self._answer)
        self._answers = Answers(me, links, self._inbound, clock, self._moment.ask)
        self._arrivals = Arrivals(me, self._moment.ask)
        self._unwanted_since_s: dict[MirrorKey, float] = {}
        self._view = FabricView()
        self._writable: dict[StreamKey, None] = {}
        self._resting: dict[StreamKey, None] = {}
        self._rest_timer: asyncio.TimerHandle | None = None
        self._is_pump_scheduled = False
        self._is_closing = False
        self._present_since_s: dict[Peer, float] = {}
        """Since when the tree has each edge."""
        self._left_after: OrderedDict[StreamKey, int] = OrderedDict()
        """Streams of edges that have vanished, and what was written of them last."""
        self._flight = Flight()
        self._settle_timer: asyncio.TimerHandle | None = None

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
        if inbound.pending and not (self._flight.is_crowded and batch.stream in self._resting):
            self._writable[batch.stream] = None
            if not self._is_pump_scheduled:
                self._pump()
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
        arrival = inbound.trace.arrived(batch, path, via, link)
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
        mirror = self._mirror_for(message)
        if mirror is None or mirror.writer is None:
            return
        # The LAN may have had some of it from a former mirror, whose acknowledgements were lost.
        first = max(message.first, self._left_after.pop(stream, 0) + 1)
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

    def _mirror_for(self, message: Open) -> Mirror | None:
        stream = message.stream
        key = MirrorKey(stream.edge, stream.incarnation, message.topic, message.profile)
        if (mirror := self._mirrors.get(key)) is not None:
            return mirror
        relatives = [mirror for other, mirror in self._mirrors.items() if other[:3] == key[:3]]
        if not relatives and self._is_settled(Peer(stream.edge, stream.incarnation)):
            self._answers.say_finished(stream, message.topic)  # nobody here wants it any more
        # One of them may be about to become this one, when the tree tells so.
        return next((mirror for mirror in relatives if key.profile in mirror.former), None)

    def _is_settled(self, origin: Peer) -> bool:
        """Whether the tree has told for long enough what this edge publishes. One that was cut off
        speaks before others can read that it is back, and what of it is wanted."""
        since_s = self._present_since_s.get(origin)
        return since_s is not None and self._clock() >= since_s + _RETURN_S

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
            self._start_writing(inbound.key)

    # ------------------------------------------------------------ the pump

    def _start_writing(self, stream: StreamKey) -> None:
        self._writable[stream] = None
        if not self._is_pump_scheduled:
            self._is_pump_scheduled = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """One batch of each stream in turn, then the loop breathes."""
        self._is_pump_scheduled = False
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
                self._finish_if_complete(inbound, mirror)
        if self._writable and not self._is_pump_scheduled:
            self._is_pump_scheduled = True
            asyncio.get_running_loop().call_soon(self._pump)

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
            self._start_writing(stream)

    def _finish_if_complete(self, inbound: Inbound, mirror: Mirror) -> None:
        if not inbound.is_complete or inbound.waits_for is not None:
            return
        self._forget(inbound, mirror)
        self._answers.finish(inbound.key, mirror.key.topic)
        self._release_those_after(inbound.key)
        if not mirror.is_wanted and self._may_go(mirror, self._clock()):
            self._let_go(mirror, self._clock())

    def _release_those_after(self, stream: StreamKey) -> None:
        """Streams that waited for this one go on."""
        for inbound, mirror in list(self._inbound.values()):
            if inbound.waits_for == stream:
                inbound.waits_for = None
                if inbound.pending:
                    self._start_writing(inbound.key)
                self._finish_if_complete(inbound, mirror)

    def _forget(self, inbound: Inbound, mirror: Mirror) -> None:
        inbound.close()
        mirror.count_losses(inbound)
        mirror.inbound.pop(inbound.key, None)
        self._inbound.pop(inbound.key, None)
        self._writable.pop(inbound.key, None)

    # ------------------------------------------------------------ reconciling

    def converge(self, wanted: Mapping[MirrorKey, WantedMirror], view: FabricView) -> None:
        """Makes the mirrors that are wanted exist and others go, once nothing is due to them."""
        self._view = view
        now_s = self._clock()
        present = {Peer(info.edge, info.incarnation) for info in view.edges.values()}
        self._present_since_s = {
            origin: self._present_since_s.get(origin, now_s) for origin in present
        }
        left = {key: mirror for key, mirror in self._mirrors.items() if key not in wanted}
        for key, want in wanted.items():
            mirror = self._mirrors.get(key) or self._succeed(key, want, left)
            if mirror is None:
                mirror = self._mirrors[key] = Mirror(key, want, self._metrics)
            mirror.is_wanted = True
            mirror.leaves_at_s = None
            mirror.subscribers = want.subscribers
            mirror.writers = want.writers
            mirror.type_hash = want.type_hash
            self._unwanted_since_s.pop(key, None)
        for key, mirror in self._mirrors.items():
            if key not in wanted:
                mirror.is_wanted = False
                self._unwanted_since_s.setdefault(key, now_s)
        self._step(now_s)

    def _succeed(
        self, key: MirrorKey, want: WantedMirror, left: dict[MirrorKey, Mirror]
    ) -> Mirror | None:
        """The mirror of these same writers from before they changed policies, changed like them."""
        for before, mirror in left.items():
            if (
                before[:3] == key[:3]
                and mirror.writers == want.writers
                and want.profile.is_successor_of(mirror.profile)
                and mirror.follow(key, want)
            ):
                del self._mirrors[before], left[before]
                self._unwanted_since_s.pop(before, None)
                self._mirrors[key] = mirror
                _log.info("mirror changed", topic=key.topic, origin=key.edge)
                return mirror
        return None

    def tick(self) -> None:
        """What time brings: asking again, liveliness, mirrors whose publisher fell silent."""
        now_s = self._clock()
        self._step(now_s)
        for inbound, mirror in self._inbound.values():
            if inbound.waits_for is not None and inbound.waits_for not in self._inbound:
                self._answers.say_unknown(inbound.waits_for)
            self._answers.remind(inbound, mirror, now_s)
        for mirror in self._mirrors.values():
            mirror.bridge_silence(now_s)
            mirror.clock_offset_ns = self._arrivals.clock_offset_ns(mirror.key.edge)

    def _step(self, now_s: float) -> None:
        for mirror in list(self._mirrors.values()):
            if mirror.is_wanted:
                self._advance(mirror, now_s)
            elif self._may_go(mirror, now_s):
                self._let_go(mirror, now_s)
            else:
                self._ask(mirror, now_s)
        if self._settle_timer is None and any(m.is_settling for m in self._mirrors.values()):
            self._settle_timer = asyncio.get_running_loop().call_later(_SETTLE_S, self._settle)

    def _settle(self) -> None:
        self._settle_timer = None
        self._step(self._clock())

    def _advance(self, mirror: Mirror, now_s: float) -> None:
        profile = mirror.profile
        if mirror.writer is None:
            topic_type = self._types.topic_type(profile.type_name, mirror.type_hash, profile.keyed)
            if topic_type is None:
                mirror.problem = self._types.problem(profile.type_name, mirror.type_hash)
                return
            try:
                writer = self._domain.create_writer(mirror.key.topic, topic_type, profile.qos)
            except DdsError as error:
                if mirror.problem is None:
                    _log.warning(
                        "a topic cannot be written into this LAN; trying again",
                        topic=mirror.key.topic,
                        reason=str(error),
                    )
                mirror.problem = str(error)
                return
            mirror.set_writer(writer, now_s)
            _log.info("mirror made", topic=mirror.key.topic, origin=mirror.key.edge)
        self._ask(mirror, now_s)

    def _ask(self, mirror: Mirror, now_s: float) -> None:
        if mirror.should_ask(now_s):
            frame = messages.subscribe(
                mirror.key.edge,
                self._me,
                mirror.key.incarnation,
                mirror.key.topic,
                mirror.key.profile,
                mirror.number,
            )
            self._links.send(mirror.key.topic, mirror.key.edge, frame)

    def _may_go(self, mirror: Mirror, now_s: float) -> bool:
        """A mirror nobody wants goes at once when its subscribers left; when its publisher left,
        after its last samples, which the end of its stream tells."""
        key = mirror.key
        if not (mirror.inbound or mirror.is_waiting_for_open) or self._is_still_published(key):
            return True
        if any(inbound.pending for inbound in mirror.inbound.values()):
            return False
        edge = self._view.edges.get(key.edge)
        if edge is None or edge.incarnation != key.incarnation:
            # Perhaps only ZooKeeper has lost sight of it: then its samples still come.
            is_lost = not self._links.has_peer(key.edge, key.incarnation)
            return is_lost or self._is_taken_over(mirror)
        patience_s = _ORPHAN_PATIENCE_S if mirror.inbound else _OPENING_PATIENCE_S
        return now_s - self._unwanted_since_s.get(key, now_s) > patience_s

    def _is_taken_over(self, mirror: Mirror) -> bool:
        """Whether another edge of its LAN brings the topic by now: it would come twice."""
        return any(
            other.is_wanted
            and other.has_live_stream
            and (other.key.topic, other.lan) == (mirror.key.topic, mirror.lan)
            and other.key.edge != mirror.key.edge
            for other in self._mirrors.values()
        )

    def _is_still_published(self, key: MirrorKey) -> bool:
        topic = self._view.topics.get(key.topic)
        return topic is not None and any(
            announced.edge == key.edge
            and announced.incarnation == key.incarnation
            and any(profile.id == key.profile for profile, _ in announced.profiles)
            for announced in topic.pubs
        )

    def _let_go(self, mirror: Mirror, now_s: float) -> None:
        """As soon as the LAN's readers have what was written, like any writer that leaves."""
        if mirror.leaves_at_s is None:
            mirror.leaves_at_s = now_s + _LINGER_S
        if now_s >= mirror.leaves_at_s or mirror.is_delivered:
            self._remove(mirror)

    def _remove(self, mirror: Mirror) -> None:
        key = mirror.key
        del self._mirrors[key]
        self._unwanted_since_s.pop(key, None)
        inbounds = list(mirror.inbound.values())
        for inbound in inbounds:
            self._forget(inbound, mirror)
        if mirror.writer is not None:
            self._domain.delete_writer(mirror.writer)
            if self._is_to_be_told(mirror):
                frame = messages.unsubscribe(key.edge, self._me, key.topic, key.profile)
                self._links.send(key.topic, key.edge, frame)
            else:
                for inbound in inbounds:
                    self._left_after[inbound.key] = inbound.written
                while len(self._left_after) > _MOST_LEFT:
                    self._left_after.popitem(last=False)
            _log.info("mirror removed", topic=key.topic, origin=key.edge)

    def _is_to_be_told(self, mirror: Mirror) -> bool:
        """Whether its publisher's edge is to send no more. One that has vanished may come back, and
        then goes on where it was; its next life would take this for its own."""
        edge = self._view.edges.get(mirror.key.edge)
        is_there = edge is not None and edge.incarnation == mirror.key.incarnation
        return is_there or self._is_closing or self._is_taken_over(mirror)

    async def deliver(self) -> None:
        """Waits until the LAN's readers have what was written, but not for long."""
        until_s = self._clock() + _LINGER_S
        while self._clock() < until_s:
            if all(mirror.is_delivered for mirror in self._mirrors.values()):
                return
            await asyncio.sleep(_DELIVERY_LOOK_S)

    def close(self) -> None:
        self._is_closing = True
        self._moment.close()
        for timer in (self._settle_timer, self._rest_timer):
            if timer is not None:
                timer.cancel()
        for mirror in list(self._mirrors.values()):
            self._remove(mirror)

    # ------------------------------------------------------------ looking on

    def topics(self) -> set[str]:
        """Topics that need the tree and the links as long as their mirrors stay."""
        return {key.topic for key in self._mirrors}

    def samples_within(self, deadline_s: float) -> int:
        """Written so far of topics with this deadline or a stricter one."""
        return sum(
            mirror.samples
            for mirror in self._mirrors.values()
            if mirror.profile.qos.deadline_ns <= deadline_s * 1e9
        )

    def observe(self) -> None:
        """Writes what is known of mirrors and streams into the metrics."""
        for inbound, mirror in self._inbound.values():
            mirror.count_losses(inbound)
        waiting_bytes = sum(inbound.waiting_bytes for inbound, _ in self._inbound.values())
        self._metrics.pending_bytes.set(waiting_bytes)
        states = Counter(mirror.state for mirror in self._mirrors.values())
        for state in MIRROR_STATES:
            self._metrics.routes.labels(direction="in", state=state).set(states[state])

    def summary(self) -> list[dict[str, object]]:
        return [
            {
                "topic": mirror.key.topic,
                "origin": mirror.key.edge,
                "profile": mirror.key.profile,
                "state": mirror.state,
                "problem": mirror.problem,
                "samples": mirror.samples,
                "rejected": mirror.rejected,
            }
            for mirror in self._mirrors.values()
        ]
