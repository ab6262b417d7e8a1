"""The keys of `status --json` are a contract: none goes or is renamed in version 1, and
docs/status.md explains each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from gateway.commands.edge_report import express_links
from gateway.commands.topic_status import make_topic_status
from tests.cli.views import BEST_EFFORT, EDGE_STATUS, RELIABLE, report_of, topic_of

_TOPIC = "epoch primary problems publishers standby state subscribers topic"
_PROBLEM = "explanation from_lan policies to_lan"
_REPORT = {
    "": "edges express_links fabric leader routers topics unreadable_records version",
    "routers[]": "address bytes_per_s connections cpu id is_draining is_leader metrics topics"
    " version zone",
    "edges[]": "id lan metrics version",
    "topics[]": _TOPIC,
    "topics[].problems[]": _PROBLEM,
    "express_links[]": "edges is_up problem rtt_ms",
}
_TOPIC_STATUS = {
    "": "fabric flows silent topic version",
    "topic": _TOPIC,
    "topic.problems[]": _PROBLEM,
    "flows[]": "clock_error_ms clock_offset_ms deadline_ms edge is_reliable lan mode paths profile"
    " taken to_edge to_lan why",
    "flows[].paths[]": "delays is_taken is_up level_ms lost p50_ms p999_ms p99_ms path via",
}
_BY_NAME = ("publishers", "subscribers", "unreadable_records", "silent")
"""Their keys are names, not of the contract."""


def _keys(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Where objects are, and the keys of each."""
    if isinstance(value, list):
        for item in value:
            yield from _keys(item, f"{place}[]")
    elif isinstance(value, dict) and place.rpartition(".")[2] not in _BY_NAME:
        yield place, " ".join(sorted(value))
        for key, inner in value.items():
            yield from _keys(inner, f"{place}.{key}" if place else key)


def test_no_key_goes_and_all_are_documented() -> None:
    topic = topic_of((("a", BEST_EFFORT),), (("b", RELIABLE),))
    report = report_of(topic, unreadable={"edge": 1})
    report = replace(report, express_links=express_links([EDGE_STATUS]))
    topic_status = make_topic_status(report, "t", [EDGE_STATUS], {"e-c": "why"})
    assert set(_keys(json.loads(json.dumps(report.to_json())))) == set(_REPORT.items())
    assert set(_keys(json.loads(json.dumps(topic_status.to_json())))) == set(_TOPIC_STATUS.items())

    page = (Path(__file__).parents[2] / "docs" / "status.md").read_text()
    of_report, of_topic = page.partition("## As JSON")[2].split("`ddswan status --topic T --json`")
    for text, keys in ((of_report, _REPORT), (of_topic, _TOPIC_STATUS)):
        for place, names in keys.items():
            if place not in ("topic", "topic.problems[]"):  # as those of the report
                missing = [name for name in names.split() if not re.search(f"`{name}[`\\[]", text)]
                assert not missing, f"docs/status.md does not explain {missing} of {place}"
