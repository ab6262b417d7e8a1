"""What a Grafana dashboard is made of, and its JSON. Called by make_dashboards.py; what dashboards
show is said in a file for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS = 24
_LABELS = {"lan": "to LAN", "peer_lan": "from LAN"}


@dataclass(frozen=True)
class Panel:
    title: str
    queries: Mapping[str, str]
    """Expression by legend."""
    unit: str = "short"
    kind: str = "timeseries"
    text: str = ""
    """What to read from it; the (i) at the panel's corner."""
    width: int = 12
    height: int = 8


@dataclass(frozen=True)
class Dashboard:
    uid: str
    title: str
    text: str
    variables: Mapping[str, str]
    """Metric whose label of that name gives the choices, by variable."""
    panels: tuple[Panel, ...]


def to_json(dashboard: Dashboard) -> dict[str, Any]:
    """What Grafana imports."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.text,
        "tags": ["ddswan"],
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "schemaVersion": 38,
        "time": {"from": "now-30m", "to": "now"},
        "links": [
            {
                "title": "ddswan",
                "type": "dashboards",
                "tags": ["ddswan"],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "templating": {"list": [_source_variable(), *_variables(dashboard.variables)]},
        "panels": _placed(dashboard.panels),
    }


def _source_variable() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
    }


def _variables(variables: Mapping[str, str]) -> list[dict[str, Any]]:
    made = []
    for name, metric in variables.items():
        selector = metric if name == "fabric" else f'{metric}{{fabric="$fabric"}}'
        query = f"label_values({selector}, {name})"
        made.append(
            {
                "name": name,
                "label": _LABELS.get(name, name),
                "type": "query",
                "datasource": _SOURCE,
                "definition": query,
                "query": {"query": query, "refId": name},
                "refresh": 2,
                "sort": 1,
            }
        )
    return made


def _placed(panels: tuple[Panel, ...]) -> list[dict[str, Any]]:
    """Side by side from the left, as long as there is room."""
    made = []
    x = y = row_height = 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > _COLUMNS:
            x, y, row_height = 0, y + row_height, 0
        made.append(_panel(panel, number, {"x": x, "y": y, "w": panel.width, "h": panel.height}))
        x += panel.width
        row_height = max(row_height, panel.height)
    return made


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    is_now = panel.kind in ("stat", "table")
    made: dict[str, Any] = {
        "id": number,
        "title": panel.title,
        "description": panel.text,
        "type": panel.kind,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "options": {},
        "targets": [
            {
                "refId": chr(ord("A") + position),
                "datasource": _SOURCE,
                "expr": expression,
                "legendFormat": legend or "__auto",
                "instant": is_now,
                "range": not is_now,
                "format": {"table": "table", "heatmap": "heatmap"}.get(panel.kind, "time_series"),
            }
            for position, (legend, expression) in enumerate(panel.queries.items())
        ],
    }
    if panel.kind == "timeseries":
        made["fieldConfig"]["defaults"]["min"] = None if "Clock" in panel.title else 0
        made["options"] = {
            "legend": {"displayMode": "table", "placement": "right", "calcs": ["last"]}
        }
    elif panel.kind == "heatmap":
        made["options"] = {"calculate": False, "yAxis": {"unit": panel.unit}}
    elif panel.kind == "table":
        made["transformations"] = [
            {"id": "organize", "options": {"excludeByName": {"Time": True, "Value": True}}}
        ]
    return made
