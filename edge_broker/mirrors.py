"""Which mirrors this edge has: makes those that are wanted, has them ask for samples once the LAN's
readers are matched, and lets go of others once nothing is due to them. Owned by egress; called by
it, by reconcile and by the edge. Streams, and what arrives in them, stay out.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping

from edge_broker.dds.domain import LanDomain
from edge_broker.links import Links
from edge_broker.mirror import MIRROR_STATES, Inbound, Mirror
from edge_broker.type_shop import TypeShop
from gateway.errors import DdsError
from gateway.model import FabricView
from gateway.observe.logs import get_logger
from gateway.observe.metrics import BrokerMetrics
from gateway.plan.demand import MirrorKey, WantedMirror
from gateway.tunnel import messages
from gateway.tunnel.frames import Peer, StreamKey

_log = get_logger("edge.egress")

_SETTLE_S = 0.005
_ORPHAN_PATIENCE_S = 30.0
_OPENING_PATIENCE_S = 2.0
_LINGER_S = 1.0
"""How long a writer that leaves waits for readers that have not confirmed everything."""
_DELIVERY_LOOK_S = 0.02
_RETURN_S = 5.0
"""How long an edge that is back in the tree takes at most to be known with all it publishes."""
_MOST_LEFT = 4096


class Mirrors:
    """All mirrors of one edge."""

    def __init__(
        self,
        me: Peer,
        domain: LanDomain,
        types: TypeShop,
        links: Links,
        metrics: BrokerMetrics,
        clock: Callable[[], float],
        *,
        clock_offset_ns: Callable[[str], int],
        forget: Callable[[Inbound, Mirror], None],
    ) -> None:
        """`clock_offset_ns` tells by how much the clock here is ahead of an edge's. `forget` is
        called with each stream that is open when its mirror goes."""
        self._me = me
        self._domain = domain
        self._types = types
        self._links = links
        self._metrics = metrics
        self._clock = clock
        self._clock_offset_ns = clock_offset_ns
        self._forget = forget
        self._mirrors: dict[MirrorKey, Mirror] = {}
        self._unwanted_since_s: dict[MirrorKey, float] = {}
        self._view = FabricView()
        self._present_since_s: dict[Peer, float] = {}
        """Since when the tree has each edge."""
        self._left_after: OrderedDict[StreamKey, int] = OrderedDict()
        """Streams of edges that have vanished, and what was written of them last."""
        self._settle_timer: asyncio.TimerHandle | None = None
        self._is_closing = False

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
        for mirror in self._mirrors.values():
            mirror.bridge_silence(now_s)
            mirror.clock_offset_ns = self._clock_offset_ns(mirror.key.edge)

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

    # ------------------------------------------------------------ their streams

    def find(self, key: MirrorKey) -> Mirror | None:
        """The one that streams of this profile are for."""
        if (mirror := self._mirrors.get(key)) is not None:
            return mirror
        # One of them may be about to become this one, when the tree tells so.
        relatives = self._relatives(key)
        return next((mirror for mirror in relatives if key.profile in mirror.former), None)

    def is_unwanted(self, key: MirrorKey) -> bool:
        """Whether nobody here wants it any more, and the tree has told for long enough what its
        edge publishes. One that was cut off speaks before others can read that it is back, and what
        of it is wanted."""
        since_s = self._present_since_s.get(Peer(key.edge, key.incarnation))
        is_settled = since_s is not None and self._clock() >= since_s + _RETURN_S
        return is_settled and not any(self._relatives(key))

    def _relatives(self, key: MirrorKey) -> Iterator[Mirror]:
        """Those of the same topic and the same life of its edge."""
        return (mirror for other, mirror in self._mirrors.items() if other[:3] == key[:3])

    def recall(self, stream: StreamKey) -> int:
        """The last of it that a former mirror has written; 0: there was none. Told once."""
        return self._left_after.pop(stream, 0)

    def on_finished(self, mirror: Mirror) -> None:
        """A stream of this one is over, which it may have waited for before it goes."""
        now_s = self._clock()
        if not mirror.is_wanted and self._may_go(mirror, now_s):
            self._let_go(mirror, now_s)

    # ------------------------------------------------------------ the end

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
        if self._settle_timer is not None:
            self._settle_timer.cancel()
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
        """Writes what is known of mirrors into the metrics."""
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
