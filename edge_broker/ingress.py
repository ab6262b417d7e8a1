"""From DDS into the tunnel: answers LANs that ask for publisher profiles, takes from all readers at
the pace of links and subscribers, and serves acknowledgements. Called by the DDS wait thread
(through the loop), by arriving messages, by reconcile and by a tick. Outflows are opened and closed
in outflows.py, subscribers given up in awaited.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from edge_broker.awaited import Awaited
from edge_broker.dds.discovery import Discovery
from edge_broker.dds.domain import LanDomain
from edge_broker.deadlines import DeadlinePolicy
from edge_broker.feed import Feed
from edge_broker.links import Links
from edge_broker.outflow import Outflow
from edge_broker.outflow_report import StreamGauges, summarise
from edge_broker.outflows import OutflowLimits, Outflows
from edge_broker.pairs import Pairs
from edge_broker.take_pump import TakePump
from edge_broker.tracing import Tracing
from edge_broker.type_shop import TypeShop
from gateway.model import FabricView, Profile
from gateway.observe.logs import get_logger
from gateway.observe.metrics import BrokerMetrics
from gateway.plan.demand import ProfileKey
from gateway.tunnel import messages
from gateway.tunnel.frames import Peer
from gateway.tunnel.messages import Ack, Arrivals, ProbeAnswer, Subscribe, Unsubscribe

_log = get_logger("edge.ingress")


class Ingress:
    """The way out of one LAN."""

    def __init__(
        self,
        me: Peer,
        domain: LanDomain,
        discovery: Discovery,
        types: TypeShop,
        links: Links,
        limits: OutflowLimits,
        metrics: BrokerMetrics,
        deadlines: DeadlinePolicy,
        clock: Callable[[], float] = time.monotonic,
        *,
        laggard_timeout_s: float,
        tracing: Tracing | None = None,
    ) -> None:
        self._me = me
        self._links = links
        self._clock = clock
        self._local: dict[ProfileKey, Profile] = {}
        self._readers: dict[int, Feed] = {}
        self._pairs = Pairs(me, links, clock)
        self._pump = TakePump(domain, clock, self._readers, self._end_replay)
        self._outflows = Outflows(
            me,
            domain,
            discovery,
            types,
            links,
            limits,
            metrics,
            deadlines,
            self._pairs,
            self._pump,
            self._readers,
            tracing=tracing,
        )
        self._live: Mapping[ProfileKey, Outflow] = self._outflows.live
        self._streams: Mapping[int, Outflow] = self._outflows.streams
        self._awaited = Awaited(self._outflows, links, laggard_timeout_s=laggard_timeout_s)
        self._gauges = StreamGauges(metrics, clock)
        self._aimed_for = -1
        """The generation of links the aims of all outflows are good for, at least."""
        self._view = FabricView()
        self._is_stopping = False
        self.drained = asyncio.Event()

    def on_ready(self, readers: list[int]) -> None:
        """These readers have data."""
        for reader in readers:
            feed = self._readers.get(reader)
            outflow = None if feed is None else self._live.get(feed.key)
            if outflow is not None:
                self._pump.add(outflow)
        self._pump.run()

    def on_taken(self, readers: list[int]) -> None:
        """Of these readers a sample was taken, and perhaps sent, before this was called."""
        now_s = self._clock()
        for reader in readers:
            feed = self._readers.get(reader)
            outflow = None if feed is None else self._live.get(feed.key)
            if outflow is not None and outflow.account(now_s):
                self._pump.add(outflow)
                self._pump.wake()

    def wake(self) -> None:
        """Something that may have held an outflow back has changed."""
        self._pump.wake()

    def _end_replay(self, outflow: Outflow) -> None:
        """Its source has no more."""
        outflow.end()
        outflow.notices.announce_end(self._clock())

    # ------------------------------------------------------------ messages

    def on_subscribe(self, message: Subscribe) -> None:
        """Another LAN has a mirror in place and wants this profile."""
        if self._is_stopping or message.origin_incarnation != self._me.incarnation:
            return
        if not self._awaited.is_alive(message.subscriber):
            return  # perhaps it is only ahead of the tree: it asks again
        key = (message.topic, message.profile)
        outflow = self._live.get(key)
        if outflow is None:
            profile = self._local.get(key)
            if profile is None:
                return  # it asks again; by then the profile may be known or its wish gone
            outflow = self._outflows.open(message.topic, profile, self._view)
            if outflow is None:
                return
        edge, incarnation = message.subscriber
        if self._awaited.is_taken_over(edge, outflow):
            return  # it asks again, in case the other one goes
        outflow.settle_aim()  # or a sample would be neither in the history nor in the stream
        known = outflow.stream.subscribers.get(edge)
        is_new = message.mirror != outflow.mirrors.get(edge, message.mirror)
        if known == incarnation and not (is_new and outflow.history is not None):
            outflow.mirrors[edge] = message.mirror
            # It asks because it has no such stream, or not yet.
            outflow.adopted.pop(edge, None)
            outflow.reopen(edge, incarnation)
            outflow.resend(self._clock())
            return
        if known is not None:
            self._outflows.drop_subscriber(outflow, edge)
        prelude = 0
        if outflow.history is not None and len(outflow.history):
            prelude = self._outflows.open_replay(outflow, edge, incarnation)
        _log.info("subscriber joins", topic=outflow.topic, edge=edge, stream=outflow.key.number)
        outflow.add_subscriber(edge, incarnation, prelude)
        outflow.mirrors[edge] = message.mirror
        self._awaited.on_join(outflow, self._clock())
        self._pump.add(outflow)
        self.wake()

    def on_unsubscribe(self, message: Unsubscribe) -> None:
        edge, incarnation = message.subscriber
        for outflow in list(self._streams.values()):
            if (
                (outflow.topic, outflow.profile_id) == (message.topic, message.profile)
                and outflow.key.number in self._streams
                and outflow.stream.subscribers.get(edge) == incarnation
            ):
                _log.info("subscriber leaves", topic=message.topic, edge=edge)
                self._outflows.drop_subscriber(outflow, edge)
                self._outflows.settle(outflow)
        self.wake()

    def on_ack(self, message: Ack) -> None:
        outflow = self._streams.get(message.stream.number)
        edge, incarnation = message.subscriber
        if outflow is None or message.stream.incarnation != self._me.incarnation:
            if not message.finished:
                self._refuse(message, "this stream is over")
            return
        if outflow.stream.subscribers.get(edge) != incarnation:
            if not message.finished:
                self._refuse(message, "this edge does not subscribe to it any longer")
            return
        now_s = self._clock()
        if not message.unknown:
            outflow.adopted.pop(edge, None)
        if message.finished:
            if not outflow.is_ending:  # it wants no more of it
                self._outflows.drop_subscriber(outflow, edge)
            outflow.notices.finished(edge)
            self._outflows.settle(outflow)
        elif message.unknown:
            outflow.reopen(edge, incarnation)
            outflow.resend(now_s)
        else:
            outflow.on_ack(edge, incarnation, message.cumulative, message.ranges, now_s)
            if message.ranges or outflow.stream.is_recovering:
                outflow.resend(now_s)
        self.wake()

    def _refuse(self, message: Ack, reason: str) -> None:
        topic = ""
        edge = message.subscriber.edge
        self._links.send(topic, edge, messages.refused(reason, message.stream, (edge,)))

    # ------------------------------------------------------------ reconciling

    def set_local(self, profiles: Mapping[ProfileKey, Profile]) -> None:
        """The LAN's publisher profiles this edge is responsible for, whole."""
        if self._is_stopping:
            return
        self._local = dict(profiles)
        self._outflows.follow(profiles, self._clock())
        self.wake()

    def set_view(self, view: FabricView) -> None:
        self._view = view
        self._awaited.see(view, self._clock())
        self._outflows.heed_policies()
        self._renew_aims()
        self.wake()

    def on_links_changed(self) -> None:
        """Paths may have changed: what was under way on a lost one is sent again."""
        self._pairs.on_links_changed()
        for outflow in self._streams.values():
            for edge in outflow.reach.lost():
                outflow.notices.send_open(edge)
                outflow.stream.mark_for_resend(edge)
            outflow.resend(self._clock())
        self._renew_aims()
        self.wake()

    def _renew_aims(self) -> None:
        """Paths are others than those the next samples were to take."""
        if self._aimed_for != self._links.generation:
            self._aimed_for = self._links.generation
            now_s = self._clock()
            for outflow in self._live.values():
                outflow.renew_aim(now_s)

    def tick(self) -> None:
        """What time brings: resends, ends, laggards."""
        self._pairs.tick()
        now_s = self._clock()
        self._outflows.weigh()
        for outflow in list(self._streams.values()):
            outflow.resend(now_s)
            outflow.notices.announce_end(now_s)
            self._awaited.leave_laggards_behind(outflow, now_s)
            self._outflows.settle(outflow)
        self._outflows.announce_life(now_s)
        self._awaited.tick(now_s)
        self._outflows.end_left(now_s)
        if self._is_stopping and not any(
            outflow.reach.plan() for outflow in self._streams.values()
        ):
            self.drained.set()
        self.wake()

    def stop(self) -> None:
        """The edge leaves: every stream ends with what its reader still has. `drained` tells when
        all subscribers have it."""
        self._is_stopping = True
        self._outflows.end_all()
        self._pump.hurry()
        self.wake()
        self.tick()

    def close(self) -> None:
        self._outflows.close()

    # ------------------------------------------------------------ looking on

    def express_peers(self) -> set[str]:
        """Edges that topics with strict deadlines go to."""
        return {
            edge
            for outflow in self._streams.values()
            if outflow.deadline is not None
            for edge in outflow.stream.destinations
        }

    def on_answer(self, message: ProbeAnswer, via: str) -> None:
        self._pairs.on_answer(message, via)

    def on_arrivals(self, message: Arrivals, via: str) -> None:
        self._pairs.on_arrivals(message, via)

    def pairs_summary(self) -> list[dict[str, Any]]:
        return self._pairs.summary()

    def topics(self) -> set[str]:
        """Topics that need the tree and the links as long as their streams last."""
        return {outflow.topic for outflow in self._streams.values()}

    def samples_within(self, deadline_s: float) -> int:
        """Sent so far of topics with this deadline or a stricter one."""
        return sum(
            outflow.stream.next_number - 1
            for outflow in self._live.values()
            if outflow.deadline is not None and outflow.deadline.deadline_s <= deadline_s
        )

    def observe(self) -> None:
        """Writes what is known of the streams into the metrics."""
        self._gauges.show(self._streams.values(), self._view, self._outflows.kept_beyond_bytes)

    def summary(self) -> list[dict[str, object]]:
        return summarise(self._streams.values())
