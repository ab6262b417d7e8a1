"""What is told of the streams that leave a LAN: to the metrics and to whoever asks for the state.
Called by ingress.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from edge_broker.outflow import OUTFLOW_STATES, Outflow
from edge_broker.source import ReplaySource
from gateway.model import FabricView, Reliability
from gateway.observe.metrics import BrokerMetrics


class StreamGauges:
    """Gauges by topic and by LAN, which go with what they tell of."""

    def __init__(self, metrics: BrokerMetrics, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._clock = clock
        self._shown_topics: set[str] = set()
        self._shown_lans: set[str] = set()

    def show(self, outflows: Iterable[Outflow], view: FabricView, kept_beyond_bytes: int) -> None:
        metrics = self._metrics
        now_s = self._clock()
        kept: Counter[str] = Counter()
        fill: dict[str, float] = {}
        states: Counter[str] = Counter()
        lags: dict[str, float] = {}
        for outflow in outflows:
            label = metrics.topic_label(outflow.topic)
            kept[label] += outflow.stream.kept_bytes
            fill[label] = max(fill.get(label, 0.0), outflow.fill_ratio)
            states[outflow.state] += 1
            for edge in outflow.stream.destinations:
                if (info := view.edges.get(edge)) is not None:
                    lags[info.lan] = max(lags.get(info.lan, 0.0), outflow.stream.lag_s(edge, now_s))
        for topic in self._shown_topics - kept.keys():
            metrics.window_bytes.remove(topic)
            metrics.window_fill.remove(topic)
        for topic, size in kept.items():
            metrics.window_bytes.labels(topic=topic).set(size)
            metrics.window_fill.labels(topic=topic).set(fill[topic])
        self._shown_topics = set(kept)
        for lan in self._shown_lans - lags.keys():
            metrics.acknowledgement_lag.remove(lan)
        for lan, lag_s in lags.items():
            metrics.acknowledgement_lag.labels(peer_lan=lan).set(lag_s)
        self._shown_lans = set(lags)
        metrics.outage_bytes.set(kept_beyond_bytes)
        for state in OUTFLOW_STATES:
            self._metrics.routes.labels(direction="out", state=state).set(states[state])


def summarise(outflows: Iterable[Outflow]) -> list[dict[str, object]]:
    """For status."""
    return [
        {
            "topic": outflow.topic,
            "profile": outflow.profile_id,
            "stream": outflow.key.number,
            "reliable": outflow.profile.qos.reliability is Reliability.RELIABLE,
            "samples": outflow.stream.next_number - 1,
            "subscribers": sorted(outflow.stream.subscribers),
            "state": outflow.state,
            "blocked": not outflow.stream.has_room,
            "replay": isinstance(outflow.source, ReplaySource),
            "deadline": [] if outflow.deadline is None else outflow.deadline.summary(),
        }
        for outflow in outflows
    ]
