"""What `status` says about a fabric: a pure function of the view."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gateway.commands.report import TopicState, format_report, make_report
from gateway.model import EdgeInfo, FabricView, Profile, RouterInfo, RouterLoad, TopicView
from tests.cli.views import BEST_EFFORT, RELIABLE, report_of, topic_of


def _in_partition(profile: Profile, partition: str) -> Profile:
    return replace(profile, qos=replace(profile.qos, partitions=(partition,)))


@pytest.mark.parametrize(
    ("topic", "routers", "state"),
    [
        (topic_of((("a", RELIABLE),), (("b", RELIABLE),)), ("r1", "r2"), TopicState.ROUTED),
        (topic_of((("a", RELIABLE),), (("b", RELIABLE),)), ("r2",), TopicState.ROUTED),
        (topic_of((("a", RELIABLE),), (("b", RELIABLE),)), ("r3",), TopicState.WAITING),
        (topic_of((("a", RELIABLE),), (("b", RELIABLE),), None), ("r1",), TopicState.WAITING),
        (topic_of((("a", RELIABLE),), (("a", RELIABLE),)), ("r1",), TopicState.LOCAL),
        (topic_of((("a", RELIABLE),), ()), ("r1",), TopicState.LOCAL),
        (topic_of((("a", BEST_EFFORT),), (("b", RELIABLE),)), ("r1",), TopicState.INCOMPATIBLE),
        (
            topic_of(
                (("a", _in_partition(RELIABLE, "x")),), (("b", _in_partition(RELIABLE, "y")),)
            ),
            ("r1",),
            TopicState.LOCAL,
        ),
        (
            topic_of((("a", BEST_EFFORT),), (("b", RELIABLE), ("c", BEST_EFFORT))),
            ("r1",),
            TopicState.ROUTED,
        ),
    ],
)
def test_the_state_of_a_topic(
    topic: TopicView, routers: tuple[str, ...], state: TopicState
) -> None:
    assert report_of(topic, routers=routers).topics[0].state is state


def test_endpoints_are_counted_by_lan_and_once() -> None:
    topic = topic_of((("a", RELIABLE), ("b", RELIABLE)), (("b", RELIABLE),))
    twice = replace(topic, pubs=(*topic.pubs, replace(topic.pubs[0], edge="e-a2")))
    report = report_of(twice).topics[0]
    assert report.publishers == {"a": 2, "b": 2}
    assert report.subscribers == {"b": 1}


def test_why_a_pair_does_not_match_is_said_once_for_two_lans() -> None:
    topic = topic_of((("a", BEST_EFFORT),), (("b", RELIABLE),))
    doubled = replace(topic, subs=(*topic.subs, replace(topic.subs[0], edge="e-b2")))
    (problem,) = report_of(doubled).topics[0].problems
    assert (problem.from_lan, problem.to_lan, problem.policies) == ("a", "b", ("reliability",))
    text = format_report(report_of(doubled))
    assert f"t: a to b: {problem.explanation[0]}" in text


def test_json_is_plain() -> None:
    report = report_of(topic_of((("a", BEST_EFFORT),), (("b", RELIABLE),)))
    raw = json.loads(json.dumps(report.to_json()))
    assert raw["version"] == 1
    assert raw["leader"] == "r1"
    assert raw["topics"][0]["state"] == "incompatible"
    assert raw["topics"][0]["problems"][0]["policies"] == ["reliability"]
    assert raw["routers"][0]["is_leader"] is True


def test_the_table() -> None:
    view = FabricView(
        edges={"e": EdgeInfo("e", "a", 1, "0.1.0", "h:9")},
        routers={
            "r1": RouterInfo("r1", "h:1", "z1", load=RouterLoad(2_500_000.0, 0.1, 3)),
            "r2": RouterInfo("r2", "h:2", draining=True),
        },
        topics={"t": topic_of((("a", RELIABLE),), (("b", RELIABLE),))},
    )
    assert format_report(make_report("f", view, "r1", {"edge": 2})).splitlines() == [
        "fabric f",
        "",
        "ROUTERS",
        "  id  address  zone  role              topics  links  load",
        "  r1  h:1      z1    leader            1       3      2.5 MB/s",
        "  r2  h:2      -     worker, draining  0       0      0 B/s",
        "",
        "EDGES",
        "  id  lan  version  metrics",
        "  e   a    0.1.0    h:9",
        "",
        "TOPICS",
        "  topic  state   publishers  subscribers  primary  standby",
        "  t      routed  a:2         b:1          r1       r2",
        "",
        "records that cannot be understood and are ignored: 2 edge",
    ]


def test_no_leader_is_said() -> None:
    report = make_report("f", FabricView(routers={"r": RouterInfo("r", "h:1")}), None, {})
    assert "no leader" in format_report(report)


def test_a_topic_name_cannot_steer_the_terminal() -> None:
    topic = replace(topic_of((), ()), topic="\x1b[2J\n")
    text = format_report(report_of(topic))
    assert "\x1b" not in text
    assert r"'\x1b[2J\n'" in text
