"""One remote publisher profile as the LAN sees it: the writer that stands for it and the streams
that feed it. Made by mirrors, fed by egress, and written by write_pump.py, which owns the pace.
"""

from __future__ import annotations

import ctypes as ct
import itertools
import time
from collections import deque
from typing import NamedTuple

from edge_broker.dds import native, samples, shortcuts, watermark
from edge_broker.dds.domain import Port
from edge_broker.dds.matched import change_writer
from edge_broker.dds.shortcuts import IncomingAim
from edge_broker.links import Link
from edge_broker.tracing import Arrival, IncomingTrace
from gateway.model import INFINITE_NS, Liveliness, Profile
from gateway.observe.logs import get_logger
from gateway.observe.metrics import BrokerMetrics, DeadlineMeter
from gateway.plan.demand import MirrorKey, WantedMirror
from gateway.tunnel.columns import WRITE
from gateway.tunnel.frames import Batch, StreamKey, stream_id
from gateway.tunnel.incoming import Delivery, IncomingStream

_log = get_logger("edge.mirror")

_RECOGNITION_S = 0.1
"""How long readers in the LAN may take to learn of a new writer, which knows of them already; DDS
does not tell when they have. Fast DDS lost first samples that came within some milliseconds."""
_MATCH_PATIENCE_S = 1.0
"""How long a new writer waits for the readers discovery promises before samples are asked for."""
_ASK_AGAIN_S = 0.25
_ASK_AGAIN_MOST_S = 2.0
_numbers = itertools.count(1)
MIRROR_STATES = ("waiting for its type", "unavailable", "matching", "asking", "open")


class Pending(NamedTuple):
    """A batch in its turn, with how many of its samples are done with, and since when it is."""

    batch: Batch
    done: int
    arrived_s: float
    path: str
    arrival: Arrival | None


class Inbound:
    """One stream on its way into a mirror."""

    def __init__(self, key: StreamKey, first: int, *, reliable: bool, hold_bytes: int) -> None:
        self.key = key
        self.is_reliable = reliable
        self.incoming: IncomingStream[tuple[Batch, str, Arrival | None]] = IncomingStream(
            key, reliable=reliable, first=first, hold_bytes=hold_bytes
        )
        self.pending: deque[Pending] = deque()
        self.trace: IncomingTrace | None = None
        self.waits_for: StreamKey | None = None
        """The replay whose samples come first."""
        self.closes_after: int | None = None
        """The last number, once its publisher said so."""
        self.written = first - 1
        self.unacknowledged_bytes = 0
        self.answer_link: Link | None = None
        """Where a deadline topic's batches came from last: its answers go back that way."""
        self.answered_over: tuple[Link, int] | None = None
        """The routed way back as it was when it changed last: a link and which of its lives."""
        self.acknowledged_s = 0.0
        """When it was acknowledged last."""
        self.duplicates_told = 0
        self.lost_told = 0
        self._aim = IncomingAim(stream_id(key))

    @property
    def is_complete(self) -> bool:
        if self.closes_after is None or self.pending:
            return False
        # What is skipped is never written.
        return not self.is_reliable or self.incoming.cumulative >= self.closes_after

    def offer(self, batch: Batch, path: str, arrival: Arrival | None = None) -> None:
        """Puts what is in its turn behind what waits already. An arrival is traced."""
        size = len(batch.payload)
        self._append(self.incoming.offer(batch.first, batch.count, (batch, path, arrival), size))

    def advance(self, first: int) -> None:
        """Nothing before `first` will come any more."""
        self._append(self.incoming.advance(first))

    def _append(self, deliveries: list[Delivery[tuple[Batch, str, Arrival | None]]]) -> None:
        now_s = time.monotonic()
        for delivery in deliveries:
            batch, path, arrival = delivery.item
            self.pending.append(Pending(batch, delivery.skip, now_s, path, arrival))

    def take_aim(self, writer: Port) -> None:
        """The next batches may take the shortcut, as long as they are lone samples and nothing
        waits for them."""
        if not self.pending and not self.incoming.has_gap and self.waits_for is None:
            self._aim.set(writer.ref, self.incoming.next_number)
        else:
            self._aim.lower()

    @property
    def is_aimed(self) -> bool:
        return self._aim.is_set

    def lower_aim(self) -> bool:
        """No batch takes the shortcut. Whether some have that are not accounted for."""
        return self._aim.lower()

    def close(self) -> None:
        """Nothing of it is written any more."""
        self._aim.close()

    @property
    def waiting_bytes(self) -> int:
        """Bytes that have arrived and are not in DDS yet."""
        waiting = sum(len(pending.batch.payload) for pending in self.pending)
        return self.incoming.held_bytes + waiting


class Mirror:
    """The writer and its inbound streams."""

    def __init__(self, key: MirrorKey, want: WantedMirror, metrics: BrokerMetrics) -> None:
        self.key = key
        self.profile: Profile = want.profile
        self.writers = want.writers
        self.former: set[str] = set()
        """Profiles its writers had before they changed policies."""
        self.is_wanted = True
        self.subscribers = want.subscribers
        self.type_hash = want.type_hash
        self.leaves_at_s: float | None = None
        """When it goes even if readers have not confirmed everything."""
        self.is_waiting_for_open = False
        """Whether it has asked for samples and no stream has been opened yet."""
        self.writer: Port | None = None
        self.number = next(_numbers)
        """Another one for each mirror of this edge."""
        self._high_mark: ct.c_uint32 | None = None
        self.inbound: dict[StreamKey, Inbound] = {}
        self.problem: str | None = None
        self.samples = 0
        self.rejected = 0
        self._match_deadline_s = 0.0
        self._recognised_s = 0.0
        self._is_matched = False
        self._ask_due_s = 0.0
        self._ask_again_s = _ASK_AGAIN_S
        self._assert_due_s = 0.0
        label = metrics.topic_label(key.topic)
        peer_lan = metrics.peer_lan_label(key.topic, want.lan)
        self._samples_out = metrics.samples_out.labels(topic=label, peer_lan=peer_lan)
        self._bytes_out = metrics.bytes_out.labels(topic=label, peer_lan=peer_lan)
        self._rejected = metrics.samples_dropped.labels(topic=label, reason="rejected_by_dds")
        self._expired = metrics.samples_dropped.labels(topic=label, reason="expired")
        self._lost = {
            is_reliable: metrics.samples_dropped.labels(topic=label, reason=reason)
            for is_reliable, reason in ((True, "lost"), (False, "best_effort"))
        }
        self._duplicates = metrics.samples_duplicate.labels(topic=label, peer_lan=peer_lan)
        pair = metrics.pair_label(key.topic, want.lan)
        self._latency = metrics.end_to_end_latency.labels(topic=pair, peer_lan=want.lan)
        self._egress_hop = metrics.hop_latency.labels(hop="egress")
        self._metrics = metrics
        self.lan = want.lan
        self._deadlines: dict[str, DeadlineMeter | None] = {}
        """By path."""
        self.clock_offset_ns = 0
        """By how much the clock here is ahead of the publisher's edge's, when that is known."""

    @property
    def state(self) -> str:
        if self.writer is None:
            return "waiting for its type" if self.problem is None else "unavailable"
        if not self._is_matched:
            return "matching"
        return "open" if self.has_live_stream else "asking"

    @property
    def has_live_stream(self) -> bool:
        return bool(self.inbound)

    @property
    def is_settling(self) -> bool:
        """Whether it is about to ask: worth looking at again very soon."""
        return self.writer is not None and not self._is_matched

    def set_writer(self, writer: Port, now_s: float) -> None:
        self.writer = writer
        self._high_mark = watermark.find(writer.ref)
        self.problem = None
        self._recognised_s = now_s + _RECOGNITION_S
        self._match_deadline_s = now_s + _MATCH_PATIENCE_S

    @property
    def is_delivered(self) -> bool:
        """Whether the LAN's readers have confirmed all that was written for them."""
        return self.writer is None or native.wait_for_acks(self.writer.ref, 1) == native.RETCODE_OK

    def should_ask(self, now_s: float) -> bool:
        """Whether to ask the publisher's edge for samples now. Not before the local readers are
        matched, and had time to match themselves: what is written earlier, they never see."""
        if self.writer is None or self.has_live_stream:
            return False
        if not self._is_matched:
            matched = native.matched_readers(self.writer.ref)
            if matched < self.subscribers:
                self._recognised_s = now_s + _RECOGNITION_S
            self._is_matched = now_s >= min(self._recognised_s, self._match_deadline_s)
        if not self._is_matched or now_s < self._ask_due_s:
            return False
        self.is_waiting_for_open = True
        self._ask_due_s = now_s + self._ask_again_s
        self._ask_again_s = min(2 * self._ask_again_s, _ASK_AGAIN_MOST_S)
        return True

    def ask_again(self) -> None:
        """The publisher's edge does not feed this mirror (any longer)."""
        self._ask_due_s = 0.0
        self._ask_again_s = _ASK_AGAIN_S

    def follow(self, key: MirrorKey, want: WantedMirror) -> bool:
        """The writers this one stands for changed policies; False when DDS refuses the change."""
        if self.writer is not None and not change_writer(self.writer, want.profile.qos):
            return False
        for inbound in self.inbound.values():
            inbound.lower_aim()
        self.former.add(self.key.profile)
        self.key = key
        self.profile = want.profile
        self.ask_again()
        return True

    @property
    def shortcut(self) -> Port | None:
        """What lone samples may be written to at once; None: each has to be looked at."""
        return self.writer if self.profile.qos.lifespan_ns >= INFINITE_NS else None

    def hold_to(self, most_bytes: int) -> None:
        """It may have no more under way; DDS lets it have more again, little by little."""
        if self._high_mark is not None and self._high_mark.value > most_bytes:
            self._high_mark.value = most_bytes

    def write(self, inbound: Inbound) -> bool:
        """Writes the stream's next batch; False when the writer is full."""
        assert self.writer is not None
        batch, done, arrived_s, path, arrival = inbound.pending.popleft()
        fresh = None
        if self.profile.qos.lifespan_ns < INFINITE_NS:
            fresh = self._fresh(batch, done)
        chosen, start = (batch, done) if fresh is None else (batch.only(fresh), 0)
        reached = samples.write(self.writer.ref, chosen, start, self._count_rejected)
        count = reached - start
        is_whole = reached == chosen.count
        size = chosen.size_of(start, reached)
        self.samples += count
        self._samples_out.inc(count)
        self._bytes_out.inc(size)
        if count:
            written_ns = shortcuts.written_at_ns() or time.time_ns()
            if arrival is not None and inbound.trace is not None:
                inbound.trace.written(
                    batch,
                    arrival,
                    range(done, reached) if fresh is None else fresh[:count],
                    written_ns,
                    inbound.incoming.lost,
                )
            now_ns = written_ns - self.clock_offset_ns
            self._latency.observe(max(0, now_ns - chosen.timestamps[start]) / 1e9)
            self._egress_hop.observe(time.monotonic() - arrived_s)
            meter = self._deadline_meter(path)
            if meter is not None:
                meter.count(chosen.timestamps[start:reached], now_ns)
        inbound.unacknowledged_bytes += size
        dealt_with = count
        if fresh is not None:
            dealt_with = (batch.count if is_whole else fresh[count]) - done
            self._expired.inc(dealt_with - count)
        inbound.written = batch.first + done + dealt_with - 1
        inbound.incoming.written(inbound.written)
        if not is_whole:
            rest = Pending(batch, done + dealt_with, arrived_s, path, arrival)
            inbound.pending.appendleft(rest)
        return is_whole

    def _deadline_meter(self, path: str) -> DeadlineMeter | None:
        if path not in self._deadlines:
            self._deadlines[path] = self._metrics.deadline_meter(
                self.key.topic, self.lan, path, self.profile.qos.deadline_ns
            )
        return self._deadlines[path]

    def _fresh(self, batch: Batch, start: int) -> list[int] | None:
        """Places of the samples that have not outlived their lifespan; None: all. DDS would count
        it from now on. What a dispose or unregister says never gets too old."""
        oldest = time.time_ns() - self.profile.qos.lifespan_ns
        if min(batch.timestamps) >= oldest:
            return None
        return [
            at
            for at in range(start, batch.count)
            if batch.timestamps[at] >= oldest or (batch.kinds and batch.kinds[at] != WRITE)
        ]

    def count_losses(self, inbound: Inbound) -> None:
        """Brings the metrics up to what the stream knows of samples lost and come again."""
        incoming = inbound.incoming
        if incoming.duplicates > inbound.duplicates_told:
            self._duplicates.inc(incoming.duplicates - inbound.duplicates_told)
            inbound.duplicates_told = incoming.duplicates
        if incoming.lost > inbound.lost_told:
            self._lost[inbound.is_reliable].inc(incoming.lost - inbound.lost_told)
            inbound.lost_told = incoming.lost

    def assert_liveliness(self) -> None:
        if self.writer is not None:
            native.assert_liveliness(self.writer.ref)

    def bridge_silence(self, now_s: float) -> None:
        """A new mirror of a manual writer lives until its publisher's edge can speak for it."""
        qos = self.profile.qos
        if (
            qos.liveliness is not Liveliness.AUTOMATIC
            and qos.liveliness_lease_ns < INFINITE_NS
            and not self.has_live_stream
            and now_s >= self._assert_due_s
        ):
            self._assert_due_s = now_s + qos.liveliness_lease_ns / 3e9
            self.assert_liveliness()

    def _count_rejected(self, code: int) -> None:
        self.rejected += 1
        self._rejected.inc()
        if self.rejected == 1:
            _log.warning(
                "DDS rejects a sample, it is skipped; do both LANs use the same type?",
                topic=self.key.topic,
                origin=self.key.edge,
                code=code,
            )
