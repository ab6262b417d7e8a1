"""Types travel: fetched from an application on another machine, packed, rebuilt, and the same to
DDS. What is malformed raises TypeUnavailable and nothing else.
"""

# mypy: disable-error-code="type-arg, valid-type, arg-type, no-untyped-call"
# (cyclonedds' type constructors are values, not types, to a checker.)
# No postponed annotations and no `X | None` here: cyclonedds builds types from their values.

import json
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, Optional

import cyclonedds.idl.annotations as annotate
import pytest
from cyclonedds.builtin import BuiltinDataReader, BuiltinTopicDcpsPublication
from cyclonedds.core import Policy
from cyclonedds.core import Qos as CycloneQos
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlBitmask, IdlStruct, IdlUnion
from cyclonedds.idl.types import (
    array,
    bounded_str,
    case,
    default,
    float32,
    int16,
    int32,
    int64,
    sequence,
    typedef,
    uint8,
    uint16,
)
from cyclonedds.pub import DataWriter
from cyclonedds.qos import _CQos
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_broker.dds import native, types
from gateway.errors import TypeUnavailable
from tests.apps import samples
from tests.edge.parts import RELIABLE, Keyed, gather, until, write

pytestmark = pytest.mark.dds

TIMEOUT_NS = 5_000_000_000


@dataclass
@annotate.bit_bound(16)
class Flags(IdlBitmask, typename="edge.module.Flags"):
    one: bool
    annotate.position("one", 0)
    seven: bool
    annotate.position("seven", 7)


@dataclass
@annotate.final
class Flagged(IdlStruct, typename="edge.module.Flagged"):
    id: uint16
    annotate.key("id")
    flags: Flags


Metres = typedef["edge.Metres", float32]  # type: ignore[name-defined]
Track = typedef["edge.Track", sequence[Metres]]  # type: ignore[name-defined]


@dataclass
@annotate.final
class Defined(IdlStruct, typename="edge.Defined"):
    height: Metres
    track: Track


@dataclass
@annotate.final
class Key(IdlStruct, typename="edge.deep.Key"):
    site: bounded_str[8]
    annotate.key("site")
    unit: int16
    annotate.key("unit")
    label: str


@dataclass
@annotate.appendable
class NestedKey(IdlStruct, typename="edge.deep.NestedKey"):
    value: int64
    key: Key
    annotate.key("key")
    grid: array[array[uint8, 2], 3]


@dataclass
@annotate.mutable
class Sparse(IdlStruct, typename="edge.Sparse"):
    id: int32
    annotate.key("id")
    maybe: Optional[int64]  # noqa: UP045
    inner: samples.Appendable
    names: sequence[bounded_str[4], 3]


class Shape(IdlUnion, discriminator=uint8, typename="edge.Shape"):
    radius: case[[1, 2], float32]
    corners: case[3, sequence[samples.Point]]
    other: default[int32]


@dataclass
@annotate.final
class Shaped(IdlStruct, typename="edge.Shaped"):
    shapes: sequence[Shape]


VALUES: list[Any] = [
    *(make(3, 5, 7) for _, make in samples.MAKERS.values()),
    Flagged(5, Flags(one=True, seven=True)),
    Defined(1.5, [2.5, 3.5]),
    NestedKey(9, Key("site", 4, "x"), [[1, 2], [3, 4], [5, 6]]),
    Sparse(3, None, samples.Appendable(1, "a", [0.5]), ["a", "bcd"]),
    Sparse(4, 5, samples.Appendable(1, "a", []), []),
    Shaped([Shape(radius=2.0), Shape(corners=[samples.Point(1.0, 2.0)]), Shape(other=-3)]),
]


QOS = CycloneQos(RELIABLE, Policy.History.KeepAll)


class Machines:
    def __init__(self, near: DomainParticipant, far: DomainParticipant) -> None:
        self.near, self.far = near, far
        self._names = count()
        self._publications = BuiltinDataReader(near, BuiltinTopicDcpsPublication)
        self._known: dict[tuple[Any, str], Any] = {}

    def topic(self) -> str:
        return f"types-{next(self._names)}"

    def announced(self, participant: DomainParticipant, topic: str) -> Any:
        """The type, and its identifier, of that participant's writer."""
        key = participant.guid, topic

        def collect() -> bool:
            self._known |= {
                (s.participant_key, s.topic_name): (s.type_name, s.type_id)
                for s in self._publications.take(N=1000)
            }
            return key in self._known

        until(collect)
        return self._known[key]

    def fetch(self, type_: type[Any]) -> tuple[str, bytes]:
        """As the edge does: hash and blob of what an application on the other machine uses."""
        topic = self.topic()
        writer: DataWriter[Any] = DataWriter(self.far, Topic(self.far, topic, type_))
        _, identifier = self.announced(self.far, topic)
        hash_ = types.type_hash(identifier)
        assert hash_ is not None
        blob = types.fetch(self.near._ref, identifier, TIMEOUT_NS)
        native.delete(writer._ref)
        return hash_, blob

    def open(self, topic: str, rebuilt: types.TopicType) -> tuple[int, int]:
        """A writer and a reader on this machine, made as the edge makes them."""
        ref = native.create_topic(self.near._ref, topic, rebuilt.support)
        writer = native.create_writer(self.near._ref, ref, _CQos.qos_to_cqos(QOS), topic)
        reader = native.create_reader(self.near._ref, ref, _CQos.qos_to_cqos(QOS), topic)
        return writer, reader


@pytest.fixture(scope="module")
def lan(machines: tuple[DomainParticipant, DomainParticipant]) -> Iterator[Machines]:
    yield Machines(*machines)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_rebuilt_type_is_the_same_and_carries_samples(lan: Machines, value: Any) -> None:
    type_ = type(value)
    name = type_.__idl__.idl_transformed_typename
    hash_, blob = lan.fetch(type_)
    assert len(blob) < 100_000
    rebuilt = types.rebuild(name, hash_, blob)
    assert (rebuilt.name, rebuilt.hash) == (name, hash_)
    # A reader of the rebuilt type on this machine, a writer of the original on the other one.
    topic = lan.topic()
    mirror, reader = lan.open(topic, rebuilt)
    writer: DataWriter[Any] = DataWriter(lan.far, Topic(lan.far, topic, type_), qos=QOS)
    until(lambda: native.matched_readers(writer._ref) == 1)
    announced, identifier = lan.announced(lan.near, topic)
    assert (announced, types.type_hash(identifier)) == (name, hash_)
    writer.write(value, 5)
    ((data, info),) = gather(reader, 1)
    assert info.source_timestamp == 5
    assert type_.deserialize(data).serialize() == value.serialize()
    # And back: the mirror's writer, and the key DDS finds in the sample by the rebuilt type.
    back: DataReader[Any] = DataReader(lan.far, Topic(lan.far, topic, type_), qos=QOS)
    until(lambda: native.matched_readers(mirror) == 2)
    write(mirror, data, 6)
    ((again, info),) = gather(back._ref, 1)
    assert (again, info.source_timestamp) == (data, 6)


def test_the_hash_of_a_type_is_that_of_its_complete_description(lan: Machines) -> None:
    one, _ = lan.fetch(Keyed)
    assert len(one) == 28
    assert one == lan.fetch(Keyed)[0]
    assert one != lan.fetch(samples.Keyed)[0]
    assert types.type_hash(None) is None


def test_fetching_from_nobody_gives_up_in_time(lan: Machines) -> None:
    _, blob = lan.fetch(Keyed)
    content = json.loads(zlib.decompress(blob))
    unknown = bytearray.fromhex(content["id"])
    unknown[-1] ^= 0xFF
    identifier = types._identifier(unknown.hex())
    with pytest.raises(TypeUnavailable, match="did not tell its type"):
        types.fetch(lan.near._ref, identifier, 50_000_000)


# ------------------------------------------------------------ malformed blobs


@pytest.fixture(scope="module")
def known(lan: Machines) -> tuple[str, bytes]:
    return lan.fetch(NestedKey)


NAME = "edge.deep.NestedKey"


def refuse(hash_: str, blob: bytes) -> None:
    with pytest.raises(TypeUnavailable) as caught:
        types.rebuild(NAME, hash_, blob)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def packed(content: Any) -> bytes:
    return zlib.compress(json.dumps(content).encode())


@settings(max_examples=100)
@given(st.data())
def test_a_truncated_blob_is_refused(known: tuple[str, bytes], data: st.DataObject) -> None:
    hash_, blob = known
    refuse(hash_, blob[: data.draw(st.integers(0, len(blob) - 1))])


@settings(max_examples=200)
@given(st.data())
def test_altered_content_rebuilds_or_is_refused(
    known: tuple[str, bytes], data: st.DataObject
) -> None:
    hash_, blob = known
    text = bytearray(zlib.decompress(blob))
    at = data.draw(st.integers(0, len(text) - 1))
    text[at] = data.draw(st.sampled_from(b'0123456789abcdef"{}:,'))
    try:
        rebuilt = types.rebuild(NAME, hash_, zlib.compress(bytes(text)))
    except TypeUnavailable:
        return
    assert rebuilt.hash == hash_


@settings(max_examples=100)
@given(st.data())
def test_flipped_bits_are_refused(known: tuple[str, bytes], data: st.DataObject) -> None:
    hash_, blob = known
    flipped = bytearray(blob)
    flipped[data.draw(st.integers(2, len(blob) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    unpacker = zlib.decompressobj()
    with suppress(zlib.error):
        if unpacker.decompress(bytes(flipped)) == zlib.decompress(blob) and unpacker.eof:
            return  # the same said in another way
    refuse(hash_, bytes(flipped))


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@settings(max_examples=100)
@given(
    anything
    | st.fixed_dictionaries({"v": st.just(1), "id": anything, "objects": anything})
    | st.builds(
        lambda id_, objects: {"v": 1, "id": id_, "objects": objects},
        st.binary(max_size=20).map(bytes.hex),
        st.dictionaries(
            st.binary(max_size=20).map(bytes.hex), st.binary(max_size=40).map(bytes.hex)
        ),
    )
)
def test_other_content_is_refused(known: tuple[str, bytes], content: Any) -> None:
    refuse(known[0], packed(content))


@given(st.binary(max_size=60))
def test_noise_is_refused(known: tuple[str, bytes], noise: bytes) -> None:
    refuse(known[0], noise)


def test_another_version_or_type_is_refused(lan: Machines, known: tuple[str, bytes]) -> None:
    hash_, blob = known
    content = json.loads(zlib.decompress(blob))
    refuse(hash_, packed({**content, "v": 2}))
    refuse("00" * 14, blob)
    other = json.loads(zlib.decompress(lan.fetch(Keyed)[1]))
    refuse(hash_, packed(other))
    refuse(hash_, packed({**content, "objects": {}}))
    refuse(
        hash_, packed({**content, "objects": {content["id"]: content["objects"][content["id"]]}})
    )


def test_a_bomb_is_refused_before_it_unpacks(
    known: tuple[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(types, "_MOST_BYTES", 1 << 20)
    bomb = zlib.compress(b'{"v":1,"id":"' + b"0" * (64 << 20))
    assert len(bomb) < 1 << 17
    refuse(known[0], bomb)
    refuse(known[0], packed({"v": 1, "id": "", "objects": dict.fromkeys(map(str, range(11_000)))}))


def test_deep_nesting_is_refused(known: tuple[str, bytes]) -> None:
    refuse(known[0], zlib.compress(b"[" * 200_000 + b"]" * 200_000))


# ------------------------------------------------------------ no type announced


def test_a_keyed_type_without_description_is_refused_with_advice() -> None:
    with pytest.raises(TypeUnavailable, match="XTypes type information"):
        types.opaque("some.Type", keyed=True)


def test_a_keyless_type_without_description_passes_as_bytes(lan: Machines) -> None:
    stand_in = types.opaque("some.Type", keyed=False)
    assert (stand_in.name, stand_in.hash) == ("some.Type", None)
    topic = lan.topic()
    _, reader = lan.open(topic, stand_in)
    assert lan.announced(lan.near, topic)[0] == "some.Type"
    far = native.create_topic(lan.far._ref, topic, stand_in.support)
    writer = native.create_writer(lan.far._ref, far, _CQos.qos_to_cqos(QOS), topic)
    until(lambda: native.matched_readers(writer) == 1)
    content = b"\x00\x01\x00\x00" + bytes(range(200))
    write(writer, content, 7)
    ((data, _),) = gather(reader, 1)
    assert data == content
