"""Records say what was meant, and nonsense is always one clear error."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.coordination.records import (
    MOST_GUIDS,
    decode_advice,
    decode_announcement,
    decode_assignment,
    decode_candidate,
    decode_edge,
    decode_router,
    digest,
    encode_advice,
    encode_announcement,
    encode_assignment,
    encode_candidate,
    encode_edge,
    encode_router,
    incarnation_of,
)
from gateway.errors import RecordError
from gateway.model import (
    Advice,
    Advised,
    Announcement,
    Assignment,
    Direction,
    Durability,
    DurabilityService,
    EdgeInfo,
    History,
    HistoryKind,
    Ownership,
    Profile,
    Qos,
    Reliability,
    Representation,
    RouterInfo,
    RouterLoad,
)

topics = st.text(st.characters(), max_size=12)
"""Names of topics may hold what no encoding has."""
text = st.text(st.characters(codec="utf-8"), max_size=12)
numbers = st.floats(0, 1e12, allow_nan=False)
incarnations = st.integers(0, 2**64 - 1)
edges = st.builds(EdgeInfo, text, text, incarnations, text, st.none() | text)
loads = st.builds(
    RouterLoad,
    numbers,
    numbers,
    st.integers(0, 10_000),
    st.lists(st.tuples(topics, numbers), max_size=3).map(tuple),
)
routers = st.builds(
    RouterInfo, text, text, text, incarnations, st.booleans(), loads, text, st.none() | text
)
assignments = st.builds(Assignment, text, st.none() | text, st.integers(0, 2**63 - 1))
histories = st.builds(History, st.sampled_from(HistoryKind), st.integers(1, 1000))
qualities = st.builds(
    Qos,
    reliability=st.sampled_from(Reliability),
    durability=st.sampled_from(Durability),
    deadline_ns=st.integers(0, 2**63 - 1),
    ownership=st.sampled_from(Ownership),
    partitions=st.lists(text, max_size=3).map(tuple),
    history=st.none() | histories,
    durability_service=st.builds(DurabilityService, st.integers(0, 10**12), histories),
    representations=st.lists(st.sampled_from(Representation), max_size=2).map(tuple),
    coherent_access=st.booleans(),
    user_data=st.binary(max_size=8).map(bytes.hex),
)
profiles = st.builds(Profile, text, st.none() | text, st.booleans(), qualities, st.none() | text)
announcements = st.builds(
    Announcement,
    text,
    text,
    incarnations,
    topics,
    st.sampled_from(Direction),
    st.lists(st.tuples(profiles, st.lists(text, max_size=3).map(tuple)), max_size=3).map(tuple),
)

DECODERS: list[Callable[[bytes, str], Any]] = [
    decode_edge,
    decode_router,
    decode_assignment,
    decode_announcement,
    decode_candidate,
    decode_advice,
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | topics,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(topics, inner, max_size=3),
    max_leaves=8,
)


@given(edges)
def test_edges_round_trip(info: EdgeInfo) -> None:
    assert decode_edge(encode_edge(info), "/p") == info


@given(routers)
def test_routers_round_trip(info: RouterInfo) -> None:
    assert decode_router(encode_router(info), "/p") == info


@given(assignments)
def test_assignments_round_trip(assignment: Assignment) -> None:
    assert decode_assignment(encode_assignment(assignment), "/p") == assignment


@given(announcements)
def test_announcements_round_trip(announcement: Announcement) -> None:
    assert decode_announcement(encode_announcement(announcement), "/p") == announcement


def test_candidates_round_trip() -> None:
    assert decode_candidate(encode_candidate("r1"), "/p") == "r1"


@given(st.lists(st.builds(Advised, topics, st.booleans()) | st.builds(Advised, topics, avoid=text)))
def test_advice_round_trips(entries: list[Advised]) -> None:
    advice = Advice(tuple(entries))
    assert decode_advice(encode_advice(advice), "/p") == advice


def test_a_record_is_readable_and_stable() -> None:
    assert encode_edge(EdgeInfo("e1", "a", 0xAB, "0.1.0", None)) == (
        b'{"v": 1, "edge": "e1", "lan": "a", "incarnation": "00000000000000ab", '
        b'"version": "0.1.0", "metrics": null, "express": []}'
    )


def test_a_topic_with_thousands_of_endpoints_stays_small() -> None:
    guids = tuple(f"{number:032x}" for number in range(5000))
    said = Announcement(
        "e", "a", 1, "t", Direction.SUB, ((Profile("T", None, False, Qos()), guids),)
    )
    data = encode_announcement(said)
    assert len(data) < 12_000
    assert json.loads(data)["profiles"][0]["count"] == 5000
    assert decode_announcement(data, "/p").profiles[0][1] == guids[:MOST_GUIDS]


def test_the_digest_names_the_content() -> None:
    assert digest(b"") == "e3b0c44298fc"
    one = Announcement("e", "a", 1, "t", Direction.SUB, ())
    other = replace(one, incarnation=2)
    assert digest(encode_announcement(one)) != digest(encode_announcement(other))


@pytest.mark.parametrize("decode", DECODERS)
@given(data=st.binary(max_size=200))
def test_arbitrary_bytes_are_a_record_error(
    decode: Callable[[bytes, str], Any], data: bytes
) -> None:
    with pytest.raises(RecordError, match="/some/path"):
        decode(data, "/some/path")
    assert incarnation_of(data) is None


RECORDS = [
    encode_edge(EdgeInfo("e1", "a", 1)),
    encode_router(RouterInfo("r1", "h:1", load=RouterLoad(1.0, 0.5, 3, (("t", 1.0),)))),
    encode_assignment(Assignment("r1", "r2", 7)),
    encode_announcement(
        Announcement(
            "e1",
            "a",
            1,
            "t",
            Direction.PUB,
            ((Profile("T", "ab", True, Qos(history=History()), None), ("0" * 32,)),),
        )
    ),
    encode_candidate("r1"),
    encode_advice(Advice((Advised("t", express=True, since_s=1, text="why", evidence={"n": 1}),))),
]


@given(st.sampled_from(list(zip(DECODERS, RECORDS, strict=True))), st.data())
def test_a_record_with_one_value_replaced_parses_or_is_a_record_error(
    case: tuple[Callable[[bytes, str], Any], bytes], data: st.DataObject
) -> None:
    decode, record = case
    raw = json.loads(record)
    target = raw
    while True:
        keys = list(target) if isinstance(target, dict) else list(range(len(target)))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if isinstance(target[key], dict | list) and data.draw(st.booleans()):
            target = target[key]
            continue
        target[key] = data.draw(json_values)
        break
    try:
        decode(json.dumps(raw).encode(), "/some/path")
    except RecordError as error:
        assert "/some/path" in str(error)


@pytest.mark.parametrize(
    "data",
    [
        b'{"v": 2, "primary": "r1", "epoch": 1}',
        b'{"v": true, "primary": "r1", "epoch": 1}',
        b'{"primary": "r1", "epoch": 1}',
        b'{"v": 1, "epoch": 1}',
        b'{"v": 1, "primary": "r1", "epoch": "1"}',
        b"[" * 100_000,
        b'{"v": 1, "primary": "r1", "epoch": ' + b"9" * 5000 + b"}",
        b'{"v": NaN}',
    ],
)
def test_wrong_assignments_are_refused(data: bytes) -> None:
    with pytest.raises(RecordError):
        decode_assignment(data, "/p")


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (0, "lan", "\ud800"),
        (0, "express", ["\udfff:1"]),
        (1, "address", "\ud800:1"),
        (1, "load", {"connections": 2**63}),
        (2, "primary", "r\udc80"),
        (2, "epoch", 2**63),
        (5, "advised", [{"topic": "t", "avoid": "\ud800"}]),
    ],
)
def test_what_cannot_be_sent_or_shown_is_refused(record: int, key: str, value: Any) -> None:
    raw = {**json.loads(RECORDS[record]), key: value}
    with pytest.raises(RecordError, match=r"64 bits|in Unicode") as refused:
        DECODERS[record](json.dumps(raw).encode(), "/p")
    assert str(refused.value).isascii()


@pytest.mark.parametrize(
    "qos",
    [
        {"deadline_ns": -(10**400)},
        {"lifespan_ns": 2**63},
        {"history": {"kind": "keep_last", "depth": 2**70}},
        {"partitions": ["fine", "\ud800"]},
        {"user_data": "\ud800"},
    ],
)
def test_policies_that_dds_cannot_hold_are_refused(qos: dict[str, Any]) -> None:
    raw = json.loads(RECORDS[3])
    raw["profiles"][0]["qos"] = qos
    with pytest.raises(RecordError) as refused:
        decode_announcement(json.dumps(raw).encode(), "/p")
    assert str(refused.value).isascii()


def test_keys_of_a_newer_version_are_ignored() -> None:
    raw = json.loads(RECORDS[0])
    assert decode_edge(json.dumps({**raw, "colour": "red"}).encode(), "/p").edge == "e1"


def test_incarnations_are_found_in_any_record() -> None:
    assert incarnation_of(RECORDS[0]) == 1
    assert incarnation_of(RECORDS[2]) is None
