"""Types of topics, without compiling anything: fetched from whoever announced them, packed into
a blob another LAN can read, and rebuilt from such a blob into what a DDS topic needs. Called by
the edge's type shop, in its own thread: fetching may wait for the network.
"""

from __future__ import annotations

import json
import zlib
from collections import deque
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from cyclonedds.idl import IdlStruct
from cyclonedds.idl._typesupport.DDS.XTypes import TypeIdentifier, TypeObject
from cyclonedds.idl._xt_builder import XTInterpreter, XTTypeIdScanner
from cyclonedds.idl.annotations import final
from cyclonedds.idl.types import uint8

from edge_broker.dds import native
from gateway.errors import TypeUnavailable

_COMPLETE_HASH = 0xF2
"""Discriminator of a TypeIdentifier that is the hash of a complete TypeObject."""

_BLOB_VERSION = 1
_MOST_OBJECTS = 10_000
_MOST_BYTES = 16 * 1024 * 1024
"""A blob that unpacks to more than this is refused: no real type comes near it."""


@dataclass(frozen=True, slots=True)
class TopicType:
    """A type a DDS topic can be made of, under the name its endpoints announced."""

    name: str
    hash: str | None
    """None: an opaque stand-in for endpoints that announced no type."""
    support: Any
    """What the binding wants as a topic's data type."""


def type_hash(identifier: TypeIdentifier | None) -> str | None:
    """The content address of an announced type; None when none (or only a minimal one) was."""
    if identifier is None or identifier.discriminator != _COMPLETE_HASH:
        return None
    return bytes(identifier.value).hex()


def fetch(participant: int, identifier: TypeIdentifier, timeout_ns: int) -> bytes:
    """Everything needed to rebuild the type elsewhere. Waits for the network up to `timeout_ns`
    for each part not known yet."""
    objects: dict[str, str] = {}
    wanted = deque((identifier,))
    while wanted:
        current = wanted.popleft()
        packed = current.serialize(use_version_2=True)[4:]
        if packed.hex() in objects:
            continue
        answer = native.type_object(participant, packed, timeout_ns)
        if isinstance(answer, int):
            raise TypeUnavailable(
                f"the application did not tell its type within {timeout_ns / 1e9:.0f} s "
                f"(DDS code {answer}); is it still running?"
            )
        objects[packed.hex()] = answer.hex()
        try:
            parsed = TypeObject.deserialize(answer, has_header=False, use_version_2=True)
            wanted.extend(XTTypeIdScanner.find_all_typeids(parsed))
        except Exception as error:
            raise TypeUnavailable(f"its type description is malformed: {error}") from error
    content = {
        "v": _BLOB_VERSION,
        "id": identifier.serialize(use_version_2=True)[4:].hex(),
        "objects": objects,
    }
    return zlib.compress(json.dumps(content, sort_keys=True).encode(), 9)


def rebuild(name: str, expected_hash: str, blob: bytes) -> TopicType:
    """The inverse of `fetch`, for a topic whose endpoints call the type `name`."""
    try:
        unpacker = zlib.decompressobj()
        unpacked = unpacker.decompress(blob, _MOST_BYTES)
        if not unpacker.eof:
            raise ValueError(f"it is cut short, or unpacks to more than {_MOST_BYTES} bytes")
        content = json.loads(unpacked)
        if content["v"] != _BLOB_VERSION or len(content["objects"]) > _MOST_OBJECTS:
            raise ValueError(f"version {content['v']} with {len(content['objects'])} objects")
        identifier = _identifier(content["id"])
        objects = {
            _identifier(packed): TypeObject.deserialize(
                bytes.fromhex(described), has_header=False, use_version_2=True
            )
            for packed, described in content["objects"].items()
        }
        if type_hash(identifier) != expected_hash:
            raise ValueError("it describes another type")
        rebuilt, _ = XTInterpreter.xt_to_class(identifier, objects)
        return _topic_type(name, expected_hash, rebuilt)
    except NotImplementedError as error:
        raise TypeUnavailable(
            f"type {name} uses something this gateway cannot rebuild: {error}"
        ) from error
    except Exception as error:
        raise TypeUnavailable(f"type {name} ({expected_hash}) is malformed: {error}") from error


def opaque(name: str, keyed: bool) -> TopicType:
    """A stand-in for endpoints that announced no type: samples pass as bytes. A keyed topic
    cannot do with it, because DDS must find the key inside each sample."""
    if keyed:
        raise TypeUnavailable(
            f"type {name} has a key but its application announces no type information; "
            "enable XTypes type information in that application"
        )
    return _topic_type(name, None, _Opaque)


@dataclass
@final
class _Opaque(IdlStruct):
    content: uint8


def _identifier(packed: str) -> TypeIdentifier:
    return TypeIdentifier.deserialize(bytes.fromhex(packed), has_header=False, use_version_2=True)


def _topic_type(name: str, hash_: str | None, rebuilt: Any) -> TopicType:
    idl = rebuilt.__idl__
    idl.populate()
    idl.fill_type_data()
    support = SimpleNamespace(
        __idl__=SimpleNamespace(
            idl_transformed_typename=name,
            data_type_props=idl.data_type_props,
            supported_versions=idl.supported_versions,
            _xt_bytedata=idl._xt_bytedata,
        ),
        rebuilt=rebuilt,
    )
    return TopicType(name, hash_, support)
