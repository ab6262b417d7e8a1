"""The dashboard of the control plane. Gathered by make_dashboards.py."""

from __future__ import annotations

from grafana import Dashboard, Panel
from queries import FABRIC, RATE, quantile, stat

DASHBOARD = Dashboard(
    "ddswan-coordination",
    "ddswan: coordination",
    "ZooKeeper, the leader, assignments and routes: the control plane. No sample depends on it.",
    {"fabric": "ddswan_build_info"},
    (
        stat("Leaders", f"fabric:ddswan_leaders:sum{{{FABRIC}}}"),
        stat(
            "Epoch", f"max(ddswan_leader_epoch{{{FABRIC}}})", "none", "Grows with every new leader."
        ),
        stat("Without ZooKeeper", f"sum(1 - ddswan_zookeeper_connected{{{FABRIC}}})"),
        stat("Topics assigned", f"sum(ddswan_assignments{{{FABRIC}}})"),
        stat("Topics without router", f"max(ddswan_unassigned_topics{{{FABRIC}}})"),
        stat("Pairs that do not match", f"sum(ddswan_incompatible_pairs{{{FABRIC}}}) or vector(0)"),
        Panel("Who leads", {"{{broker}}": f"ddswan_leader{{{FABRIC}}}"}),
        Panel(
            "Sessions with ZooKeeper",
            {"{{broker}}": f"ddswan_zookeeper_connected{{{FABRIC}}}"},
            text="0: the broker works on its last known view.",
        ),
        Panel(
            "ZooKeeper's answers, 99th percentile",
            {
                "{{operation}}": quantile(
                    0.99, f"ddswan_coordination_latency_seconds_bucket{{{FABRIC}}}", "operation"
                )
            },
            "s",
        ),
        Panel(
            "Requests to ZooKeeper",
            {
                "{{operation}}": (
                    "sum by (operation) (rate("
                    f"ddswan_coordination_latency_seconds_count{{{FABRIC}}}{RATE}))"
                )
            },
            "cps",
        ),
        Panel(
            "Topics by router", {"{{router}}": f"sum by (router) (ddswan_assignments{{{FABRIC}}})"}
        ),
        Panel(
            "Moves",
            {
                "{{reason}}": (
                    f"sum by (reason) (increase(ddswan_assignment_moves_total{{{FABRIC}}}{RATE}))"
                )
            },
            text="A topic got another primary router. A failover of the leader moves nothing.",
        ),
        Panel(
            "Routes by state",
            {
                "{{direction}}: {{state}}": (
                    f"sum by (direction, state) (ddswan_routes{{{FABRIC}}}) > 0"
                )
            },
        ),
        Panel(
            "Pairs that do not match, by policy",
            {
                "{{lan}}: {{policy}}": (
                    f"sum by (lan, policy) (ddswan_incompatible_pairs{{{FABRIC}}})"
                )
            },
        ),
        Panel(
            "Sessions lost",
            {"{{broker}}": f"increase(ddswan_session_losses_total{{{FABRIC}}}{RATE})"},
        ),
        Panel(
            "Input that cannot be understood",
            {
                "{{broker}}: record {{reason}}": f"ddswan_bad_records_total{{{FABRIC}}}",
                "{{broker}}: frame {{reason}}": f"ddswan_bad_frames_total{{{FABRIC}}}",
                "{{broker}}: type {{reason}}": f"ddswan_bad_types_total{{{FABRIC}}}",
            },
        ),
    ),
)
