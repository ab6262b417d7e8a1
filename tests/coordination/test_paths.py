"""Topic names survive the tree whatever they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.coordination.paths import (
    FabricPaths,
    decode_topic,
    encode_topic,
    parse_announcement_name,
)
from gateway.errors import ConfigError, RecordError
from gateway.model import Direction

AWKWARD = [
    "rt/chatter",
    "/",
    "//",
    ".",
    "..",
    "...",
    "zookeeper",
    "with space",
    "tab\tand\x00null",
    "%2F",
    "%",
    "%%",
    "",
    "Grüße/温度/🌡",
    "x" * 255,
    "🌡" * 255,
    "e1~0123456789ab",
    "\ud800 alone",
]


@pytest.mark.parametrize("topic", AWKWARD)
def test_awkward_names_round_trip(topic: str) -> None:
    assert decode_topic(encode_topic(topic)) == topic


@given(st.text(st.characters(), max_size=300))
def test_any_name_becomes_a_legal_node_name_and_back(topic: str) -> None:
    name = encode_topic(topic)
    assert decode_topic(name) == topic
    assert name not in {"", ".", "..", "zookeeper"}
    assert name.isascii()
    assert name.isprintable()
    assert not set(name) & set("/~ ")


@given(st.text(st.characters(), max_size=20), st.text(st.characters(), max_size=20))
def test_different_topics_have_different_nodes(one: str, other: str) -> None:
    assert (encode_topic(one) == encode_topic(other)) == (one == other)


@given(st.text(st.characters(), max_size=30))
def test_a_node_name_nobody_makes_is_refused(name: str) -> None:
    try:
        topic = decode_topic(name)
    except RecordError:
        return
    assert encode_topic(topic) == name


@pytest.mark.parametrize("name", ["%41", "%2f", "a/b", "%FF", "%2", "zookeeper", ".", "ä", "a~b"])
def test_other_spellings_are_refused(name: str) -> None:
    with pytest.raises(RecordError):
        decode_topic(name)


def test_the_tree_is_the_documented_one() -> None:
    paths = FabricPaths("plant-1")
    assert paths.leader == "/ddswan/plant-1/leader"
    assert paths.router("r1") == "/ddswan/plant-1/routers/r1"
    assert paths.edge("e1") == "/ddswan/plant-1/edges/e1"
    assert paths.topic("rt/x") == "/ddswan/plant-1/topics/rt%2Fx"
    assert paths.direction("x", Direction.SUB) == "/ddswan/plant-1/topics/x/sub"
    assert (
        paths.announcement("x", Direction.PUB, "e1", "0123456789ab")
        == "/ddswan/plant-1/topics/x/pub/e1~0123456789ab"
    )
    assert paths.type("ab12") == "/ddswan/plant-1/types/ab12"
    assert paths.parts(paths.direction("x", Direction.SUB)) == ("topics", "x", "sub")
    assert paths.parts("/ddswan/plant-10/topics") == ()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "x" * 65, "e~1", "ä"])
def test_ids_that_are_no_node_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        FabricPaths(name)
    with pytest.raises(ConfigError):
        FabricPaths("f").edge(name)


def test_announcement_names() -> None:
    assert parse_announcement_name("edge-1.x~0123456789ab") == ("edge-1.x", "0123456789ab")
    for name in ("e1", "e1~", "~0123456789ab", "e1~0123456789AB", "e1~a~0123456789ab"):
        with pytest.raises(RecordError):
            parse_announcement_name(name)
