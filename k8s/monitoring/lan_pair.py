"""The dashboard of one LAN pair. Gathered by make_dashboards.py."""

from __future__ import annotations

from grafana import Dashboard, Panel
from queries import FABRIC, LATENCY, PAIR, RATE, quantile

DASHBOARD = Dashboard(
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
                "50 %": quantile(0.5, f"{LATENCY}{{{PAIR}}}"),
                "99 %": quantile(0.99, f"{LATENCY}{{{PAIR}}}"),
                "99.9 %": quantile(0.999, f"{LATENCY}{{{PAIR}}}"),
            },
            "s",
        ),
        Panel(
            "Distribution of latency",
            {"{{le}}": f"sum by (le) (increase({LATENCY}{{{PAIR}}}{RATE}))"},
            "s",
            "heatmap",
        ),
        Panel(
            "Latency by topic, 99th percentile, the ten slowest",
            {
                "{{topic}}": (
                    "topk(10, lan_peer_lan_topic:ddswan_end_to_end_latency_seconds:p99_5m"
                    f"{{{PAIR}}})"
                )
            },
            "s",
        ),
        Panel(
            "Missed deadlines, the ten worst topics",
            {
                "{{topic}}": (
                    f"topk(10, lan_peer_lan_topic:ddswan_deadline_misses:ratio5m{{{PAIR}}})"
                )
            },
            "percentunit",
        ),
        Panel(
            "Where the time goes, 99th percentile",
            {
                "in $peer_lan, until sent": quantile(
                    0.99,
                    "ddswan_hop_latency_seconds_bucket"
                    f'{{{FABRIC}, lan="$peer_lan", hop="ingress"}}',
                ),
                "in $lan, from arrival": quantile(
                    0.99, f'ddswan_hop_latency_seconds_bucket{{{FABRIC}, lan="$lan", hop="egress"}}'
                ),
                "all": quantile(0.99, f"{LATENCY}{{{PAIR}}}"),
            },
            "s",
            text="What neither LAN explains is the way between them.",
        ),
        Panel(
            "Round trips to routers",
            {
                "{{broker}} to {{peer}}": (
                    f'ddswan_link_rtt_seconds{{{FABRIC}, lan=~"($lan)|($peer_lan)"}}'
                )
            },
            "s",
        ),
        Panel(
            "Batches arriving",
            {
                "{{topic}}": (
                    "topk(10, sum by (topic) (rate("
                    f"ddswan_end_to_end_latency_seconds_count{{{PAIR}}}{RATE})))"
                )
            },
            "cps",
        ),
        Panel(
            "Acknowledgements $lan owes $peer_lan",
            {
                "{{broker}}": (
                    "ddswan_acknowledgement_lag_seconds"
                    f'{{{FABRIC}, lan="$peer_lan", peer_lan="$lan"}}'
                )
            },
            "s",
            text="More than a moment: $lan is slow or cut off.",
        ),
        Panel(
            "Arrived in $lan and waiting for DDS",
            {"{{broker}}": f'ddswan_pending_bytes{{{FABRIC}, lan="$lan"}}'},
            "bytes",
        ),
        Panel(
            "Fullest windows of $peer_lan",
            {
                "{{topic}}": (
                    "topk(10, max by (topic) "
                    f'(ddswan_window_fill_ratio{{{FABRIC}, lan="$peer_lan"}}))'
                )
            },
            "percentunit",
            text="At 100 % the writers of the topic are held back.",
        ),
        Panel(
            "Clock offset to routers",
            {
                "{{broker}} to {{peer}}": (
                    f'ddswan_link_clock_offset_seconds{{{FABRIC}, lan=~"($lan)|($peer_lan)"}}'
                ),
                "{{broker}} to {{peer}}, error": (
                    f'ddswan_link_clock_error_seconds{{{FABRIC}, lan=~"($lan)|($peer_lan)"}}'
                ),
            },
            "s",
        ),
        Panel(
            "Links lost",
            {
                "{{broker}} to {{peer}}": (
                    "increase(ddswan_link_losses_total"
                    f'{{{FABRIC}, lan=~"($lan)|($peer_lan)"}}{RATE})'
                )
            },
        ),
    ),
)
