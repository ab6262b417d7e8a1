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
from gateway.commands.report import make_report
from gateway.commands.topic_status import make_topic_status
from gateway.model import (
    Announcement,
    Assignment,
    Direction,
    EdgeInfo,
    FabricView,
    Profile,
    Qos,
    Reliability,
    RouterInfo,
    TopicView,
)

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

_EDGE_STATUS = {
    "edge": "e-a",
    "lan": "a",
    "express": [{"edge": "e-b", "up": True, "wanted": True, "problem": "", "rtt_ms": 10.2}],
    "pairs": [
        {
            "edge": "e-b",
            "clock_offset_ms": 0.25,
            "clock_error_ms": 5.0,
            "paths": [
                {
                    "via": "express",
                    "up": True,
                    "delays": 8,
                    "level_ms": 5.0,
                    "p50_ms": 5.3,
                    "p99_ms": 6.2,
                    "p999_ms": None,
                    "lost": 1,
                    "outstanding_ms": 1.0,
                }
            ],
        }
    ],
    "outflows": [
        {
            "topic": "t",
            "profile": "f00",
            "reliable": False,
            "subscribers": ["e-b"],
            "replay": False,
            "deadline": [
                {
                    "edge": "e-b",
                    "mode": "adaptive",
                    "deadline_ms": 200.0,
                    "taken": ["express"],
                    "why": "because",
                    "paths": {"express": "express"},
                }
            ],
        }
    ],
}


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
    def announced(lan: str, direction: Direction, reliability: Reliability) -> Announcement:
        profile = Profile("T", None, False, Qos(reliability=reliability))
        return Announcement(f"e-{lan}", lan, 1, "t", direction, ((profile, ("0" * 32,)),))

    topic = TopicView(
        "t",
        Assignment("r1", None, 7),
        0,
        (announced("a", Direction.PUB, Reliability.BEST_EFFORT),),
        (announced("b", Direction.SUB, Reliability.RELIABLE),),
    )
    view = FabricView(
        edges={f"e-{lan}": EdgeInfo(f"e-{lan}", lan, 1) for lan in "ab"},
        routers={"r1": RouterInfo("r1", "h:1")},
        topics={"t": topic},
    )
    report = make_report("f", view, "r1", {"edge": 1})
    report = replace(report, express_links=express_links([_EDGE_STATUS]))
    topic_status = make_topic_status(report, "t", [_EDGE_STATUS], {"e-c": "why"})
    assert dict(_keys(json.loads(json.dumps(report.to_json())))) == _REPORT
    assert dict(_keys(json.loads(json.dumps(topic_status.to_json())))) == _TOPIC_STATUS

    page = (Path(__file__).parents[2] / "docs" / "status.md").read_text()
    of_report, of_topic = page.partition("## As JSON")[2].split("`ddswan status --topic T --json`")
    for text, keys in ((of_report, _REPORT), (of_topic, _TOPIC_STATUS)):
        for place, names in keys.items():
            if place not in ("topic", "topic.problems[]"):  # as those of the report
                missing = [name for name in names.split() if not re.search(f"`{name}[`\\[]", text)]
                assert not missing, f"docs/status.md does not explain {missing} of {place}"
