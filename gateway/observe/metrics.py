"""The Prometheus metrics of a broker: every family with its name, unit and labels, in one place.
The brokers' app.py makes one `BrokerMetrics` and hands it down; nobody else imports the library.
"""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

TOPIC_LABELS = 2000
"""Topics shown by name; later ones share the label `(other)`, so that one broker can never
exhaust a metrics server."""
OTHER_TOPICS = "(other)"

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for every counter
_LATENCY_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class BrokerMetrics:
    """The families of one process in a registry of their own.

    `family.labels(...)` costs a dictionary and a lock: call it when a route or link opens, keep
    the child, and on the way of samples only `child.inc(n)` once per batch. `family.remove(...)`
    when the route or link closes.
    """

    def __init__(self, component: str, version: str) -> None:
        self.registry = CollectorRegistry()
        self._topics: set[str] = set()
        ProcessCollector(registry=self.registry)
        build = self._gauge("ddswan_build_info", "Always 1.", "component", "version")
        build.labels(component=component, version=version).set(1)

        # Samples, counted where they cross DDS (in: taken from it, out: written into it).
        self.samples_in = self._counter("ddswan_samples_in", "Samples taken from DDS.", "topic")
        self.bytes_in = self._counter("ddswan_bytes_in", "Bytes taken from DDS.", "topic")
        self.samples_out = self._counter("ddswan_samples_out", "Samples written to DDS.", "topic")
        self.bytes_out = self._counter("ddswan_bytes_out", "Bytes written to DDS.", "topic")
        self.samples_dropped = self._counter(
            "ddswan_samples_dropped", "Samples given up, by reason.", "topic", "reason"
        )
        self.samples_duplicate = self._counter(
            "ddswan_samples_duplicate", "Samples that arrived again and were ignored.", "topic"
        )
        self.samples_resent = self._counter("ddswan_samples_resent", "Samples sent again.", "topic")
        self.batches_sent = self._counter("ddswan_batches_sent", "Batches sent.", "topic", "path")
        self.window_bytes = self._gauge(
            "ddswan_window_bytes", "Bytes of a stream not yet acknowledged.", "topic"
        )
        self.end_to_end_latency = self._histogram(
            "ddswan_end_to_end_latency_seconds",
            "From source timestamp to written into DDS, as far as clocks agree.",
            "topic",
            "peer_lan",
        )

        # Routes and matching.
        self.routes = self._gauge(
            "ddswan_routes", "Routes by direction and state.", "direction", "state"
        )
        self.incompatible_pairs = self._gauge(
            "ddswan_incompatible_pairs", "Cross-LAN pairs that do not match.", "policy"
        )

        # Links.
        self.link_up = self._gauge("ddswan_link_up", "1 while the link is up.", "peer")
        self.link_losses = self._counter("ddswan_link_losses", "Links lost.", "peer")
        self.link_rtt = self._gauge("ddswan_link_rtt_seconds", "Round trip of a link.", "peer")
        self.link_clock_offset = self._gauge(
            "ddswan_link_clock_offset_seconds", "The peer's clock minus ours.", "peer"
        )
        self.queue_bytes = self._gauge("ddswan_queue_bytes", "Bytes waiting for a link.", "peer")

        # Relay.
        self.relayed_frames = self._counter("ddswan_relayed_frames", "Frames forwarded.", "peer")
        self.relayed_bytes = self._counter("ddswan_relayed_bytes", "Bytes forwarded.", "peer")
        self.relay_dropped_frames = self._counter(
            "ddswan_relay_dropped_frames", "Frames a router gave up, by reason.", "reason"
        )

        # Coordination.
        # Without labels they would show even where nobody ever sets them.
        registry = self.registry if component == "router" else None
        self.is_leader = Gauge("ddswan_leader", "1 while this router leads.", registry=registry)
        self.leader_epoch = Gauge(
            "ddswan_leader_epoch", "Epoch of this router's leadership.", registry=registry
        )
        self.assignments = self._gauge(
            "ddswan_assignments", "Topics assigned, by router.", "router"
        )
        self.moves = self._counter("ddswan_assignment_moves", "Topics moved, by reason.", "reason")
        self.coordination_latency = self._histogram(
            "ddswan_coordination_latency_seconds", "ZooKeeper requests.", "operation"
        )
        self.session_losses = self._counter("ddswan_session_losses", "ZooKeeper sessions lost.")

        # Bad input: counted here, logged once, never fatal.
        self.bad_records = self._counter("ddswan_bad_records", "Znodes not understood.", "reason")
        self.bad_frames = self._counter("ddswan_bad_frames", "Frames not understood.", "reason")
        self.bad_types = self._counter(
            "ddswan_bad_types", "Types that cannot be rebuilt.", "reason"
        )

    def topic_label(self, topic: str) -> str:
        """The value to use as `topic` label."""
        if topic not in self._topics:
            if len(self._topics) >= TOPIC_LABELS:
                return OTHER_TOPICS
            self._topics.add(topic)
        return topic

    def observe_coordination(self, operation: str, seconds: float) -> None:
        self.coordination_latency.labels(operation=operation).observe(seconds)

    def render(self) -> bytes:
        """The /metrics page."""
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(name, text, labels, buckets=_LATENCY_S, registry=self.registry)
