"""From DDS into the tunnel: opens a reader when another LAN asks for a publisher profile, takes
from all readers at the pace of links and subscribers, and serves acknowledgements. Called by the
DDS wait thread (through the loop), by arriving messages, by reconcile and by a tick.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from edge_broker.dds.discovery import Discovery
from edge_broker.dds.domain import LanDomain
from edge_broker.deadlines import DeadlinePolicy, DeadlineRouting
from edge_broker.feed import Feed
from edge_broker.history import HistoryCache
from edge_broker.links import Links
from edge_broker.outflow import Outflow
from edge_broker.outflow_report import StreamGauges, summarise
from edge_broker.pairs import Pairs
from edge_broker.source import ReaderSource, ReplaySource
from edge_broker.take_pump import TakePump
from edge_broker.tracing import Tracing
from edge_broker.type_shop import TypeShop
from gateway.errors import DdsError
from gateway.model import Durability, FabricView, Profile
from gateway.observe.logs import get_logger
from gateway.observe.metrics import BrokerMetrics
from gateway.plan.absence import Absence
from gateway.plan.demand import ProfileKey, type_of_subscribers
from gateway.tunnel import messages
from gateway.tunnel.frames import Peer, StreamKey
from gateway.tunnel.messages import Ack, Arrivals, ProbeAnswer, Subscribe, Unsubscribe

_log = get_logger("edge.ingress")

_STALL_LIMIT_S = 8.0
"""A full reader stops the reception of its whole DDS domain, and after 10 s of silence the edge
would take all applications of its LAN for dead."""
_LINGER_S = 5.0
"""How long the reader of a profile without writers waits at most for DDS to say that they left."""
_ADOPTION_S = 5.0
"""How long a subscriber that was handed over to the successor of its stream has to confirm it."""


@dataclass(frozen=True, slots=True)
class IngressLimits:
    """The settings that bound ingress."""

    window_bytes: int
    batch_bytes: int
    batch_samples: int
    reader_samples: int
    reader_bytes: int
    history_bytes: int
    outage_bytes: int
    laggard_timeout_s: float


class Ingress:
    """All outflows of one edge."""

    def __init__(
        self,
        me: Peer,
        domain: LanDomain,
        discovery: Discovery,
        types: TypeShop,
        links: Links,
        limits: IngressLimits,
        metrics: BrokerMetrics,
        deadlines: DeadlinePolicy,
        clock: Callable[[], float] = time.monotonic,
        *,
        tracing: Tracing | None = None,
    ) -> None:
        self._tracing = tracing
        self._deadlines = deadlines
        self._pairs = Pairs(me, links, clock)
        self._me = me
        self._domain = domain
        self._discovery = discovery
        self._types = types
        self._links = links
        self._limits = limits
        self._metrics = metrics
        self._clock = clock
        self._local: dict[ProfileKey, Profile] = {}
        self._live: dict[ProfileKey, Outflow] = {}
        self._streams: dict[int, Outflow] = {}
        self._feeds: dict[ProfileKey, Feed] = {}
        self._readers: dict[int, Feed] = {}
        self._lingering: dict[ProfileKey, float] = {}
        """Profiles whose writers have left, with the time to wait for what their leaving means in
        DDS; 0: it has come, or does not matter."""
        self._adopted: dict[tuple[int, str], float] = {}
        """Stream and subscriber that were brought together by a hand-over, not by a request, and
        until when that may stay so if there is a way to ask."""
        self._absence = Absence(limits.laggard_timeout_s)
        self._gauges = StreamGauges(metrics, clock)
        self._aimed_for = -1
        """The generation of links the aims of all outflows are good for, at least."""
        self._next_stream = 1
        self._kept_beyond_bytes = 0
        """What outages have made streams keep beyond their windows."""
        self._view = FabricView()
        self._pump = TakePump(domain, clock, self._readers, self._end_replay)
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
            if outflow is not None and outflow.forward(now_s):
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
        if not self._is_alive(*message.subscriber):
            return  # perhaps it is only ahead of the tree: it asks again
        key = (message.topic, message.profile)
        outflow = self._live.get(key)
        if outflow is None:
            profile = self._local.get(key)
            if profile is None:
                return  # it asks again; by then the profile may be known or its wish gone
            outflow = self._open(message.topic, profile)
            if outflow is None:
                return
        edge, incarnation = message.subscriber
        if self._absence.is_taken_over(edge, outflow.stream.destinations):
            return  # it asks again, in case the other one goes
        outflow.settle_aim()  # or a sample would be neither in the history nor in the stream
        known = outflow.stream.subscribers.get(edge)
        is_new = message.mirror != outflow.mirrors.get(edge, message.mirror)
        if known == incarnation and not (is_new and outflow.history is not None):
            outflow.mirrors[edge] = message.mirror
            # It asks because it has no such stream, or not yet.
            self._adopted.pop((outflow.key.number, edge), None)
            outflow.reopen(edge, incarnation)
            outflow.resend(self._clock())
            return
        if known is not None:
            self._drop_subscriber(outflow, edge)
        prelude = 0
        if outflow.history is not None and len(outflow.history):
            prelude = self._open_replay(outflow, edge, incarnation)
        _log.info("subscriber joins", topic=outflow.topic, edge=edge, stream=outflow.key.number)
        outflow.add_subscriber(edge, incarnation, prelude)
        outflow.mirrors[edge] = message.mirror
        if any(other not in self._view.edges for other in outflow.stream.destinations):
            self._drop_the_gone()
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
                self._drop_subscriber(outflow, edge)
                self._settle(outflow)
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
            self._adopted.pop((outflow.key.number, edge), None)
        if message.finished:
            if not outflow.is_ending:  # it wants no more of it
                self._drop_subscriber(outflow, edge)
            outflow.notices.finished(edge)
            self._settle(outflow)
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
        for topic, count in Counter(topic for topic, _ in self._live).items():
            if count > 1:  # a writer may have gone over from one to another
                self._settle_aims(topic)
        now_s = self._clock()
        for key, outflow in list(self._live.items()):
            if key in profiles:
                self._lingering.pop(key, None)
            elif key not in self._lingering:
                successor = self._feeds[key].successor(outflow.profile, profiles)
                if successor is None:
                    self._lingering[key] = now_s + _LINGER_S
                else:
                    self._hand_over(outflow, successor, now_s)
        self.wake()

    def _settle_aims(self, topic: str) -> None:
        """Some of its samples belong to other profiles than they did: none goes ahead as what it
        was."""
        for (other, _), outflow in list(self._live.items()):
            if other == topic:
                outflow.settle_aim()

    def set_view(self, view: FabricView) -> None:
        self._view = view
        self._absence.see(view)
        self._drop_the_gone()
        for outflow in self._streams.values():
            self._heed_policy(outflow)
        self._renew_aims()
        self.wake()

    def _drop_the_gone(self) -> None:
        """Subscribers nobody waits for any longer (plan/absence.py)."""
        now_s = self._clock()
        lives = {
            life
            for outflow in self._streams.values()
            for life in outflow.stream.subscribers.items()
        }
        linked = {life for life in lives if self._links.has_peer(*life)}
        for outflow in list(self._streams.values()):
            for life in list(outflow.stream.subscribers.items()):
                if self._absence.is_gone(
                    life,
                    outflow.stream.destinations,
                    now_s,
                    is_linked=life in linked,
                    is_reliable=outflow.is_reliable,
                ):
                    _log.info("subscriber is gone", topic=outflow.topic, edge=life[0])
                    self._drop_subscriber(outflow, life[0])
            self._settle(outflow)
        self._absence.forget_others(lives, linked)

    def _heed_policy(self, outflow: Outflow) -> None:
        """Whether a topic has a strict deadline may be advised at any time."""
        deadline_s = None
        if isinstance(outflow.source, ReaderSource):
            deadline_s = self._deadlines.deadline_s(outflow.topic, outflow.profile)
        before = None if outflow.deadline is None else outflow.deadline.deadline_s
        if deadline_s != before:
            outflow.set_deadline(self._routing(outflow.topic, deadline_s))
            _log.info("paths changed", topic=outflow.topic, strict=deadline_s is not None)

    def _routing(self, topic: str, deadline_s: float | None) -> DeadlineRouting | None:
        if deadline_s is None:
            return None
        return DeadlineRouting(topic, deadline_s, self._deadlines, self._pairs)

    def _is_alive(self, edge: str, incarnation: int) -> bool:
        is_in_tree = self._absence.is_in_tree((edge, incarnation))
        return is_in_tree or self._links.has_peer(edge, incarnation)

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
        window_bytes = self._limits.window_bytes
        self._kept_beyond_bytes = sum(
            max(0, outflow.stream.kept_bytes - window_bytes) for outflow in self._streams.values()
        )
        for outflow in list(self._streams.values()):
            outflow.resend(now_s)
            outflow.notices.announce_end(now_s)
            for edge in self._laggards(outflow, now_s):
                self._leave_behind(outflow, edge)
            self._settle(outflow)
        for key, outflow in self._live.items():
            outflow.notices.announce_life(now_s, self._feeds[key].is_alive)
        for (number, edge), until_s in list(self._adopted.items()):
            outflow = self._streams[number]
            if now_s > until_s and self._links.path(outflow.topic, edge) is not None:
                del self._adopted[number, edge]
                self._drop_subscriber(outflow, edge)
                self._settle(outflow)
        if self._absence.is_any:
            self._drop_the_gone()
        for key, until_s in list(self._lingering.items()):
            self._end_when_empty(self._live[key], until_s, now_s)
        if self._is_stopping and not any(
            outflow.reach.plan() for outflow in self._streams.values()
        ):
            self.drained.set()
        self.wake()

    def _laggards(self, outflow: Outflow, now_s: float) -> list[str]:
        """Subscribers not to wait for any longer: those that hold up others, and those cut off for
        so long that a full reader would cost the edge its LAN."""
        timeout_s = self._limits.laggard_timeout_s
        if outflow.stream.has_room or not outflow.is_blocked(now_s):
            return []
        cut_off = outflow.cut_off(now_s, min(timeout_s, _STALL_LIMIT_S))
        return cut_off or outflow.stream.laggards(now_s, timeout_s)

    def _leave_behind(self, outflow: Outflow, edge: str) -> None:
        missing = outflow.stream.next_number - 1 - outflow.stream.acknowledged(edge)
        _log.warning(
            "a LAN acknowledges nothing and holds up others; it is left behind, and joins again "
            "when it answers",
            topic=outflow.topic,
            edge=edge,
            samples=missing,
        )
        outflow.given_up.inc(missing)
        self._drop_subscriber(outflow, edge)

    def stop(self) -> None:
        """The edge leaves: every stream ends with what its reader still has. `drained` tells when
        all subscribers have it."""
        self._is_stopping = True
        for key, outflow in self._live.items():
            self._lingering[key] = 0.0
            self._pump.add(outflow)
        self._pump.hurry()
        self.wake()
        self.tick()

    # ------------------------------------------------------------ writers that leave or change

    def _end_when_empty(self, outflow: Outflow, until_s: float, now_s: float) -> None:
        """What the writers did before they left is still to come: first DDS must have told the
        reader that they left, then the reader must be empty."""
        key = (outflow.topic, outflow.profile_id)
        if until_s:
            if now_s < until_s and self._feeds[key].has_writers():
                return
            self._lingering[key] = 0.0
            self._pump.add(outflow)
        elif outflow not in self._pump:
            # Without its reader at once: whoever comes now must not take it for a subscriber.
            self._close_source(outflow)
            outflow.end()
            outflow.notices.announce_end(now_s)
            self._settle(outflow)

    def _hand_over(self, old: Outflow, profile: Profile, now_s: float) -> None:
        """The reader, its history and its subscribers go over to a stream of the new profile,
        which is to be read when the old one is over."""
        old.settle_aim()
        old_key, key = (old.topic, old.profile_id), (old.topic, profile.id)
        del self._live[old_key]
        self._pump.discard(old)
        feed = self._feeds[key] = self._feeds.pop(old_key)
        feed.key = key
        new = self._outflow(old.topic, profile, feed.source)
        new.history = old.history
        self._live[key] = new
        _log.info("writers changed", topic=old.topic, profile=profile.id, stream=new.key.number)
        new.mirrors = dict(old.mirrors)
        for edge, incarnation in old.stream.subscribers.items():
            new.add_subscriber(edge, incarnation, old.key.number)
            self._adopted[new.key.number, edge] = now_s + _ADOPTION_S
        old.end()
        old.notices.announce_end(now_s)
        self._pump.add(new)

    # ------------------------------------------------------------ opening and closing

    def _open(self, topic: str, profile: Profile) -> Outflow | None:
        type_hash = profile.type_hash or type_of_subscribers(self._view, topic, profile)
        topic_type = self._types.topic_type(profile.type_name, type_hash, profile.keyed)
        if topic_type is None:
            return None
        self._settle_aims(topic)
        try:
            feed = Feed(
                topic,
                profile,
                topic_type,
                self._domain,
                self._discovery,
                self._feeds,
                self._readers,
                most_samples=self._limits.reader_samples,
                most_bytes=self._limits.reader_bytes,
            )
        except DdsError as error:
            _log.warning(
                "a topic cannot be read from this LAN; trying again when asked",
                topic=topic,
                reason=str(error),
            )
            return None
        outflow = self._outflow(topic, profile, feed.source)
        if profile.qos.durability is not Durability.VOLATILE:
            outflow.history = HistoryCache(
                profile.qos.durability_service, self._limits.history_bytes
            )
        self._live[feed.key] = outflow
        self._feeds[feed.key] = feed
        _log.info("reads from the LAN", topic=topic, profile=profile.id, stream=outflow.key.number)
        return outflow

    def _open_replay(self, live: Outflow, edge: str, incarnation: int) -> int:
        assert live.history is not None
        replay = self._outflow(live.topic, live.profile, ReplaySource(live.history.replay()))
        replay.add_subscriber(edge, incarnation)
        self._pump.add(replay)
        return replay.key.number

    def _outflow(
        self, topic: str, profile: Profile, source: ReaderSource | ReplaySource
    ) -> Outflow:
        key = StreamKey(self._me.edge, self._me.incarnation, self._next_stream)
        self._next_stream += 1
        deadline = trace = None
        if isinstance(source, ReaderSource):
            deadline = self._routing(topic, self._deadlines.deadline_s(topic, profile))
            if self._tracing is not None:
                trace = self._tracing.outgoing(key, topic)
        outflow = Outflow(
            key,
            topic,
            profile,
            source,
            self._links,
            self._metrics,
            window_bytes=self._limits.window_bytes,
            batch_samples=self._limits.batch_samples,
            batch_bytes=self._limits.batch_bytes,
            may_keep_more=lambda: self._kept_beyond_bytes < self._limits.outage_bytes,
            deadline=deadline,
            trace=trace,
        )
        self._streams[key.number] = outflow
        return outflow

    def _drop_subscriber(self, outflow: Outflow, edge: str) -> None:
        outflow.remove_subscriber(edge)
        self._adopted.pop((outflow.key.number, edge), None)
        for other in list(self._streams.values()):
            if (
                isinstance(other.source, ReplaySource)
                and (other.topic, other.profile_id) == (outflow.topic, outflow.profile_id)
                and edge in other.stream.destinations
            ):
                other.remove_subscriber(edge)
                self._close(other)

    def _settle(self, outflow: Outflow) -> None:
        if outflow.is_over or not outflow.stream.subscribers:
            self._close(outflow)

    def _close(self, outflow: Outflow) -> None:
        if self._streams.pop(outflow.key.number, None) is None:
            return
        for edge in outflow.stream.destinations:
            self._adopted.pop((outflow.key.number, edge), None)
        self._close_source(outflow)

    def _close_source(self, outflow: Outflow) -> None:
        """The reader goes, unless it went before or has another stream now."""
        self._pump.discard(outflow)
        key = (outflow.topic, outflow.profile_id)
        if self._live.get(key) is outflow:
            del self._live[key]
            self._lingering.pop(key, None)
            self._feeds.pop(key).source.close()
            _log.info("reads no longer", topic=outflow.topic, profile=outflow.profile_id)

    def close(self) -> None:
        for outflow in list(self._streams.values()):
            self._close(outflow)

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
        self._gauges.show(self._streams.values(), self._view, self._kept_beyond_bytes)

    def summary(self) -> list[dict[str, object]]:
        return summarise(self._streams.values())
