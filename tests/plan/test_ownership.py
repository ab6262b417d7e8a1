"""Edges of one LAN share its topics, and agree about it without talking."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gateway.model import EdgeInfo
from gateway.plan.ownership import owner

edge_ids = st.lists(
    st.text("abcdefgh123._-", min_size=1, max_size=6), min_size=1, max_size=6, unique=True
)


def infos(ids: list[str], lan: str = "a") -> list[EdgeInfo]:
    return [EdgeInfo(edge, lan, incarnation=1) for edge in ids]


def test_no_live_edge_no_owner() -> None:
    assert owner("t", "a", []) is None
    assert owner("t", "a", infos(["e1"], lan="b")) is None


def test_the_answer_is_the_same_in_every_process_and_release() -> None:
    assert [owner(f"t{n}", "a", infos(["e1", "e2", "e3"])) for n in range(8)] == PINNED


PINNED = ["e1", "e1", "e1", "e1", "e3", "e3", "e1", "e3"]


@given(edge_ids, st.text(max_size=20))
def test_order_and_incarnation_do_not_matter(ids: list[str], topic: str) -> None:
    chosen = owner(topic, "a", infos(ids))
    assert chosen in ids
    restarted = [EdgeInfo(edge, "a", incarnation=99) for edge in reversed(ids)]
    assert owner(topic, "a", restarted + infos(["x"], lan="b")) == chosen


@given(edge_ids, st.text(max_size=20))
def test_losing_an_edge_moves_only_its_topics(ids: list[str], topic: str) -> None:
    chosen = owner(topic, "a", infos(ids))
    for lost in ids:
        if lost != chosen:
            assert owner(topic, "a", infos([e for e in ids if e != lost])) == chosen


def test_topics_spread_evenly() -> None:
    edges = infos(["e1", "e2", "e3", "e4"])
    counts = Counter(owner(f"rt/robot{n}/pose", "a", edges) for n in range(4000))
    assert all(850 < counts[info.edge] < 1150 for info in edges)
