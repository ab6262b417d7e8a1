"""The dashboard of one topic. Gathered by make_dashboards.py."""

from __future__ import annotations

from grafana import Dashboard, Panel
from queries import LATENCY, RATE, TOPIC, quantile

DASHBOARD = Dashboard(
    "ddswan-topic",
    "ddswan: one topic",
    "One topic in all LANs: what goes in, what comes out, how late, what is lost.",
    {"fabric": "ddswan_build_info", "topic": "ddswan_samples_in_total"},
    (
        Panel(
            "Samples taken, by LAN",
            {"{{lan}}": f"sum by (lan) (rate(ddswan_samples_in_total{{{TOPIC}}}{RATE}))"},
            "cps",
        ),
        Panel(
            "Samples written, by LAN",
            {"{{lan}}": f"sum by (lan) (rate(ddswan_samples_out_total{{{TOPIC}}}{RATE}))"},
            "cps",
        ),
        Panel(
            "Bytes",
            {
                "from {{lan}}": f"sum by (lan) (rate(ddswan_bytes_in_total{{{TOPIC}}}{RATE}))",
                "into {{lan}}": f"sum by (lan) (rate(ddswan_bytes_out_total{{{TOPIC}}}{RATE}))",
            },
            "Bps",
        ),
        Panel(
            "Samples of a batch",
            {
                "{{lan}}": (
                    f"sum by (lan) (rate(ddswan_samples_in_total{{{TOPIC}}}{RATE})) / "
                    f"sum by (lan) (rate(ddswan_batches_sent_total{{{TOPIC}}}{RATE}))"
                )
            },
            text="Grows under load, which is what makes it cheap.",
        ),
        Panel(
            "Latency, 50th percentile",
            {"{{peer_lan}} to {{lan}}": quantile(0.5, f"{LATENCY}{{{TOPIC}}}", "lan, peer_lan")},
            "s",
        ),
        Panel(
            "Latency, 99th percentile",
            {"{{peer_lan}} to {{lan}}": quantile(0.99, f"{LATENCY}{{{TOPIC}}}", "lan, peer_lan")},
            "s",
        ),
        Panel(
            "Missed deadlines, by path",
            {
                "{{peer_lan}} to {{lan}}, {{path}}": (
                    "sum by (lan, peer_lan, path) (rate("
                    f"ddswan_deadline_misses_total{{{TOPIC}}}{RATE})) / "
                    "sum by (lan, peer_lan, path) (rate("
                    f"ddswan_deadline_samples_total{{{TOPIC}}}{RATE}))"
                )
            },
            "percentunit",
        ),
        Panel(
            "Batches sent, by path",
            {
                "{{lan}}: {{path}}": (
                    f"sum by (lan, path) (rate(ddswan_batches_sent_total{{{TOPIC}}}{RATE}))"
                )
            },
            "cps",
        ),
        Panel(
            "Window in use",
            {"{{lan}}": f"max by (lan) (ddswan_window_fill_ratio{{{TOPIC}}})"},
            "percentunit",
            text="At 100 % the writers in that LAN are held back.",
        ),
        Panel(
            "Sent and not acknowledged",
            {"{{lan}}": f"sum by (lan) (ddswan_window_bytes{{{TOPIC}}})"},
            "bytes",
        ),
        Panel(
            "Samples given up",
            {
                "{{lan}}: {{reason}}": (
                    f"sum by (lan, reason) (rate(ddswan_samples_dropped_total{{{TOPIC}}}{RATE}))"
                )
            },
            "cps",
            text="docs/metrics.md explains the reasons.",
        ),
        Panel(
            "Sent again, come again",
            {
                "sent again by {{lan}}": (
                    f"sum by (lan) (rate(ddswan_samples_resent_total{{{TOPIC}}}{RATE}))"
                ),
                "come again to {{lan}}": (
                    f"sum by (lan) (rate(ddswan_samples_duplicate_total{{{TOPIC}}}{RATE}))"
                ),
            },
            "cps",
        ),
    ),
)
