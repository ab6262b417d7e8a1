"""What the queries of several dashboards share: selectors of what is chosen on top of a dashboard,
and how to ask for a quantile or for one number.
"""

from __future__ import annotations

from grafana import Panel

FABRIC = 'fabric="$fabric"'
PAIR = f'{FABRIC}, lan="$lan", peer_lan="$peer_lan"'
TOPIC = f'{FABRIC}, topic="$topic"'
LATENCY = "ddswan_end_to_end_latency_seconds_bucket"
RATE = "[$__rate_interval]"


def stat(title: str, expression: str, unit: str = "short", text: str = "") -> Panel:
    return Panel(title, {"": expression}, unit, "stat", text, width=4, height=4)


def quantile(share: float, selector: str, by: str = "") -> str:
    kept = f"{by}, le" if by else "le"
    return f"histogram_quantile({share}, sum by ({kept}) (rate({selector}{RATE})))"
