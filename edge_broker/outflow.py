"""One publisher profile on its way out of the LAN, or one replay of its history: its samples become
the batches of a stream and are kept until subscribers have them. Called by ingress, which owns the
pace; over which links is reach.py's, what else subscribers are told notices.py's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from edge_broker.dds.shortcuts import GoneAhead, OutgoingAim
from edge_broker.deadlines import FREE, DeadlineRouting, Group, Leeway
from edge_broker.history import HistoryCache
from edge_broker.known_path import OpenPath
from edge_broker.lifecycle import Columns
from edge_broker.links import EXPRESS, ROUTED, STANDBY, Link, Links
from edge_broker.notices import Notices
from edge_broker.reach import Reach
from edge_broker.source import ReaderSource, Source
from edge_broker.tracing import OutgoingTrace
from gateway.model import Profile, Reliability
from gateway.observe.logs import get_logger
from gateway.observe.metrics import BrokerMetrics
from gateway.tunnel.columns import Packed
from gateway.tunnel.frames import (
    MAX_FRAME_BYTES,
    StreamKey,
    encode_batch,
    lone_batch_head,
    readdress,
    stream_id,
)
from gateway.tunnel.outgoing import OutgoingStream

_log = get_logger("edge.outflow")

MOST_SAMPLE_BYTES = MAX_FRAME_BYTES - (1 << 18)
"""A sample needs a frame, and a frame needs room for the names of those it goes to."""
_FIRST_TAKE = 32
_OUTAGE_AFTER_S = 0.5
"""A stream nobody acknowledges for that long is not slow, it is cut off."""
_TAKE_BYTES = 1 << 20
"""One take aims at so many bytes: a full batch, and still a short turn on the loop."""
_PROMPT_BATCH_BYTES = 256 * 1024
"""A batch of a deadline topic is no larger: samples of others wait behind it on the same link."""
_AIM_GOOD_S = 2.0
"""A sample that comes later than that after the one before goes where is best then."""
_MOST_AHEAD = 64
"""So many samples at most go ahead before anybody has looked again."""
_MOST_WAYS = 2
OUTFLOW_STATES = ("open", "blocked", "ending")


class Outflow:
    """A stream with its source and its subscribers."""

    def __init__(
        self,
        key: StreamKey,
        topic: str,
        profile: Profile,
        source: Source,
        links: Links,
        metrics: BrokerMetrics,
        *,
        window_bytes: int,
        batch_samples: int,
        batch_bytes: int,
        may_keep_more: Callable[[], bool],
        deadline: DeadlineRouting | None = None,
        trace: OutgoingTrace | None = None,
    ) -> None:
        """`deadline` chooses the paths of a topic with a strict one."""
        self.key = key
        self.topic = topic
        self.profile = profile
        self.profile_id = profile.id
        self.source = source
        self._aim = source.aim if isinstance(source, ReaderSource) else None
        self.history: HistoryCache | None = None
        """What late joiners get; given by whoever opens it."""
        self.is_reliable = profile.qos.reliability is Reliability.RELIABLE
        self.stream = OutgoingStream(key, reliable=self.is_reliable, window_bytes=window_bytes)
        self.reach = Reach(topic, self.stream, links)
        self.notices = Notices(key, topic, profile, self.stream, self.reach)
        self.is_ending = False
        """The source has no more; the subscribers are told so until they say that they know."""
        self.mirrors: dict[str, int] = {}
        """The number of each subscriber's mirror, if it was told."""
        self.adopted: dict[str, float] = {}
        """Subscribers that were brought here by a hand-over, not by a request, and until when that
        may stay so if there is a way to ask."""
        self._trace = trace
        self._taken_ns = 0
        """When the last take was; only if anything is traced."""
        self._links = links
        self._window_bytes = window_bytes
        self._batch_samples = batch_samples
        self._batch_bytes = batch_bytes
        self._may_keep_more = may_keep_more
        self._progress_s: dict[str, float] = {}
        """When each subscriber last acknowledged anything, or began to owe it."""
        self.last_count = 0
        """Samples of the last take."""
        self.has_more = False
        """There may have been more then."""
        self.last_bytes = 0
        self._take = _FIRST_TAKE
        self._is_too_large_told = False
        self._aimed_at: list[Group] = []
        self._aimed_by: list[Group] = []
        """All that were planned then."""
        self._heads: list[bytes] = []
        self._may_wait = True
        """What has gone ahead, to be accounted for."""
        self._untraced_until = 0
        self._stream_id = stream_id(key)
        label = metrics.topic_label(topic)
        self._samples_in = metrics.samples_in.labels(topic=label)
        self._bytes_in = metrics.bytes_in.labels(topic=label)
        self._metrics = metrics
        self._batches = {ROUTED: metrics.batches_sent.labels(topic=label, path=ROUTED)}
        self.set_deadline(deadline)
        self._resent = metrics.samples_resent.labels(topic=label)
        self._ingress_hop = metrics.hop_latency.labels(hop="ingress")
        self.given_up = metrics.samples_dropped.labels(topic=label, reason="laggard")
        """Counts samples a subscriber will not get, because it was left behind."""
        self._too_large = metrics.samples_dropped.labels(topic=label, reason="too_large")

    def set_deadline(self, deadline: DeadlineRouting | None) -> None:
        """From now on its batches take these paths; None: the one of its router."""
        self.settle_aim()
        self.reach.deadline = deadline
        if deadline is not None:
            label = self._metrics.topic_label(self.topic)
            for path in (EXPRESS, STANDBY):
                self._batches[path] = self._metrics.batches_sent.labels(topic=label, path=path)
            if self.is_reliable:
                deadline.hedge_with(self._send_copy)

    @property
    def deadline(self) -> DeadlineRouting | None:
        return self.reach.deadline

    @property
    def patience_s(self) -> float:
        """How long its samples wait for others that go the same way."""
        deadline = self.reach.deadline
        return 0.0 if deadline is None or self.is_ending else deadline.patience_s

    @property
    def last_links(self) -> list[Link]:
        """Where the next batch is likely to go."""
        return [group.link for group in self.reach.last_plan]

    @property
    def is_over(self) -> bool:
        """Ended, and every subscriber has all of it and knows."""
        return self.is_ending and self.notices.is_end_known

    @property
    def state(self) -> str:
        if self.is_ending:
            return "ending"
        return "open" if self.stream.has_room else "blocked"

    @property
    def fill_ratio(self) -> float:
        """Share of the window in use."""
        return self.stream.kept_bytes / self._window_bytes

    def is_blocked(self, now_s: float) -> bool:
        """Whether taking must wait: for acknowledgements, or for a link to drain. During an outage
        it need not, as long as memory lasts: the reader must not fill, because a full reader
        holds up the whole DDS domain of this edge."""
        if not self.stream.has_room and not (
            self.cut_off(now_s, _OUTAGE_AFTER_S) and self._may_keep_more()
        ):
            return True
        return self.reach.is_congested()

    def on_ack(
        self,
        edge: str,
        incarnation: int,
        cumulative: int,
        ranges: Sequence[tuple[int, int]],
        now_s: float,
    ) -> None:
        if self.stream.on_ack(edge, incarnation, cumulative, ranges, now_s):
            self._progress_s[edge] = now_s

    def cut_off(self, now_s: float, since_s: float) -> list[str]:
        """Subscribers that owe acknowledgements and have sent none for so long."""
        last = self.stream.next_number - 1
        return [
            edge
            for edge in self.stream.destinations
            if self.stream.acknowledged(edge) < last
            and now_s - self._progress_s.get(edge, 0.0) > since_s
        ]

    def add_subscriber(self, edge: str, incarnation: int, prelude: int = 0) -> None:
        self.settle_aim()
        known = edge in self.stream.destinations
        self.stream.add_subscriber(edge, incarnation)
        self.reach.on_join()
        self.notices.on_join(edge, prelude, is_known=known)

    def reopen(self, edge: str, incarnation: int) -> None:
        """The subscriber does not know this stream: open it there and send again what it lacks."""
        self.settle_aim()
        self.stream.reopen(edge, incarnation)
        self.notices.send_open(edge)

    def remove_subscriber(self, edge: str) -> None:
        self.settle_aim()
        self.stream.remove_subscriber(edge)
        self._progress_s.pop(edge, None)
        self.mirrors.pop(edge, None)
        self.adopted.pop(edge, None)
        self.reach.forget(edge)
        self.notices.forget(edge)

    def forward(self, now_s: float) -> bool:
        """Takes once from the source and sends it on; True when there may be more."""
        aim = self._aim
        is_taken = False
        if aim is not None and aim.lower():
            self._account(aim, now_s)
            is_taken = aim.gone() is not None
        self.has_more = self._pass_on(now_s, None) or is_taken  # two are when there are more
        if self.last_count == 0:
            self._take_aim(now_s)
        return self.has_more

    def account(self, now_s: float) -> bool:
        """For samples that have gone ahead, while others may; True when there may be more that have
        not."""
        aim = self._aim
        if aim is None or not self._account(aim, now_s) or aim.gone() is not None:
            return self.forward(now_s)
        leeway = self._leeway()
        if leeway is None or not self._is_aimed_well(leeway):
            self.settle_aim()
        elif aim.keep(self._end_of_aim(), now_s + _AIM_GOOD_S):
            return False
        if aim.gone() is not None:
            return self.forward(now_s)
        self._take_aim(now_s)
        return False

    def _account(self, aim: OutgoingAim, now_s: float) -> bool:
        """For all that has gone ahead, up to what was only taken; whether anything has."""
        has_gone = False
        while (gone := aim.gone()) is not None and gone.ways:
            has_gone = True
            self._pass_on(now_s, gone)
        return has_gone

    def _pass_on(self, now_s: float, gone: GoneAhead | None) -> bool:
        """What the source gives now; `gone`: which has gone ahead."""
        packed, instances, has_more = self.source.take(self._take, is_sent=gone is not None)
        if self._trace is not None:
            self._taken_ns = time.time_ns()
        if len(packed.payload) > MOST_SAMPLE_BYTES and packed.largest > MOST_SAMPLE_BYTES:
            packed, instances = self._without_too_large(packed, instances)
        count = packed.count
        size = len(packed.payload)
        self.last_count = count
        self.last_bytes = size
        if count == 0:
            return has_more
        self._take = max(1, min(self._batch_samples, _TAKE_BYTES * count // max(size, 1)))
        if self.history is not None:
            self.history.add(
                Columns(packed.times(), list(map(bytes, packed.samples())), packed.kinds, instances)
            )
        batch_bytes = self._batch_bytes
        if self.reach.deadline is not None:
            batch_bytes = min(batch_bytes, _PROMPT_BATCH_BYTES)
        for part in packed.parts(self._batch_samples, batch_bytes):
            self._send(part, now_s, gone)
        now_ns = time.time_ns()
        if gone is None:
            self._take_aim(now_s)
        else:
            now_ns = gone.sent_ns
        self._ingress_hop.observe(max(0, now_ns - packed.first_ns) / 1e9)
        self._samples_in.inc(count)
        self._bytes_in.inc(size)
        return has_more

    def _without_too_large(
        self, packed: Packed, instances: Sequence[int]
    ) -> tuple[Packed, Sequence[int]]:
        """No link would ever take them, and the stream would wait for them for ever."""
        places = packed.fitting(MOST_SAMPLE_BYTES)
        self._too_large.inc(packed.count - len(places))
        if not self._is_too_large_told:
            self._is_too_large_told = True
            _log.warning(
                "samples too large to travel are dropped and counted; split them up",
                topic=self.topic,
                bytes=packed.largest,
                most=MOST_SAMPLE_BYTES,
            )
        return packed.only(places), [instances[at] for at in places] if instances else ()

    def _send(self, packed: Packed, now_s: float, gone: GoneAhead | None) -> None:
        """`gone`: how it, a single sample, has gone ahead."""
        stream = self.stream
        deadline = self.reach.deadline
        frame = b""
        unsent: list[str] = []
        sent_ns = 0
        oldest_ns = 0
        went: list[Group] = []
        if gone is not None:
            went = [group for at, group in enumerate(self._aimed_at) if gone.ways >> at & 1]
        if deadline is None:
            plan = self.reach.plan()
        else:
            sent_ns = time.time_ns() if gone is None else gone.sent_ns
            oldest_ns = packed.oldest_ns
            plan = deadline.plan(
                stream.destinations, oldest_ns, sent_ns, now_s, self._links.generation
            )
        if gone is not None:  # it might go elsewhere by now
            plan = [*plan, *(group for group in went if group not in plan)]
        trace = self._trace
        if trace is not None and not trace.is_chosen(stream.next_number):
            trace = None
        for group in plan:
            link, _, edges = group
            frame = encode_batch(self.key, edges, stream.next_number, packed, sent_ns)
            if trace is not None:
                frame = trace.mark(frame, group, plan, self._taken_ns)
            if not (link.send_rest() if group in went else link.send(frame)):
                unsent += edges
        if not frame:  # nobody can be reached now: it is kept for when somebody can
            frame = encode_batch(self.key, (), stream.next_number, packed)
            if trace is not None:
                frame = trace.mark(frame, None, plan, self._taken_ns)
        first = stream.next_number
        for edge in stream.destinations:
            if stream.acknowledged(edge) == first - 1:  # it owed nothing
                self._progress_s[edge] = now_s
        stream.record(packed.count, frame, now_s)
        for edge in unsent:
            stream.mark_for_resend(edge, first)
        for group in plan:
            self._batches[group.path].inc()
        if deadline is not None:
            deadline.sent(
                stream.destinations,
                oldest_ns,
                sent_ns,
                time.time_ns() if gone is not None else sent_ns,
                now_s,
                self._links.generation,
                first,
                packed.count,
                len(packed.payload),
            )

    def _leeway(self) -> Leeway | None:
        """None: the next samples may not go ahead."""
        deadline = self.reach.deadline
        if self.is_ending or not self.stream.has_room or self.patience_s:
            return None
        if deadline is None:
            return FREE
        return deadline.leeway(self.stream.destinations)

    def _is_aimed_well(self, leeway: Leeway) -> bool:
        """Whether the next samples would be aimed as they were, but for their numbers."""
        source = self.source
        return (
            self._aimed_by == self.reach.last_plan
            and self._may_wait == leeway.may_wait
            and isinstance(source, ReaderSource)
            and source.lone_writer is not None
        )

    def _end_of_aim(self) -> int:
        """The first number that may not go ahead: its batch is to be traced, or it is too far."""
        first = self.stream.next_number
        end = first + _MOST_AHEAD
        if self._trace is None:
            return end
        self._untraced_until = max(self._untraced_until, first)
        while self._untraced_until < end and not self._trace.is_chosen(self._untraced_until):
            self._untraced_until += 1
        return self._untraced_until

    def _take_aim(self, now_s: float) -> None:
        """The next samples may take the shortcut, if they come as lone as this one did."""
        source, stream = self.source, self.stream
        if not isinstance(source, ReaderSource) or (writer := source.lone_writer) is None:
            return
        end = self._end_of_aim()
        leeway = self._leeway()
        if leeway is None or end == stream.next_number:
            return
        plan = self.reach.last_plan
        if plan != self._aimed_by:
            self._heads = [lone_batch_head(group.edges) for group in plan]
            self._aimed_by = plan
        ways = [
            (descriptor, head, group)
            for group, head in zip(plan, self._heads, strict=True)
            if (descriptor := group.link.open_descriptor) is not None
        ][:_MOST_WAYS]
        if not ways:
            return
        self._aimed_at = [group for _, _, group in ways]
        self._may_wait = leeway.may_wait
        source.aim.set(
            tuple((descriptor, head) for descriptor, head, _ in ways),
            writer,
            self._stream_id,
            stream.next_number,
            end,
            now_s + _AIM_GOOD_S,
            overdue_s=leeway.overdue_s,
            is_all=len(plan) == len(ways) and leeway.may_wait,
            is_timed=self.reach.deadline is not None,
        )

    def renew_aim(self, now_s: float) -> None:
        """Paths have changed: the next sample may go another way, or the same one after all."""
        if (deadline := self.reach.deadline) is not None:
            self.settle_aim()
            now_ns = time.time_ns()
            deadline.plan(self.stream.destinations, now_ns, now_ns, now_s, self._links.generation)
            self._take_aim(now_s)

    def settle_aim(self) -> None:
        """Before anything that may change where the next sample goes, or as which: nothing goes
        ahead any more, and what has is accounted for as what it went."""
        while self._aim is not None and self._aim.lower():
            while self.forward(time.monotonic()):
                continue

    def _send_copy(self, edge: str, first: int, over: OpenPath, now_ns: int) -> bool:
        """Of a batch that may come too late; False: it has arrived, or cannot go there."""
        sent = self.stream.missing(edge, first)
        if sent is None or not over.way.link.send(readdress(sent.frame, (edge,), now_ns)):
            return False
        self._batches[over.way.name].inc()
        return True

    def resend(self, now_s: float) -> None:
        """Sends again what is overdue, unless a link has enough to do already."""
        if self.reach.is_congested():
            return
        for resend in self.stream.due(now_s):
            self.reach.say(resend.edge, readdress(resend.frame, (resend.edge,)))
            self._resent.inc(resend.last - resend.first + 1)

    def end(self) -> None:
        """The source has no more."""
        if not self.is_ending:
            self.settle_aim()
            self._aim = None  # the source may be another stream's from now on
            self.is_ending = True
            self.stream.end()
            self.notices.end()
