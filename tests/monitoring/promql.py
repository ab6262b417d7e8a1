"""What a PromQL expression asks for: its metrics with the labels it selects by, and the labels it
groups by; and what there is to ask for. Enough of the language for the rules and dashboards here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gateway.observe.metrics import BrokerMetrics

MONITORING = Path(__file__).parents[2] / "k8s" / "monitoring"
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\[[^\]]*\]|[a-zA-Z_:][a-zA-Z0-9_:]*|\d[\w.]*|\S')
_GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_WORDS = {"or", "and", "unless", "bool", "offset", "inf", "nan"}
_PROMETHEUS_ITSELF = {
    "up": {"job", "instance"},
    "ALERTS": {"alertname", "alertstate", "severity"},
    "process_cpu_seconds_total": {"fabric", "broker", "lan"},
    "process_resident_memory_bytes": {"fabric", "broker", "lan"},
}


@dataclass
class Question:
    selectors: list[tuple[str, set[str]]] = field(default_factory=list)
    """Metric and the labels of its selector."""
    grouping: set[str] = field(default_factory=set)


def parse(expression: str) -> Question:
    tokens = _TOKEN.findall(expression)
    question = Question()
    at = 0
    while at < len(tokens):
        token = tokens[at]
        after = tokens[at + 1] if at + 1 < len(tokens) else ""
        if token in _GROUPING:
            end = tokens.index(")", at)
            question.grouping.update(word for word in tokens[at + 2 : end] if word != ",")
            at = end
        elif token == "{" or (_is_name(token) and after not in ("(", "by")):
            name = "" if token == "{" else token
            labels: set[str] = set()
            start = at if token == "{" else at + 1
            if start < len(tokens) and tokens[start] == "{":
                at = tokens.index("}", start)
                labels = {word for word in tokens[start:at] if _is_name(word)}
                if "__name__" in labels:
                    name = tokens[tokens.index("__name__", start) + 3].strip('"')
                    labels.discard("__name__")
            question.selectors.append((name, labels))
        at += 1
    return question


def _is_name(token: str) -> bool:
    is_identifier = re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", token) is not None
    return is_identifier and token not in _WORDS and token not in _GROUPING


def known_metrics() -> dict[str, set[str]]:
    """Everything that can be asked for, with its labels: what brokers export, what Prometheus adds,
    what the recording rules make of it."""
    known = dict(_PROMETHEUS_ITSELF)
    for family in BrokerMetrics("edge", "").families:
        labels = {"fabric", "broker", *family.labels}
        if "edge" in family.components:
            labels.add("lan")
        if family.kind == "histogram":
            known[f"{family.name}_bucket"] = labels | {"le"}
            known[f"{family.name}_sum"] = known[f"{family.name}_count"] = labels
        else:
            known[family.name] = labels
    for rule in rules("recording"):
        known[rule["record"]] = parse(rule["expr"]).grouping - {"le"}
    return known


def rules(file: str) -> list[dict[str, Any]]:
    groups = yaml.safe_load((MONITORING / f"{file}.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def problems(expression: str) -> list[str]:
    """Metrics and labels of the expression that nobody exports."""
    known = known_metrics()
    question = parse(expression)
    found = [] if question.selectors else ["asks for nothing"]
    available: set[str] = set()
    for name, labels in question.selectors:
        metrics = [metric for metric in known if re.fullmatch(name, metric)]
        if not metrics:
            found.append(f"no metric {name}")
        for metric in metrics:
            available |= known[metric]
            found += [f"{metric} has no label {label}" for label in labels - known[metric]]
    return found + [f"nothing has a label {label}" for label in question.grouping - available]
