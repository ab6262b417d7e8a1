"""What the live view says above its table."""

from __future__ import annotations

from dataclasses import replace

from gateway.commands.live_notices import GONE_SHOWN_S, Coordination, Departures, make_notices
from gateway.model import EdgeInfo, FabricView, RouterInfo

_VIEW = FabricView(
    edges={"e-a": EdgeInfo("e-a", "a", 1), "e-b": EdgeInfo("e-b", "b", 1, metrics="h:9")},
    routers={"r1": RouterInfo("r1", "h:1")},
)
_FINE = Coordination("zk:2181", is_connected=True, is_read=True, leader="r1")


def test_who_left_is_told_for_a_while_and_not_when_back() -> None:
    departures = Departures()
    departures.update(_VIEW, 0.0)
    assert departures.recent(0.0) == ""
    departures.update(replace(_VIEW, routers={}), 10.0)
    departures.update(FabricView(), 12.0)
    assert departures.recent(13.0) == (
        "edge e-a (LAN a) left 1 s ago, edge e-b (LAN b) left 1 s ago, router r1 left 3 s ago"
    )
    departures.update(replace(_VIEW, edges={}), 14.0)
    assert departures.recent(11.0 + GONE_SHOWN_S).endswith("edge e-b (LAN b) left 59 s ago")
    assert departures.recent(12.0 + GONE_SHOWN_S) == ""


def test_what_keeps_the_table_from_being_whole() -> None:
    assert make_notices(
        _FINE, _VIEW, True, "router r2 left 1 s ago", {"e-b": "no answer at h:9"}
    ) == [
        "router r2 left 1 s ago",
        "no rates from e-b: no answer at h:9",
        "no rates from e-a: started without --metrics-port",
    ]
    silent = FabricView(routers=_VIEW.routers)
    for coordination, view, told in (
        (_FINE, FabricView(), "no broker is connected to this fabric; is --fabric right?"),
        (
            replace(_FINE, leader=None),
            silent,
            "no leader: topics keep their routers, new ones wait",
        ),
        (
            _FINE,
            silent,
            "nothing to carry: no topic is published in one LAN and subscribed in another",
        ),
        (replace(_FINE, is_read=False), silent, "reading the fabric"),
        (
            replace(_FINE, is_connected=False),
            silent,
            "ZooKeeper at zk:2181 does not answer; routes are as last known",
        ),
        (
            Coordination("zk:2181"),
            FabricView(),
            "waiting for ZooKeeper at zk:2181; is --zookeeper right?",
        ),
    ):
        assert make_notices(coordination, view, False, "", {}) == [told]
