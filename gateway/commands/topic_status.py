"""`ddswan status --topic T`: what the tree and the publishing edges say of one topic, as text or
JSON. Pure; called by status.py. The JSON is a contract (docs/status.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gateway.commands.edge_report import (
    PATH_HEADER,
    EdgeStatus,
    FlowReport,
    flow_lines,
    path_cells,
    topic_flows,
)
from gateway.commands.report import (
    REPORT_VERSION,
    Report,
    TopicReport,
    counts_by_lan,
    printable,
    table,
)
from gateway.errors import DdswanError


@dataclass(frozen=True, slots=True)
class TopicStatus:
    fabric: str
    topic: TopicReport
    flows: tuple[FlowReport, ...]
    silent: dict[str, str]
    """Publishing edges that could not be asked, and why."""

    def to_json(self) -> dict[str, Any]:
        return {"version": REPORT_VERSION, **asdict(self)}


def make_topic_status(
    report: Report, topic: str, statuses: Iterable[EdgeStatus], silent: Mapping[str, str]
) -> TopicStatus:
    """Raises DdswanError when the fabric does not know the topic."""
    found = next((each for each in report.topics if each.topic == topic), None)
    if found is None:
        raise DdswanError(
            f"fabric {report.fabric} has no topic {printable(topic)}; `ddswan status` lists them"
        )
    lans = {edge.id: edge.lan for edge in report.edges}
    return TopicStatus(report.fabric, found, topic_flows(topic, statuses, lans), dict(silent))


def format_topic(status: TopicStatus) -> str:
    topic = status.topic
    lines = [
        f"topic {printable(topic.topic)} of fabric {status.fabric}: {topic.state.value}",
        f"  publishers   {counts_by_lan(topic.publishers)}",
        f"  subscribers  {counts_by_lan(topic.subscribers)}",
        f"  primary      {topic.primary or '-'}",
        f"  standby      {topic.standby or '-'}",
    ]
    for problem in topic.problems:
        lines += [f"  {problem.from_lan} to {problem.to_lan}: {why}" for why in problem.explanation]
    for flow in status.flows:
        lines += ["", f"FROM {flow.edge} ({flow.lan}) TO {flow.to_edge} ({flow.to_lan})"]
        lines += flow_lines(flow)
        if flow.paths:
            lines += table(PATH_HEADER, [path_cells(path) for path in flow.paths])
    if not status.flows and not status.silent:
        lines += ["", "no edge sends it to another one"]
    for edge, why in status.silent.items():
        lines += ["", f"{edge} cannot be asked where it sends it: {why}"]
    return "\n".join(lines)
