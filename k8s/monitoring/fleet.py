"""The dashboard of the whole fabric, the one to start with. Gathered by make_dashboards.py."""

from __future__ import annotations

from grafana import Dashboard, Panel
from queries import FABRIC, RATE, stat

DASHBOARD = Dashboard(
    "ddswan-fleet",
    "ddswan: fleet",
    "Is everything there, what flows, and who suffers. Start here.",
    {"fabric": "ddswan_build_info"},
    (
        stat("Edges", f'count(ddswan_build_info{{{FABRIC}, component="edge"}})'),
        stat("Routers", f'count(ddswan_build_info{{{FABRIC}, component="router"}})'),
        stat("LANs", f'count(count by (lan) (ddswan_build_info{{{FABRIC}, component="edge"}}))'),
        stat(
            "Leaders", f"fabric:ddswan_leaders:sum{{{FABRIC}}}", text="One, or something is wrong."
        ),
        stat("Links down", f"sum(1 - ddswan_link_up{{{FABRIC}}})"),
        stat(
            "Topics without router",
            f"max(ddswan_unassigned_topics{{{FABRIC}}})",
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
            {"{{lan}}": f"lan:ddswan_samples_in:rate1m{{{FABRIC}}}"},
            "cps",
        ),
        Panel(
            "Samples written into each LAN",
            {"{{lan}}": f"lan:ddswan_samples_out:rate1m{{{FABRIC}}}"},
            "cps",
            text="A sample for three LANs counts three times here and once on the left.",
        ),
        Panel(
            "Bytes taken from each LAN",
            {"{{lan}}": f"lan:ddswan_bytes_in:rate1m{{{FABRIC}}}"},
            "Bps",
        ),
        Panel(
            "Bytes written into each LAN",
            {"{{lan}}": f"lan:ddswan_bytes_out:rate1m{{{FABRIC}}}"},
            "Bps",
        ),
        Panel(
            "Latency of each LAN pair, 99th percentile",
            {
                "{{peer_lan}} to {{lan}}": (
                    f"lan_peer_lan:ddswan_end_to_end_latency_seconds:p99_5m{{{FABRIC}}}"
                )
            },
            "s",
            text="From the source timestamp until written into DDS of the other LAN.",
        ),
        Panel(
            "Missed deadlines, the ten worst",
            {
                "{{topic}}, {{peer_lan}} to {{lan}}": (
                    f"topk(10, lan_peer_lan_topic:ddswan_deadline_misses:ratio5m{{{FABRIC}}})"
                )
            },
            "percentunit",
        ),
        Panel(
            "Samples given up",
            {"{{lan}}: {{reason}}": f"lan_reason:ddswan_samples_dropped:rate5m{{{FABRIC}}}"},
            "cps",
            text="docs/metrics.md explains the reasons.",
        ),
        Panel(
            "Forwarded by each router",
            {"{{broker}}": f"sum by (broker) (rate(ddswan_relayed_bytes_total{{{FABRIC}}}{RATE}))"},
            "Bps",
        ),
        Panel(
            "Waiting for links",
            {"{{broker}} to {{peer}}": f"ddswan_queue_bytes{{{FABRIC}}}"},
            "bytes",
            text="Grows when a link is slower than what is sent over it.",
        ),
        Panel(
            "Frames given up by routers",
            {
                "{{broker}}: {{reason}}": (
                    "sum by (broker, reason) (rate("
                    f"ddswan_relay_dropped_frames_total{{{FABRIC}}}{RATE}))"
                )
            },
            "cps",
        ),
        Panel(
            "Processor",
            {"{{broker}}": f"rate(process_cpu_seconds_total{{{FABRIC}}}{RATE})"},
            "percentunit",
            text="Share of one core; a broker is one process that uses hardly more than one.",
        ),
        Panel("Memory", {"{{broker}}": f"process_resident_memory_bytes{{{FABRIC}}}"}, "bytes"),
        Panel(
            "Clock offset",
            {"{{broker}} to {{peer}}": f"ddswan_link_clock_offset_seconds{{{FABRIC}}}"},
            "s",
            text="Latencies are wrong by as much.",
        ),
        Panel(
            "Trace files on disk",
            {"{{broker}}": f'ddswan_trace_disk_bytes{{{FABRIC}, lan!=""}}'},
            "bytes",
        ),
        Panel(
            "Brokers",
            {"": f"ddswan_build_info{{{FABRIC}}}"},
            kind="table",
            width=24,
            height=6,
        ),
    ),
)
