"""Dashboards ask for what brokers export, and Grafana can lay them out."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import Any

import pytest

from tests.monitoring.promql import MONITORING, known_metrics, parse, problems

BOARDS = [json.loads(file.read_text()) for file in sorted((MONITORING / "dashboards").iterdir())]


def expressions(board: dict[str, Any]) -> list[tuple[str, str]]:
    """The panel's title and the expression of each query."""
    return [(p["title"], target["expr"]) for p in board["panels"] for target in p["targets"]]


@pytest.fixture(params=BOARDS, ids=lambda board: board["uid"])
def board(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = request.param
    return found


def test_every_query_asks_for_what_is_exported(board: dict[str, Any]) -> None:
    found = {title: problems(expression) for title, expression in expressions(board)}
    assert {title: wrong for title, wrong in found.items() if wrong} == {}


def test_legends_name_labels_the_answer_has(board: dict[str, Any]) -> None:
    known = known_metrics()
    for panel in board["panels"]:
        for target in panel["targets"]:
            question = parse(target["expr"])
            of_metrics = set().union(*(known[name] for name, _ in question.selectors))
            left = question.grouping or of_metrics
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= left, panel["title"]


def test_variables_exist_and_are_used(board: dict[str, Any]) -> None:
    variables = {each["name"]: each for each in board["templating"]["list"]}
    used = set(re.findall(r"\$(\w+)", json.dumps(board["panels"]))) - {"__rate_interval"}
    assert used | {"datasource"} == variables.keys()
    known = known_metrics()
    for name, variable in variables.items():
        if name != "datasource":
            found = re.fullmatch(r"label_values\((\w+)(?:{.*})?, (\w+)\)", variable["definition"])
            assert found is not None and found[2] == name
            assert name in known[found[1]]


def test_panels_have_their_own_ids_and_places(board: dict[str, Any]) -> None:
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for one, other in combinations([panel["gridPos"] for panel in panels], 2):
        assert (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
    assert all(p["gridPos"]["x"] + p["gridPos"]["w"] <= 24 for p in panels)


def test_what_nobody_exports_is_noticed() -> None:
    assert problems('rate(ddswan_samples_inn_total{topic="x"}[5m])') == [
        "no metric ddswan_samples_inn_total"
    ]
    assert problems('sum by (peer) (ddswan_leader{lan="a"})') == [
        "ddswan_leader has no label lan",
        "nothing has a label peer",
    ]
    good = 'topk(3, sum by (topic) (rate(ddswan_samples_in_total{fabric=~"a|b"}[5m] offset 1m)))'
    assert problems(good) == []
