"""Writes the Grafana dashboards into the folder given: `dashboards/` by `./dev generate`, another
one by `./dev lint` to see whether they have drifted. What they show is said here; a panel's place
follows from its place in the list.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from grafana import Dashboard, Panel, to_json

_RATE = "[$__rate_interval]"


def stat(title: str, expression: str, unit: str = "short", text: str = "") -> Panel:
    return Panel(title, {"": expression}, unit, "stat", text, width=4, height=4)


def quantile(share: float, selector: str, by: str = "") -> str:
    kept = f"{by}, le" if by else "le"
    return f"histogram_quantile({share}, sum by ({kept}) (rate({selector}{_RATE})))"


_F = 'fabric="$fabric"'
_PAIR = f'{_F}, lan="$lan", peer_lan="$peer_lan"'
_TOPIC = f'{_F}, topic="$topic"'
_LATENCY = "ddswan_end_to_end_latency_seconds_bucket"

FLEET = Dashboard(
    "ddswan-fleet",
    "ddswan: fleet",
    "Is everything there, what flows, and who suffers. Start here.",
    {"fabric": "ddswan_build_info"},
    (
        stat("Edges", f'count(ddswan_build_info{{{_F}, component="edge"}})'),
        stat("Routers", f'count(ddswan_build_info{{{_F}, component="router"}})'),
        stat("LANs", f'count(count by (lan) (ddswan_build_info{{{_F}, component="edge"}}))'),
        stat("Leaders", f"fabric:ddswan_leaders:sum{{{_F}}}", text="One, or something is wrong."),
        stat("Links down", f"sum(1 - ddswan_link_up{{{_F}}})"),
        stat(
            "Topics without router",
            f"max(ddswan_unassigned_topics{{{_F}}})",
            text="In use across LANs, and nobody carries them.",
        ),
        Panel(
            "Alerts",
            {"": 'ALERTS{alertname=~"Ddswan.+", alertstate="firing"}'},
            kind="table",
            text="docs/operations.md says for each what to do.",
            width=24,
            height=6,
        ),
        Panel(
            "Samples taken from each LAN",
            {"{{lan}}": f"lan:ddswan_samples_in:rate1m{{{_F}}}"},
            "cps",
        ),
        Panel(
            "Samples written into each LAN",
            {"{{lan}}": f"lan:ddswan_samples_out:rate1m{{{_F}}}"},
            "cps",
            text="A sample for three LANs counts three times here and once on the left.",
        ),
        Panel(
            "Bytes taken from each LAN",
            {"{{lan}}": f"lan:ddswan_bytes_in:rate1m{{{_F}}}"},
            "Bps",
        ),
        Panel(
            "Bytes written into each LAN",
            {"{{lan}}": f"lan:ddswan_bytes_out:rate1m{{{_F}}}"},
            "Bps",
        ),
        Panel(
            "Latency of each LAN pair, 99th percentile",
            {
                "{{peer_lan}} to {{lan}}": (
                    f"lan_peer_lan:ddswan_end_to_end_latency_seconds:p99_5m{{{_F}}}"
                )
            },
            "s",
            text="From the source timestamp until written into DDS of the other LAN.",
        ),
        Panel(
            "Missed deadlines, the ten worst",
            {
                "{{topic}}, {{peer_lan}} to {{lan}}": (
                    f"topk(10, lan_peer_lan_topic:ddswan_deadline_misses:ratio5m{{{_F}}})"
                )
            },
            "percentunit",
        ),
        Panel(
            "Samples given up",
            {"{{lan}}: {{reason}}": f"lan_reason:ddswan_samples_dropped:rate5m{{{_F}}}"},
            "cps",
            text="docs/metrics.md explains the reasons.",
        ),
        Panel(
            "Forwarded by each router",
            {"{{broker}}": f"sum by (broker) (rate(ddswan_relayed_bytes_total{{{_F}}}{_RATE}))"},
            "Bps",
        ),
        Panel(
            "Waiting for links",
            {"{{broker}} to {{peer}}": f"ddswan_queue_bytes{{{_F}}}"},
            "bytes",
            text="Grows when a link is slower than what is sent over it.",
        ),
        Panel(
            "Frames given up by routers",
            {
                "{{broker}}: {{reason}}": (
                    "sum by (broker, reason) (rate("
                    f"ddswan_relay_dropped_frames_total{{{_F}}}{_RATE}))"
                )
            },
            "cps",
        ),
        Panel(
            "Processor",
            {"{{broker}}": f"rate(process_cpu_seconds_total{{{_F}}}{_RATE})"},
            "percentunit",
            text="Share of one core; a broker is one process that uses hardly more than one.",
        ),
        Panel("Memory", {"{{broker}}": f"process_resident_memory_bytes{{{_F}}}"}, "bytes"),
        Panel(
            "Clock offset",
            {"{{broker}} to {{peer}}": f"ddswan_link_clock_offset_seconds{{{_F}}}"},
            "s",
            text="Latencies are wrong by as much.",
        ),
        Panel(
            "Trace files on disk",
            {"{{broker}}": f'ddswan_trace_disk_bytes{{{_F}, lan!=""}}'},
            "bytes",
        ),
        Panel(
            "Brokers",
            {"": f"ddswan_build_info{{{_F}}}"},
            kind="table",
            width=24,
            height=6,
        ),
    ),
)

LAN_PAIR = Dashboard(
    "ddswan-lan-pair",
    "ddswan: one LAN pair",
    "From one LAN to another: how long it takes, where the time goes, who is slow.",
    {
        "fabric": "ddswan_build_info",
        "peer_lan": "ddswan_end_to_end_latency_seconds_count",
        "lan": "ddswan_end_to_end_latency_seconds_count",
    },
    (
        Panel(
            "Latency from $peer_lan to $lan",
            {
                "50 %": quantile(0.5, f"{_LATENCY}{{{_PAIR}}}"),
                "99 %": quantile(0.99, f"{_LATENCY}{{{_PAIR}}}"),
                "99.9 %": quantile(0.999, f"{_LATENCY}{{{_PAIR}}}"),
            },
            "s",
        ),
        Panel(
            "Distribution of latency",
            {"{{le}}": f"sum by (le) (increase({_LATENCY}{{{_PAIR}}}{_RATE}))"},
            "s",
            "heatmap",
        ),
        Panel(
            "Latency by topic, 99th percentile, the ten slowest",
            {
                "{{topic}}": (
                    "topk(10, lan_peer_lan_topic:ddswan_end_to_end_latency_seconds:p99_5m"
                    f"{{{_PAIR}}})"
                )
            },
            "s",
        ),
        Panel(
            "Missed deadlines, the ten worst topics",
            {
                "{{topic}}": (
                    f"topk(10, lan_peer_lan_topic:ddswan_deadline_misses:ratio5m{{{_PAIR}}})"
                )
            },
            "percentunit",
        ),
        Panel(
            "Where the time goes, 99th percentile",
            {
                "in $peer_lan, until sent": quantile(
                    0.99,
                    f'ddswan_hop_latency_seconds_bucket{{{_F}, lan="$peer_lan", hop="ingress"}}',
                ),
                "in $lan, from arrival": quantile(
                    0.99, f'ddswan_hop_latency_seconds_bucket{{{_F}, lan="$lan", hop="egress"}}'
                ),
                "all": quantile(0.99, f"{_LATENCY}{{{_PAIR}}}"),
            },
            "s",
            text="What neither LAN explains is the way between them.",
        ),
        Panel(
            "Round trips to routers",
            {
                "{{broker}} to {{peer}}": (
                    f'ddswan_link_rtt_seconds{{{_F}, lan=~"($lan)|($peer_lan)"}}'
                )
            },
            "s",
        ),
        Panel(
            "Batches arriving",
            {
                "{{topic}}": (
                    "topk(10, sum by (topic) (rate("
                    f"ddswan_end_to_end_latency_seconds_count{{{_PAIR}}}{_RATE})))"
                )
            },
            "cps",
        ),
        Panel(
            "Acknowledgements $lan owes $peer_lan",
            {
                "{{broker}}": (
                    f'ddswan_acknowledgement_lag_seconds{{{_F}, lan="$peer_lan", peer_lan="$lan"}}'
                )
            },
            "s",
            text="More than a moment: $lan is slow or cut off.",
        ),
        Panel(
            "Arrived in $lan and waiting for DDS",
            {"{{broker}}": f'ddswan_pending_bytes{{{_F}, lan="$lan"}}'},
            "bytes",
        ),
        Panel(
            "Fullest windows of $peer_lan",
            {
                "{{topic}}": (
                    f'topk(10, max by (topic) (ddswan_window_fill_ratio{{{_F}, lan="$peer_lan"}}))'
                )
            },
            "percentunit",
            text="At 100 % the writers of the topic are held back.",
        ),
        Panel(
            "Clock offset to routers",
            {
                "{{broker}} to {{peer}}": (
                    f'ddswan_link_clock_offset_seconds{{{_F}, lan=~"($lan)|($peer_lan)"}}'
                ),
                "{{broker}} to {{peer}}, error": (
                    f'ddswan_link_clock_error_seconds{{{_F}, lan=~"($lan)|($peer_lan)"}}'
                ),
            },
            "s",
        ),
        Panel(
            "Links lost",
            {
                "{{broker}} to {{peer}}": (
                    f'increase(ddswan_link_losses_total{{{_F}, lan=~"($lan)|($peer_lan)"}}{_RATE})'
                )
            },
        ),
    ),
)

TOPIC = Dashboard(
    "ddswan-topic",
    "ddswan: one topic",
    "One topic in all LANs: what goes in, what comes out, how late, what is lost.",
    {"fabric": "ddswan_build_info", "topic": "ddswan_samples_in_total"},
    (
        Panel(
            "Samples taken, by LAN",
            {"{{lan}}": f"sum by (lan) (rate(ddswan_samples_in_total{{{_TOPIC}}}{_RATE}))"},
            "cps",
        ),
        Panel(
            "Samples written, by LAN",
            {"{{lan}}": f"sum by (lan) (rate(ddswan_samples_out_total{{{_TOPIC}}}{_RATE}))"},
            "cps",
        ),
        Panel(
            "Bytes",
            {
                "from {{lan}}": f"sum by (lan) (rate(ddswan_bytes_in_total{{{_TOPIC}}}{_RATE}))",
                "into {{lan}}": f"sum by (lan) (rate(ddswan_bytes_out_total{{{_TOPIC}}}{_RATE}))",
            },
            "Bps",
        ),
        Panel(
            "Samples of a batch",
            {
                "{{lan}}": (
                    f"sum by (lan) (rate(ddswan_samples_in_total{{{_TOPIC}}}{_RATE})) / "
                    f"sum by (lan) (rate(ddswan_batches_sent_total{{{_TOPIC}}}{_RATE}))"
                )
            },
            text="Grows under load, which is what makes it cheap.",
        ),
        Panel(
            "Latency, 50th percentile",
            {"{{peer_lan}} to {{lan}}": quantile(0.5, f"{_LATENCY}{{{_TOPIC}}}", "lan, peer_lan")},
            "s",
        ),
        Panel(
            "Latency, 99th percentile",
            {"{{peer_lan}} to {{lan}}": quantile(0.99, f"{_LATENCY}{{{_TOPIC}}}", "lan, peer_lan")},
            "s",
        ),
        Panel(
            "Missed deadlines, by path",
            {
                "{{peer_lan}} to {{lan}}, {{path}}": (
                    "sum by (lan, peer_lan, path) (rate("
                    f"ddswan_deadline_misses_total{{{_TOPIC}}}{_RATE})) / "
                    "sum by (lan, peer_lan, path) (rate("
                    f"ddswan_deadline_samples_total{{{_TOPIC}}}{_RATE}))"
                )
            },
            "percentunit",
        ),
        Panel(
            "Batches sent, by path",
            {
                "{{lan}}: {{path}}": (
                    f"sum by (lan, path) (rate(ddswan_batches_sent_total{{{_TOPIC}}}{_RATE}))"
                )
            },
            "cps",
        ),
        Panel(
            "Window in use",
            {"{{lan}}": f"max by (lan) (ddswan_window_fill_ratio{{{_TOPIC}}})"},
            "percentunit",
            text="At 100 % the writers in that LAN are held back.",
        ),
        Panel(
            "Sent and not acknowledged",
            {"{{lan}}": f"sum by (lan) (ddswan_window_bytes{{{_TOPIC}}})"},
            "bytes",
        ),
        Panel(
            "Samples given up",
            {
                "{{lan}}: {{reason}}": (
                    f"sum by (lan, reason) (rate(ddswan_samples_dropped_total{{{_TOPIC}}}{_RATE}))"
                )
            },
            "cps",
            text="docs/metrics.md explains the reasons.",
        ),
        Panel(
            "Sent again, come again",
            {
                "sent again by {{lan}}": (
                    f"sum by (lan) (rate(ddswan_samples_resent_total{{{_TOPIC}}}{_RATE}))"
                ),
                "come again to {{lan}}": (
                    f"sum by (lan) (rate(ddswan_samples_duplicate_total{{{_TOPIC}}}{_RATE}))"
                ),
            },
            "cps",
        ),
    ),
)

COORDINATION = Dashboard(
    "ddswan-coordination",
    "ddswan: coordination",
    "ZooKeeper, the leader, assignments and routes: the control plane. No sample depends on it.",
    {"fabric": "ddswan_build_info"},
    (
        stat("Leaders", f"fabric:ddswan_leaders:sum{{{_F}}}"),
        stat("Epoch", f"max(ddswan_leader_epoch{{{_F}}})", "none", "Grows with every new leader."),
        stat("Without ZooKeeper", f"sum(1 - ddswan_zookeeper_connected{{{_F}}})"),
        stat("Topics assigned", f"sum(ddswan_assignments{{{_F}}})"),
        stat("Topics without router", f"max(ddswan_unassigned_topics{{{_F}}})"),
        stat("Pairs that do not match", f"sum(ddswan_incompatible_pairs{{{_F}}}) or vector(0)"),
        Panel("Who leads", {"{{broker}}": f"ddswan_leader{{{_F}}}"}),
        Panel(
            "Sessions with ZooKeeper",
            {"{{broker}}": f"ddswan_zookeeper_connected{{{_F}}}"},
            text="0: the broker works on its last known view.",
        ),
        Panel(
            "ZooKeeper's answers, 99th percentile",
            {
                "{{operation}}": quantile(
                    0.99, f"ddswan_coordination_latency_seconds_bucket{{{_F}}}", "operation"
                )
            },
            "s",
        ),
        Panel(
            "Requests to ZooKeeper",
            {
                "{{operation}}": (
                    "sum by (operation) (rate("
                    f"ddswan_coordination_latency_seconds_count{{{_F}}}{_RATE}))"
                )
            },
            "cps",
        ),
        Panel("Topics by router", {"{{router}}": f"sum by (router) (ddswan_assignments{{{_F}}})"}),
        Panel(
            "Moves",
            {
                "{{reason}}": (
                    f"sum by (reason) (increase(ddswan_assignment_moves_total{{{_F}}}{_RATE}))"
                )
            },
            text="A topic got another primary router. A failover of the leader moves nothing.",
        ),
        Panel(
            "Routes by state",
            {
                "{{direction}}: {{state}}": (
                    f"sum by (direction, state) (ddswan_routes{{{_F}}}) > 0"
                )
            },
        ),
        Panel(
            "Pairs that do not match, by policy",
            {"{{lan}}: {{policy}}": f"sum by (lan, policy) (ddswan_incompatible_pairs{{{_F}}})"},
        ),
        Panel(
            "Sessions lost",
            {"{{broker}}": f"increase(ddswan_session_losses_total{{{_F}}}{_RATE})"},
        ),
        Panel(
            "Input that cannot be understood",
            {
                "{{broker}}: record {{reason}}": f"ddswan_bad_records_total{{{_F}}}",
                "{{broker}}: frame {{reason}}": f"ddswan_bad_frames_total{{{_F}}}",
                "{{broker}}: type {{reason}}": f"ddswan_bad_types_total{{{_F}}}",
            },
        ),
    ),
)

DASHBOARDS = (FLEET, LAN_PAIR, TOPIC, COORDINATION)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for dashboard in DASHBOARDS:
        text = json.dumps(to_json(dashboard), indent=2, ensure_ascii=False) + "\n"
        (folder / f"{dashboard.uid}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
