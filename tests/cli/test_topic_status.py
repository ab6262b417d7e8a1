"""What `status` says of a topic and of express links: pure functions of what edges answered; and
how edges are asked.
"""

from __future__ import annotations

import asyncio
import copy
import json
from dataclasses import replace
from typing import Any

import pytest

from gateway.commands.ask import ask
from gateway.commands.edge_report import express_links
from gateway.commands.report import Report, format_report
from gateway.commands.topic_status import format_topic, make_topic_status
from gateway.errors import DdswanError
from gateway.model import EdgeInfo
from gateway.observe.health import HealthServer
from tests.cli.views import EDGE_STATUS, RELIABLE, report_of, topic_of


def _report() -> Report:
    return report_of(topic_of((("a", RELIABLE),), (("b", RELIABLE),)), lans="abc")


def test_the_text_of_a_topic() -> None:
    silent = {"e-z": "it has no metrics port: set edge.metrics_port"}
    status = make_topic_status(_report(), "t", [EDGE_STATUS], silent)
    assert format_topic(status).splitlines() == [
        "topic t of fabric f: routed",
        "  publishers   a:2",
        "  subscribers  b:1",
        "  primary      r1",
        "  standby      r2",
        "",
        "FROM e-a (a) TO e-b (b)",
        "  profile f00, reliable",
        "  deadline 200 ms, mode adaptive: takes express",
        "  why: express alone: takes 5 ms of 200 ms",
        "  the clock of e-b is 0.250 ms behind, 5.125 ms off at most",
        "  path      via     state  level    p50     p99     p99.9  lost  delays",
        "  express   direct  taken  5.0 ms   5.3 ms  6.2 ms  -      1     812",
        "  routed    r1      idle   25.0 ms  5.3 ms  6.2 ms  -      1     812",
        "  not used  r2      down   5.0 ms   5.3 ms  6.2 ms  -      1     812",
        "",
        "FROM e-a (a) TO e-c (c)",
        "  profile f00, reliable",
        "  no strict deadline: takes the routed path",
        "",
        "e-z cannot be asked where it sends it: it has no metrics port: set edge.metrics_port",
    ]


def test_the_direct_way_over_datagrams_stands_beside_the_one_over_tcp() -> None:
    edge = copy.deepcopy(EDGE_STATUS)
    paths = edge["pairs"][0]["paths"]
    paths.append({**paths[-1], "via": "datagrams", "level_ms": 6.0})
    edge["outflows"][0]["deadline"][0]["paths"]["express"] = "datagrams"
    lines = format_topic(make_topic_status(_report(), "t", [edge], {})).splitlines()
    assert [" ".join(line.split()[:5]) for line in lines[12:16]] == [
        "express direct, UDP taken 6.0",
        "routed r1 idle 25.0 ms",
        "not used direct idle 5.0",
        "not used r2 down 5.0",
    ]


def test_the_json_of_a_topic() -> None:
    found = json.loads(json.dumps(make_topic_status(_report(), "t", [EDGE_STATUS], {}).to_json()))
    assert found["version"] == 1
    assert found["topic"]["topic"] == "t"
    flow = found["flows"][0]
    assert (flow["edge"], flow["to_lan"], flow["deadline_ms"]) == ("e-a", "b", 200.0)
    assert [(path["path"], path["is_taken"]) for path in flow["paths"]] == [
        ("express", True),
        ("routed", False),
        ("not used", False),
    ]
    assert found["flows"][1]["deadline_ms"] is None


def test_a_topic_that_was_silent_for_long_shows_its_paths_nevertheless() -> None:
    """Its edge has forgotten what it knew of them."""
    for pairs in ([], [{**EDGE_STATUS["pairs"][0], "paths": []}]):
        status = make_topic_status(_report(), "t", [{**EDGE_STATUS, "pairs": pairs}], {})
        text = [line.split() for line in format_topic(status).splitlines()]
        header = next(number for number, words in enumerate(text) if words[:1] == ["path"])
        assert text[header + 1 : header + 4] == [
            ["express", "direct", "taken", "-", "-", "-", "-", "0", "0"],
            ["routed", "r1", "idle", "-", "-", "-", "-", "0", "0"],
            [],
        ]


def test_a_topic_nobody_has() -> None:
    with pytest.raises(DdswanError, match=r"has no topic 'x.x1b'"):
        make_topic_status(_report(), "x\x1b", [], {})


def test_links_are_listed_once_by_the_end_that_knows_more() -> None:
    down = {"edge": "e-a", "up": False, "problem": "no route"}
    statuses = [
        EDGE_STATUS,
        {"edge": "e-b", "express": [{"edge": "e-a", "up": False, "problem": ""}]},
        {"edge": "e-c", "express": [down]},
    ]
    links = express_links(statuses)
    assert [(link.edges, link.is_up) for link in links] == [
        (("e-a", "e-b"), True),
        (("e-c", "e-a"), False),
    ]
    assert express_links(statuses[::-1])[0].is_up
    assert "".join(format_report(replace(_report(), express_links=links)).split("EXPRESS")[1:])[
        len(" LINKS\n") :
    ].splitlines() == [
        "  between  and  state  round trip  problem",
        "  e-a      e-b  up     10.2 ms     -",
        "  e-c      e-a  down   -           no route",
    ]


def test_edges_are_asked_at_once_and_may_fail_to_answer() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()

        def serve(status: dict[str, Any]) -> HealthServer:
            server = HealthServer(
                "127.0.0.1",
                0,
                loop=loop,
                metrics=lambda: b"",
                readiness=list,
                status=lambda: status,
            )
            server.start()
            return server

        good, strange = serve(EDGE_STATUS), serve({"edge": "e-b", "lan": "b"})
        refusing = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        port = refusing.sockets[0].getsockname()[1]
        edges = [
            EdgeInfo("e-a", "a", 1, metrics=f"127.0.0.1:{good.port}"),
            EdgeInfo("e-b", "b", 1, metrics=f"127.0.0.1:{strange.port}"),
            EdgeInfo("e-c", "c", 1, metrics=f"127.0.0.1:{good.port}"),
            EdgeInfo("e-d", "d", 1),
            EdgeInfo("e-e", "e", 1, metrics="127.0.0.1:1"),
            EdgeInfo("e-f", "f", 1, metrics=f"127.0.0.1:{port}"),
        ]
        try:
            answers = await ask(reversed(edges))
        finally:
            for server in (good, strange):
                await asyncio.to_thread(server.stop)
            refusing.close()
            await refusing.wait_closed()
        assert answers.statuses == [EDGE_STATUS]
        assert list(answers.silent) == ["e-b", "e-c", "e-d", "e-e", "e-f"]
        for edge, why in (
            ("e-b", "another version"),
            ("e-c", "another broker"),
            ("e-d", "edge.metrics_port"),
            ("e-e", "no answer"),
            ("e-f", "answers"),
        ):
            assert why in answers.silent[edge]

    asyncio.run(asyncio.wait_for(scenario(), 20.0))
