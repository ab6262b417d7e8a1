"""Recommendations become advice a few at a time, of their own fabric only, and can be undone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.coordination.records import decode_advice, encode_advice
from gateway.model import Advice, Advised, Assignment, FabricView, RouterInfo, RouterLoad, TopicView
from gateway.plan.advice import (
    AdvicePlan,
    NotRecommendations,
    plan_advice,
    read_recommendations,
    without,
)

any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def recommended(kind: str, topic: str | None = None, **fields: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "fabric": "f",
        "topic": topic,
        "text": "why",
        "evidence": {"n": 1},
    } | fields


def file_of(found: list[dict[str, Any]]) -> dict[str, Any]:
    return {"version": 1, "made_from": {}, "recommendations": found}


def view() -> FabricView:
    load = RouterLoad(1.0, 0.5, 2, (("Heavy", 9.0), ("Light", 1.0)))
    routers = {name: RouterInfo(name, "h:1", "", 1, False, load) for name in ("r1", "r2")}
    topics = {
        "Heavy": TopicView("Heavy", Assignment("r1", "r2", 1)),
        "Light": TopicView("Light", Assignment("r2", "r1", 1)),
    }
    return FabricView({}, routers, topics)


def plan(found: list[dict[str, Any]], before: Advice | None = None, **limits: int) -> AdvicePlan:
    options = {"now_s": 1000, "limit": 10, **limits}
    return plan_advice(before or Advice(), found, view(), fabric="f", **options)


def test_topics_are_promoted_demoted_and_moved() -> None:
    found = [
        recommended("promote", "A"),
        recommended("demote", "B"),
        recommended("relieve", router="r1", topics=["Heavy", "Light", "Unknown"]),
        recommended("loss", "C"),
        recommended("promote", "D", fabric="other"),
    ]
    made = plan(found)
    assert made.advice.express() == {"A": True, "B": False}
    # Light is not carried by r1, Unknown by nobody.
    assert made.advice.avoided() == {"Heavy": "r1"}
    assert [step.after.topic for step in made.steps] == ["A", "B", "Heavy"]
    assert all(each.evidence == {"n": 1} and each.since_s == 1000 for each in made.advice.entries)
    assert plan(found, made.advice).steps == ()


def test_evidence_that_is_no_json_or_has_no_end_is_left_out() -> None:
    evidence = {"nan": float("nan"), "deep": [[1]], "long": "x" * 10_000, "good": 1}
    (advised,) = plan([recommended("promote", "A", evidence=evidence)]).advice.entries
    assert advised.evidence == {"good": 1}


def test_a_router_said_to_be_slow_loses_its_heaviest_topic() -> None:
    assert plan([recommended("relieve", router="r1")]).advice.avoided() == {"Heavy": "r1"}


@pytest.mark.parametrize("topics", [5, "Heavy", {"Heavy": 1}, True])
def test_topics_that_are_no_list_name_none_to_move(topics: object) -> None:
    assert plan([recommended("relieve", router="r1", topics=topics)]).steps == ()


def test_no_topics_at_all_are_the_heaviest_one() -> None:
    found = [recommended("relieve", router="r1", topics=None)]
    assert plan(found).advice.avoided() == {"Heavy": "r1"}


@pytest.mark.parametrize("number", [10**400, -(10**400)], ids=["positive", "negative"])
def test_a_number_too_large_for_anybody_is_no_evidence(number: int) -> None:
    found = [recommended("promote", "A", evidence={"huge": number, "good": 2**40})]
    (advised,) = plan(found).advice.entries
    assert advised.evidence == {"good": 2**40}


@given(
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["relieve", "promote", "demote"]),
            "router": st.just("r1") | any_json,
            "topics": st.lists(st.just("Heavy") | any_json, max_size=3) | any_json,
            "topic": st.text() | any_json,
            "text": any_json,
            "evidence": st.dictionaries(st.text(), any_json, max_size=3) | any_json,
        }
    )
)
def test_whatever_an_entry_holds_makes_advice_that_can_be_kept(entry: dict[str, Any]) -> None:
    made = plan(read_recommendations(json.dumps(file_of([{"fabric": "f", **entry}]))))
    assert decode_advice(encode_advice(made.advice), "advice") == made.advice


def test_what_one_pair_of_lans_needs_another_does_not_undo() -> None:
    found = [recommended("promote", "A"), recommended("demote", "A")]
    assert plan(found).advice.express() == {"A": True}


def test_few_at_a_time_and_not_again_before_the_effect_is_seen() -> None:
    found = [recommended("promote", f"T{n}") for n in range(7)]
    first = plan(found, limit=3)
    assert (len(first.steps), len(first.left)) == (3, 4)
    second = plan(found, first.advice, limit=3)
    assert [step.after.topic for step in second.steps] == ["T3", "T4", "T5"]
    back = [recommended("demote", "T0")]
    held = plan(back, first.advice, now_s=1100, hold_s=300)
    assert held.steps == () and len(held.left) == 1
    later = plan(back, first.advice, now_s=1400, hold_s=300)
    assert later.advice.express()["T0"] is False
    assert later.steps[0].before == Advised("T0", True, None, 1000, "why", {"n": 1})


def test_advice_can_be_taken_back() -> None:
    made = plan([recommended("promote", "A"), recommended("demote", "B")]).advice
    assert without(made, ["A"]).express() == {"B": False}
    assert without(made, None) == Advice()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 9, "recommendations": []}',
        '{"version": 1, "recommendations": 5}',
        '{"version": 1, "recommendations": [5]}',
        "[" * 100_000,
    ],
    ids=lambda text: text[:40],
)
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(NotRecommendations):
        read_recommendations(text)


def test_what_the_analysis_writes_is_read() -> None:
    found = [recommended("promote", "A")]
    assert read_recommendations(json.dumps(file_of(found))) == found
