"""Labels of metrics: which there are, and how many values each may have, so that a scrape stays
small however many topics there are. Values are kept within these bounds by metrics.py.
"""

from __future__ import annotations

TOPIC_LABELS = 500
"""Topics shown by name; later ones share the label `(other)`, so that one broker can never
exhaust a metrics server."""
PAIR_LABELS = 2 * TOPIC_LABELS
"""Topics times peer LANs shown by name in what is told for each of these pairs."""
OTHER_TOPICS = "(other)"
OTHER_LANS = "(other)"
RETIRED_AFTER_S = 600.0
"""How long the series of a topic or peer stay when it is gone: scrapers see its last values."""

LABELS = {
    "fabric": "on everything: the fabric of the broker",
    "broker": "on everything: the id of the edge or router",
    "lan": "on everything an edge says: its LAN",
    "component": "`edge` or `router`",
    "version": "version of ddswan",
    "topic": f"topic name; beyond {TOPIC_LABELS} topics of one broker: `{OTHER_TOPICS}`",
    "peer_lan": f"the LAN the samples come from, or go to; beyond {PAIR_LABELS} topics times LANs "
    f"of one broker it or the topic is `{OTHER_LANS}`",
    "peer": "id of the broker at the other end of a link",
    "path": "`routed`, `express` (edge to edge) or `standby`",
    "reason": "why, see the metric",
    "direction": "`out`: from this LAN; `in`: into this LAN",
    "state": "see the metric",
    "policy": "DDS QoS policy that does not match, or `type`",
    "router": "id of a router",
    "operation": "ZooKeeper request: `get`, `children`, `create` …",
    "hop": "part of a sample's way, see the metric",
}
"""Every label there is, and what it tells. Never GUIDs or numbers of streams."""
