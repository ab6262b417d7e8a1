"""The Prometheus metrics of a broker: every family with its name, unit and labels, in one place.
The brokers' app.py makes one `BrokerMetrics` and hands it down; docs/metrics.md is made from it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from gateway.model import INFINITE_NS
from gateway.observe.collectors import LoopCounter, LoopHistogram, SameLabels
from gateway.observe.metric_labels import (
    OTHER_LANS,
    OTHER_TOPICS,
    PAIR_LABELS,
    RETIRED_AFTER_S,
    TOPIC_LABELS,
)

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for every counter
_LATENCY_S = (
    *(0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
)


@dataclass(frozen=True, slots=True)
class Family:
    """What one metric is, as far as it can be told without a value."""

    name: str
    """As queries name it; those of a histogram end in _bucket, _sum and _count."""
    kind: str
    text: str
    labels: tuple[str, ...]
    section: str
    components: tuple[str, ...]


class BrokerMetrics:
    """The families of one process in a registry of their own.

    `family.labels(...)` costs a dictionary and a lock: call it when a route or link opens, keep
    the child, and on the way of samples only `child.inc(n)` once per batch, on the event loop's
    thread: these families of edges (by topic, and latencies) have no lock. What `retire` is told
    of needs no `family.remove(...)`; other gauges do, when the route or link closes.
    """

    def __init__(
        self, component: str, version: str, *, fabric: str = "", broker: str = "", lan: str = ""
    ) -> None:
        self.families: list[Family] = []
        self._component = component
        self._registry = CollectorRegistry()
        self._topics: set[str] = set()
        self._pairs: set[tuple[str, str]] = set()
        self._last_used_s: dict[str, dict[str, float]] = {"topic": {}, "peer": {}}
        self._by_label: dict[str, list[Counter | Gauge | Histogram]] = {"topic": [], "peer": []}
        same = {"fabric": fabric, "broker": broker, "lan": lan}
        self._page = SameLabels(self._registry, {k: v for k, v in same.items() if v})
        ProcessCollector(registry=self._registry)

        self._section = "Broker"
        self._on: tuple[str, ...] = ("edge", "router")
        self.build_info = self._gauge(
            "ddswan_build_info", "Always 1; tells which broker this is.", "component", "version"
        )
        self.build_info.labels(component=component, version=version).set(1)

        self._section, self._on = "Samples", ("edge",)
        self.samples_in = self._counter(
            "ddswan_samples_in", "Samples taken from the LAN for other LANs.", "topic"
        )
        self.bytes_in = self._counter(
            "ddswan_bytes_in", "Bytes of samples taken from the LAN for other LANs.", "topic"
        )
        self.samples_out = self._counter(
            "ddswan_samples_out",
            "Samples of other LANs written into this LAN.",
            "topic",
            "peer_lan",
        )
        self.bytes_out = self._counter(
            "ddswan_bytes_out",
            "Bytes of samples of other LANs written into this LAN.",
            "topic",
            "peer_lan",
        )
        self.samples_dropped = self._counter(
            "ddswan_samples_dropped",
            "Samples given up. Reasons: `best_effort` (a best-effort sample did not arrive), "
            "`lost` (a reliable sample did not arrive, because this LAN was left behind), "
            "`laggard` (not waited for: the subscribing LAN was left behind), `too_large`, "
            "`expired` (older than its lifespan), `rejected_by_dds`.",
            "topic",
            "reason",
        )
        self.samples_duplicate = self._counter(
            "ddswan_samples_duplicate",
            "Samples that arrived again and were ignored.",
            "topic",
            "peer_lan",
        )
        self.samples_resent = self._counter(
            "ddswan_samples_resent", "Samples sent again, as nobody acknowledged them.", "topic"
        )
        self.batches_sent = self._counter(
            "ddswan_batches_sent", "Batches of samples sent, by path.", "topic", "path"
        )

        self._section = "Latency and deadlines"
        self.end_to_end_latency = self._histogram(
            "ddswan_end_to_end_latency_seconds",
            "From the source timestamp of the first sample of a batch until it is written into "
            "this LAN, as far as clocks agree (`ddswan_link_clock_offset_seconds`).",
            "topic",
            "peer_lan",
        )
        self.hop_latency = self._histogram(
            "ddswan_hop_latency_seconds",
            "Where the time of a batch goes. Hops: `ingress` (source timestamp until sent by the "
            "publisher's edge), `egress` (all before it has arrived at the subscriber's edge, "
            "until it is written into DDS).",
            "hop",
        )
        self.deadline_samples = self._counter(
            "ddswan_deadline_samples",
            "Samples of writers that offer a deadline, written into this LAN.",
            "topic",
            "peer_lan",
            "path",
        )
        self.deadline_misses = self._counter(
            "ddswan_deadline_misses",
            "Those of them that were written later after their source timestamp than the deadline "
            "their writer offers.",
            "topic",
            "peer_lan",
            "path",
        )

        self._section = "Windows and queues"
        self.window_bytes = self._gauge(
            "ddswan_window_bytes", "Bytes sent and not yet acknowledged by every LAN.", "topic"
        )
        self.window_fill = self._gauge(
            "ddswan_window_fill_ratio",
            "Share of `stream.window_bytes` in use by the topic's fullest stream; at 1 the LAN's "
            "writers are held back. Above 1 while an outage is bridged.",
            "topic",
        )
        self.outage_bytes = self._gauge(
            "ddswan_outage_bytes",
            "Bytes kept beyond the windows while LANs are cut off; `ingress.outage_bytes` is all "
            "there may be.",
        )
        self.acknowledgement_lag = self._gauge(
            "ddswan_acknowledgement_lag_seconds",
            "How long ago the oldest sample was sent that that LAN has not acknowledged as written "
            "into its DDS; the longest of all topics, 0: it owes nothing.",
            "peer_lan",
        )
        self.pending_bytes = self._gauge(
            "ddswan_pending_bytes",
            "Bytes that have arrived and wait for their turn to be written into DDS.",
        )
        self._on = ("edge", "router")
        self.queue_bytes = self._gauge("ddswan_queue_bytes", "Bytes waiting for a link.", "peer")

        self._section, self._on = "Routes and matching", ("edge",)
        self.routes = self._gauge(
            "ddswan_routes",
            "Routes by direction and state. Out: `open`, `blocked` (a window is full), `ending`. "
            "In: `open`, `asking` (for the stream), `matching` (waits for local readers), "
            "`waiting for its type`, `unavailable`.",
            "direction",
            "state",
        )
        self.incompatible_pairs = self._gauge(
            "ddswan_incompatible_pairs",
            "Pairs of a publisher in another LAN and a subscriber here that do not match, once "
            "for each policy that fails; `ddswan status` tells which.",
            "policy",
        )
        self._on = ("edge", "router")
        self.unassigned_topics = self._gauge(
            "ddswan_unassigned_topics",
            "Topics in use across LANs for which there is no live router, as this broker sees it "
            "(a router: while it leads).",
        )

        self._section, self._on = "Links", ("edge",)
        self.link_up = self._gauge("ddswan_link_up", "1 while the link is up.", "peer")
        self.link_losses = self._counter("ddswan_link_losses", "Links lost.", "peer")
        self.link_express = self._gauge(
            "ddswan_link_express",
            "1 while frames to this router go over an express link, 0: over gRPC.",
            "peer",
        )
        self.link_rtt = self._gauge(
            "ddswan_link_rtt_seconds", "Last round trip of a ping over the link.", "peer"
        )
        self.link_clock_offset = self._gauge(
            "ddswan_link_clock_offset_seconds", "The peer's clock minus ours.", "peer"
        )
        self.link_clock_error = self._gauge(
            "ddswan_link_clock_error_seconds",
            "How far `ddswan_link_clock_offset_seconds` may be from the truth.",
            "peer",
        )

        self.datagrams_sent = self._counter(
            "ddswan_datagrams_sent",
            "Datagrams sent to this edge beside the direct link, with repair data.",
            "peer",
        )
        self.datagrams_lost = self._counter(
            "ddswan_datagrams_lost", "Of those sent, datagrams this edge has not got.", "peer"
        )
        self.datagrams_repaired = self._counter(
            "ddswan_datagrams_repaired",
            "Datagrams from this edge that did not come and were made again from repair data.",
            "peer",
        )

        self._section, self._on = "Machine", ("edge",)
        self.processors_awake = self._gauge(
            "ddswan_processors_awake",
            "1 while this edge keeps the processors of its machine awake "
            "(`express.awake_deadline_s`).",
        )

        self._section, self._on = "Relay", ("router",)
        self.relayed_frames = self._counter(
            "ddswan_relayed_frames", "Frames that came from an edge.", "peer"
        )
        self.relayed_bytes = self._counter(
            "ddswan_relayed_bytes", "Bytes of frames that came from an edge.", "peer"
        )
        self.relay_dropped_frames = self._counter(
            "ddswan_relay_dropped_frames",
            "Frames given up, once for each destination; edges repair it. Reasons: `no such edge`, "
            "`queue full`, `to its sender`, `not for routers`.",
            "reason",
        )

        self._section = "Coordination"
        self.is_leader = self._gauge("ddswan_leader", "1 while this router leads the fabric.")
        self.leader_epoch = self._gauge(
            "ddswan_leader_epoch", "Epoch of this router's latest leadership; grows in a fabric."
        )
        self.assignments = self._gauge(
            "ddswan_assignments",
            "Topics by their primary router; told by the leader only.",
            "router",
        )
        self.moves = self._counter(
            "ddswan_assignment_moves",
            "Topics that got another primary from this leader. Reasons are those of the log's "
            "`assignment changed`.",
            "reason",
        )
        self._on = ("edge", "router")
        self.coordination_latency = self._histogram(
            "ddswan_coordination_latency_seconds", "ZooKeeper's answers to requests.", "operation"
        )
        self.zookeeper_connected = self._gauge(
            "ddswan_zookeeper_connected", "1 while there is a session with ZooKeeper that answers."
        )
        self.session_losses = self._counter(
            "ddswan_session_losses", "Sessions with ZooKeeper that ended against our will."
        )

        self._section = "Input that cannot be understood (counted, logged once, skipped)"
        self.bad_records = self._counter(
            "ddswan_bad_records", "Records of the tree, by kind of record.", "reason"
        )
        self.bad_frames = self._counter("ddswan_bad_frames", "Frames from links.", "reason")
        self._on = ("edge",)
        self.bad_types = self._counter(
            "ddswan_bad_types", "Types that cannot be rebuilt, by error.", "reason"
        )

        self._section = "Traces"
        self.trace_disk_bytes = self._gauge(
            "ddswan_trace_disk_bytes", "Bytes of trace files on disk."
        )
        self.trace_disk_limit_bytes = self._gauge(
            "ddswan_trace_disk_limit_bytes", "Bytes of trace files there may be on disk."
        )
        self.trace_rows = self._counter("ddswan_trace_rows", "Trace rows written.")
        self.trace_rows_dropped = self._counter(
            "ddswan_trace_rows_dropped",
            "Trace rows given up. Reasons: `disk` (it is full or fails), `queue` (more came than "
            "could be written), `malformed` (a bug).",
            "reason",
        )

    # ------------------------------------------------------------ labels

    def topic_label(self, topic: str) -> str:
        """The value to use as `topic` label."""
        if topic not in self._topics:
            if len(self._topics) >= TOPIC_LABELS:
                return OTHER_TOPICS
            self._topics.add(topic)
        return topic

    def pair_label(self, topic: str, peer_lan: str) -> str:
        """The value to use as `topic` label beside a `peer_lan`."""
        label = self.topic_label(topic)
        if (label, peer_lan) not in self._pairs and label != OTHER_TOPICS:
            if len(self._pairs) >= PAIR_LABELS:
                return OTHER_TOPICS
            self._pairs.add((label, peer_lan))
        return label

    def peer_lan_label(self, topic: str, peer_lan: str) -> str:
        """The value to use as `peer_lan` label beside `topic_label`: the sum over the LANs of a
        topic stays true beyond the bound."""
        is_known = self.pair_label(topic, peer_lan) == self.topic_label(topic)
        return peer_lan if is_known else OTHER_LANS

    def retire(self, label: str, in_use: Collection[str], now_s: float) -> None:
        """Told now and then which topics or peers there are; removes the series of one that has
        been gone for long, and gives its place to another. One at a time: it takes a moment."""
        last_used_s = self._last_used_s[label]
        last_used_s.update(dict.fromkeys(in_use, now_s))
        gone = min(last_used_s, key=last_used_s.__getitem__, default=None)
        if gone is None or now_s - last_used_s[gone] < RETIRED_AFTER_S:
            return
        del last_used_s[gone]
        for family in self._by_label[label]:
            family.remove_by_labels({label: gone})
        if label == "topic":
            self._topics.discard(gone)
            self._pairs = {pair for pair in self._pairs if pair[0] != gone}

    def deadline_meter(
        self, topic: str, peer_lan: str, path: str, deadline_ns: int
    ) -> DeadlineMeter | None:
        """What counts the samples of a writer that come over this path; None: it offers no
        deadline."""
        if deadline_ns >= INFINITE_NS:
            return None
        labels = (self.pair_label(topic, peer_lan), peer_lan, path)
        return DeadlineMeter(
            deadline_ns, self.deadline_samples.labels(*labels), self.deadline_misses.labels(*labels)
        )

    def observe_coordination(self, operation: str, seconds: float) -> None:
        self.coordination_latency.labels(operation=operation).observe(seconds)

    def render(self) -> bytes:
        """The /metrics page."""
        return generate_latest(self._page)

    # ------------------------------------------------------------ families

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        kind = LoopCounter if self._on == ("edge",) and "topic" in labels else Counter
        family = kind(name, text, labels, registry=self._place(labels))
        self._describe(f"{name}_total", "counter", text, labels, family)
        return family

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        family = Gauge(name, text, labels, registry=self._place(labels))
        self._describe(name, "gauge", text, labels, family)
        return family

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        place = self._place(labels)
        kind = LoopHistogram if self._on == ("edge",) else Histogram
        family = kind(name, text, labels, buckets=_LATENCY_S, registry=place)
        self._describe(name, "histogram", text, labels, family)
        return family

    def _place(self, labels: tuple[str, ...]) -> CollectorRegistry | None:
        """Nowhere: what has no labels would show a 0 where nobody ever sets it."""
        return self._registry if labels or self._component in self._on else None

    def _describe(
        self,
        name: str,
        kind: str,
        text: str,
        labels: tuple[str, ...],
        family: Counter | Gauge | Histogram,
    ) -> None:
        self.families.append(Family(name, kind, text, labels, self._section, self._on))
        for label in self._by_label.keys() & set(labels):
            self._by_label[label].append(family)


class DeadlineMeter:
    """Counts which samples of one writer and path were written too late."""

    def __init__(self, deadline_ns: int, samples: Counter, misses: Counter) -> None:
        self._deadline_ns = deadline_ns
        self._samples = samples
        self._misses = misses

    def count(self, timestamps: Sequence[int], now_ns: int) -> None:
        """These source timestamps were written now; there is at least one."""
        self._samples.inc(len(timestamps))
        oldest_ns = now_ns - self._deadline_ns
        if min(timestamps) < oldest_ns:
            self._misses.inc(sum(timestamp < oldest_ns for timestamp in timestamps))
