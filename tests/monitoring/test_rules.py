"""Recording and alert rules: what Prometheus' own tool says of them, and what an alert owes to the
person it wakes.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.monitoring.promql import MONITORING, problems, rules

_HERE = Path(__file__).parent
_ROOT = MONITORING.parents[1]


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "config", str(MONITORING / "prometheus.yml")),
        ("check", "rules", str(MONITORING / "recording.yml"), str(MONITORING / "alerts.yml")),
        ("test", "rules", str(_HERE / "rules_test.yml")),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_promtool_is_content(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_has_a_unit_test() -> None:
    tests = yaml.safe_load((_HERE / "rules_test.yml").read_text())["tests"]
    fired: set[str] = set()
    silent: set[str] = set()
    for test in tests:
        for each in test.get("alert_rule_test", ()):
            (fired if each.get("exp_alerts") else silent).add(each["alertname"])
    alerts = {rule["alert"] for rule in rules("alerts")}
    assert fired == silent == alerts
    asked = " ".join(e["expr"] for test in tests for e in test.get("promql_expr_test", ()))
    assert [rule["record"] for rule in rules("recording") if rule["record"] not in asked] == []


def test_rules_ask_for_what_is_exported() -> None:
    found = {
        rule.get("record", rule.get("alert")): problems(rule["expr"])
        for rule in [*rules("recording"), *rules("alerts")]
    }
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize("rule", rules("alerts"), ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_what_to_do(rule: dict[str, dict[str, str]]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    notes = rule["annotations"]
    assert notes.keys() == {"summary", "description", "runbook"}
    assert len(re.findall(r"[.;:]( |$)", notes["description"])) >= 2, "what it means; what to do"
    page, _, anchor = notes["runbook"].partition("#")
    headings = re.findall(r"^#+ (\S+)$", (_ROOT / page).read_text(), re.MULTILINE)
    assert rule["alert"] in headings and anchor == str(rule["alert"]).lower()


def test_no_runbook_is_left_over() -> None:
    page = (_ROOT / "docs" / "operations.md").read_text()
    headings = set(re.findall(r"^### (Ddswan\w+)$", page, re.MULTILINE))
    assert headings == {rule["alert"] for rule in rules("alerts")}
