"""All outflows of one edge, with the feeds they read from: opened when somebody asks, handed over
when writers change, closed when nobody is left on either side. Owned by ingress; who is waited for
is awaited.py's, what a stream carries outflow.py's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from edge_broker.dds.discovery import Discovery
from edge_broker.dds.domain import LanDomain
from edge_broker.deadlines import DeadlinePolicy, DeadlineRouting
from edge_broker.feed import Feed
from edge_broker.history import HistoryCache
from edge_broker.links import Links
from edge_broker.outflow import Outflow
from edge_broker.pairs import Pairs
from edge_broker.source import ReaderSource, ReplaySource
from edge_broker.take_pump import TakePump
from edge_broker.tracing import Tracing
from edge_broker.type_shop import TypeShop
from gateway.errors import DdsError
from gateway.model import Durability, FabricView, Profile
from gateway.observe.logs import get_logger
from gateway.observe.metrics import BrokerMetrics
from gateway.plan.demand import ProfileKey, type_of_subscribers
from gateway.tunnel.frames import Peer, StreamKey

_log = get_logger("edge.ingress")

_LINGER_S = 5.0
"""How long the reader of a profile without writers waits at most for DDS to say that they left."""
_ADOPTION_S = 5.0
"""How long a subscriber that was handed over to the successor of its stream has to confirm it."""


@dataclass(frozen=True, slots=True)
class OutflowLimits:
    """The settings that bound outflows and their readers."""

    window_bytes: int
    batch_bytes: int
    batch_samples: int
    reader_samples: int
    reader_bytes: int
    history_bytes: int
    outage_bytes: int


class Outflows:
    """Which there are, and what each reads from."""

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
        pairs: Pairs,
        pump: TakePump,
        readers: dict[int, Feed],
        *,
        tracing: Tracing | None,
    ) -> None:
        """`readers` is kept up to date with the open ones; `pump` is told which outflows may have
        data, and which are over."""
        self.live: dict[ProfileKey, Outflow] = {}
        """Those that read from the LAN."""
        self.streams: dict[int, Outflow] = {}
        """All of them, also replays and those whose end not everybody knows of."""
        self.kept_beyond_bytes = 0
        """What outages have made streams keep beyond their windows."""
        self._me = me
        self._domain = domain
        self._discovery = discovery
        self._types = types
        self._links = links
        self._limits = limits
        self._metrics = metrics
        self._deadlines = deadlines
        self._pairs = pairs
        self._pump = pump
        self._readers = readers
        self._tracing = tracing
        self._feeds: dict[ProfileKey, Feed] = {}
        self._lingering: dict[ProfileKey, float] = {}
        """Profiles whose writers have left, with the time to wait for what their leaving means in
        DDS; 0: it has come, or does not matter."""
        self._next_stream = 1

    # ------------------------------------------------------------ opening

    def open(self, topic: str, profile: Profile, view: FabricView) -> Outflow | None:
        """Reads this profile from now on; None: it cannot be read yet."""
        type_hash = profile.type_hash or type_of_subscribers(view, topic, profile)
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
        outflow = self._make(topic, profile, feed.source)
        if profile.qos.durability is not Durability.VOLATILE:
            outflow.history = HistoryCache(
                profile.qos.durability_service, self._limits.history_bytes
            )
        self.live[feed.key] = outflow
        self._feeds[feed.key] = feed
        _log.info("reads from the LAN", topic=topic, profile=profile.id, stream=outflow.key.number)
        return outflow

    def open_replay(self, live: Outflow, edge: str, incarnation: int) -> int:
        """Sends this subscriber what the history has; the number of the stream that does."""
        assert live.history is not None
        replay = self._make(live.topic, live.profile, ReplaySource(live.history.replay()))
        replay.add_subscriber(edge, incarnation)
        self._pump.add(replay)
        return replay.key.number

    def _make(self, topic: str, profile: Profile, source: ReaderSource | ReplaySource) -> Outflow:
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
            may_keep_more=lambda: self.kept_beyond_bytes < self._limits.outage_bytes,
            deadline=deadline,
            trace=trace,
        )
        self.streams[key.number] = outflow
        return outflow

    def _routing(self, topic: str, deadline_s: float | None) -> DeadlineRouting | None:
        if deadline_s is None:
            return None
        return DeadlineRouting(topic, deadline_s, self._deadlines, self._pairs)

    # ------------------------------------------------------------ what changes while they last

    def heed_policies(self) -> None:
        """Whether a topic has a strict deadline may be advised at any time."""
        for outflow in self.streams.values():
            deadline_s = None
            if isinstance(outflow.source, ReaderSource):
                deadline_s = self._deadlines.deadline_s(outflow.topic, outflow.profile)
            before = None if outflow.deadline is None else outflow.deadline.deadline_s
            if deadline_s != before:
                outflow.set_deadline(self._routing(outflow.topic, deadline_s))
                _log.info("paths changed", topic=outflow.topic, strict=deadline_s is not None)

    def weigh(self) -> None:
        """Brings `kept_beyond_bytes` up to date."""
        window_bytes = self._limits.window_bytes
        self.kept_beyond_bytes = sum(
            max(0, outflow.stream.kept_bytes - window_bytes) for outflow in self.streams.values()
        )

    def announce_life(self, now_s: float) -> None:
        """Says of writers with manual liveliness that they live."""
        for key, outflow in self.live.items():
            outflow.notices.announce_life(now_s, self._feeds[key].is_alive)

    # ------------------------------------------------------------ writers that leave or change

    def follow(self, profiles: Mapping[ProfileKey, Profile], now_s: float) -> None:
        """These are the LAN's profiles now: what is no longer among them has left or changed."""
        for topic, count in Counter(topic for topic, _ in self.live).items():
            if count > 1:  # a writer may have gone over from one to another
                self._settle_aims(topic)
        for key, outflow in list(self.live.items()):
            if key in profiles:
                self._lingering.pop(key, None)
            elif key not in self._lingering:
                successor = self._feeds[key].successor(outflow.profile, profiles)
                if successor is None:
                    self._lingering[key] = now_s + _LINGER_S
                else:
                    self._hand_over(outflow, successor, now_s)

    def _settle_aims(self, topic: str) -> None:
        """Some of its samples belong to other profiles than they did: none goes ahead as what it
        was."""
        for (other, _), outflow in list(self.live.items()):
            if other == topic:
                outflow.settle_aim()

    def _hand_over(self, old: Outflow, profile: Profile, now_s: float) -> None:
        """The reader, its history and its subscribers go over to a stream of the new profile,
        which is to be read when the old one is over."""
        old.settle_aim()
        old_key, key = (old.topic, old.profile_id), (old.topic, profile.id)
        del self.live[old_key]
        self._pump.discard(old)
        feed = self._feeds[key] = self._feeds.pop(old_key)
        feed.key = key
        new = self._make(old.topic, profile, feed.source)
        new.history = old.history
        self.live[key] = new
        _log.info("writers changed", topic=old.topic, profile=profile.id, stream=new.key.number)
        new.mirrors = dict(old.mirrors)
        for edge, incarnation in old.stream.subscribers.items():
            new.add_subscriber(edge, incarnation, old.key.number)
            new.adopted[edge] = now_s + _ADOPTION_S
        old.end()
        old.notices.announce_end(now_s)
        self._pump.add(new)

    def end_all(self) -> None:
        """Every stream ends with what its reader still has."""
        for key, outflow in self.live.items():
            self._lingering[key] = 0.0
            self._pump.add(outflow)

    def end_left(self, now_s: float) -> None:
        """Streams of writers that left end when their readers are empty."""
        for key, until_s in list(self._lingering.items()):
            self._end_when_empty(self.live[key], until_s, now_s)

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
            self.settle(outflow)

    # ------------------------------------------------------------ closing

    def drop_subscriber(self, outflow: Outflow, edge: str) -> None:
        """It gets no more of this, nor of a replay before it."""
        outflow.remove_subscriber(edge)
        for other in list(self.streams.values()):
            if (
                isinstance(other.source, ReplaySource)
                and (other.topic, other.profile_id) == (outflow.topic, outflow.profile_id)
                and edge in other.stream.destinations
            ):
                other.remove_subscriber(edge)
                self._close(other)

    def settle(self, outflow: Outflow) -> None:
        """Closes it unless somebody still wants something of it."""
        if outflow.is_over or not outflow.stream.subscribers:
            self._close(outflow)

    def _close(self, outflow: Outflow) -> None:
        if self.streams.pop(outflow.key.number, None) is not None:
            self._close_source(outflow)

    def _close_source(self, outflow: Outflow) -> None:
        """The reader goes, unless it went before or has another stream now."""
        self._pump.discard(outflow)
        key = (outflow.topic, outflow.profile_id)
        if self.live.get(key) is outflow:
            del self.live[key]
            self._lingering.pop(key, None)
            self._feeds.pop(key).source.close()
            _log.info("reads no longer", topic=outflow.topic, profile=outflow.profile_id)

    def close(self) -> None:
        for outflow in list(self.streams.values()):
            self._close(outflow)
