"""What the nodes of the ZooKeeper tree contain: versioned JSON to and from the values of
gateway/model.py.

Pure. Used by registrar, view, election and assignments. A record that cannot be understood is
always a RecordError that names its path; keys this version does not know are ignored.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from gateway.errors import RecordError
from gateway.model import (
    Advice,
    Advised,
    Announcement,
    Assignment,
    Direction,
    EdgeInfo,
    Profile,
    Qos,
    RouterInfo,
    RouterLoad,
    is_encodable,
    is_int64,
)

_T = TypeVar("_T")

VERSION = 1
MOST_GUIDS = 256
"""GUIDs kept per profile: a record must stay far below ZooKeeper's limit of 1 MB a node."""

_INCARNATION = re.compile(r"[0-9a-f]{16}")


def digest(data: bytes) -> str:
    """Twelve hexadecimal digits that name a record by its content."""
    return hashlib.sha256(data).hexdigest()[:12]


def encode_edge(info: EdgeInfo) -> bytes:
    return _encode(
        {
            "edge": info.edge,
            "lan": info.lan,
            "incarnation": _hex(info.incarnation),
            "version": info.version,
            "metrics": info.metrics,
            "express": list(info.express),
        }
    )


def decode_edge(data: bytes, path: str) -> EdgeInfo:
    def build(raw: Mapping[str, Any]) -> EdgeInfo:
        return EdgeInfo(
            edge=_text(raw, "edge"),
            lan=_text(raw, "lan"),
            incarnation=_incarnation(raw),
            version=_text(raw, "version", ""),
            metrics=_optional_text(raw, "metrics"),
            express=tuple(_is_text(each, "express") for each in raw.get("express", [])),
        )

    return _decode(data, path, "edge", build)


def encode_router(info: RouterInfo) -> bytes:
    load = info.load
    return _encode(
        {
            "router": info.router,
            "address": info.address,
            "zone": info.zone,
            "incarnation": _hex(info.incarnation),
            "draining": info.draining,
            "load": {
                "bytes_per_s": load.bytes_per_s,
                "cpu": load.cpu,
                "connections": load.connections,
                "topics": [[topic, rate] for topic, rate in load.topics],
            },
            "version": info.version,
            "metrics": info.metrics,
        }
    )


def decode_router(data: bytes, path: str) -> RouterInfo:
    def build(raw: Mapping[str, Any]) -> RouterInfo:
        return RouterInfo(
            router=_text(raw, "router"),
            address=_text(raw, "address"),
            zone=_text(raw, "zone", ""),
            incarnation=_incarnation(raw),
            draining=_boolean(raw, "draining", False),
            load=_load(_object(raw.get("load", {}), "load")),
            version=_text(raw, "version", ""),
            metrics=_optional_text(raw, "metrics"),
        )

    return _decode(data, path, "router", build)


def encode_assignment(assignment: Assignment) -> bytes:
    return _encode(
        {
            "primary": assignment.primary,
            "standby": assignment.standby,
            "epoch": assignment.epoch,
        }
    )


def decode_assignment(data: bytes, path: str) -> Assignment:
    def build(raw: Mapping[str, Any]) -> Assignment:
        return Assignment(
            primary=_text(raw, "primary"),
            standby=_optional_text(raw, "standby"),
            epoch=_integer(raw, "epoch"),
        )

    return _decode(data, path, "assignment", build)


def encode_announcement(announcement: Announcement) -> bytes:
    return _encode(
        {
            "edge": announcement.edge,
            "lan": announcement.lan,
            "incarnation": _hex(announcement.incarnation),
            "topic": announcement.topic,
            "direction": announcement.direction.value,
            "profiles": [
                {
                    "type": profile.type_name,
                    "type_hash": profile.type_hash,
                    "keyed": profile.keyed,
                    "writer": profile.writer,
                    "qos": profile.qos.to_json(),
                    "count": len(guids),
                    "endpoints": list(guids[:MOST_GUIDS]),
                }
                for profile, guids in announcement.profiles
            ],
        }
    )


def decode_announcement(data: bytes, path: str) -> Announcement:
    def build(raw: Mapping[str, Any]) -> Announcement:
        return Announcement(
            edge=_text(raw, "edge"),
            lan=_text(raw, "lan"),
            incarnation=_incarnation(raw),
            topic=_topic(raw["topic"]),
            direction=Direction(_text(raw, "direction")),
            profiles=tuple(_profile(_object(entry, "profile")) for entry in _list(raw, "profiles")),
        )

    return _decode(data, path, "announcement", build)


def encode_advice(advice: Advice) -> bytes:
    return _encode(
        {
            "advised": [
                {
                    "topic": each.topic,
                    "express": each.express,
                    "avoid": each.avoid,
                    "since_s": each.since_s,
                    "text": each.text,
                    "evidence": dict(each.evidence),
                }
                for each in advice.entries
            ]
        }
    )


def decode_advice(data: bytes, path: str) -> Advice:
    return _decode(
        data,
        path,
        "advice",
        lambda raw: Advice(
            tuple(_advised(_object(entry, "advised")) for entry in _list(raw, "advised"))
        ),
    )


def encode_candidate(candidate: str) -> bytes:
    return _encode({"candidate": candidate})


def decode_candidate(data: bytes, path: str) -> str:
    return _decode(data, path, "candidate", lambda raw: _text(raw, "candidate"))


def incarnation_of(data: bytes) -> int | None:
    """Whose life an edge, router or announcement record belongs to; None when it does not say."""
    try:
        return _decode(data, "", "any", _incarnation)
    except RecordError:
        return None


def _encode(raw: Mapping[str, Any]) -> bytes:
    return json.dumps({"v": VERSION, **raw}, allow_nan=False).encode("ascii")


def _decode(data: bytes, path: str, kind: str, build: Callable[[Mapping[str, Any]], _T]) -> _T:
    try:
        raw = _object(json.loads(data, parse_constant=_refuse_constant), "record")
        version = raw.get("v")
        if type(version) is not int or version != VERSION:
            raise ValueError(f"version {version!r} is not {VERSION}")
        return build(raw)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        what = f"{error} is missing" if type(error) is KeyError else str(error)
        raise RecordError(f"{kind} record at {path} cannot be read: {what}") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _hex(incarnation: int) -> str:
    return f"{incarnation:016x}"


def _incarnation(raw: Mapping[str, Any]) -> int:
    text = _text(raw, "incarnation")
    if not _INCARNATION.fullmatch(text):
        raise ValueError(f"incarnation {text!r} is not 16 hexadecimal digits")
    return int(text, 16)


def _profile(raw: Mapping[str, Any]) -> tuple[Profile, tuple[str, ...]]:
    profile = Profile(
        type_name=_text(raw, "type"),
        type_hash=_optional_text(raw, "type_hash"),
        keyed=_boolean(raw, "keyed"),
        qos=Qos.from_json(dict(_object(raw.get("qos", {}), "qos"))),
        writer=_optional_text(raw, "writer"),
    )
    return profile, tuple(_is_text(guid, "endpoint") for guid in _list(raw, "endpoints"))


def _advised(raw: Mapping[str, Any]) -> Advised:
    express, avoid = raw.get("express"), _optional_text(raw, "avoid")
    if (express is None) == (avoid is None):
        raise ValueError("of express and avoid just one must be set")
    return Advised(
        topic=_topic(raw["topic"]),
        express=None if express is None else _boolean(raw, "express"),
        avoid=avoid,
        since_s=_integer(raw, "since_s", 0),
        text=_text(raw, "text", ""),
        evidence=_object(raw.get("evidence", {}), "evidence"),
    )


def _load(raw: Mapping[str, Any]) -> RouterLoad:
    return RouterLoad(
        bytes_per_s=_number(raw.get("bytes_per_s", 0.0), "bytes_per_s"),
        cpu=_number(raw.get("cpu", 0.0), "cpu"),
        connections=_integer(raw, "connections", 0),
        topics=tuple(_topic_load(entry) for entry in raw.get("topics", [])),
    )


def _topic_load(entry: Any) -> tuple[str, float]:
    if not isinstance(entry, list) or len(entry) != 2:
        raise TypeError("load topics are not pairs of a name and a rate")
    return _topic(entry[0]), _number(entry[1], "load rate")


def _object(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{what} is not an object")
    return value


def _list(raw: Mapping[str, Any], key: str) -> list[Any]:
    value = raw[key]
    if not isinstance(value, list):
        raise TypeError(f"{key} is not a list")
    return value


def _topic(value: Any) -> str:
    """The name of a topic, which may be any (see `encode_topic`): it is compared and hashed."""
    if not isinstance(value, str):
        raise TypeError("topic is not text")
    return value


def _is_text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} is not text")
    if not is_encodable(value):
        raise ValueError(f"{what} {value!r} is not in Unicode")
    return value


def _text(raw: Mapping[str, Any], key: str, default: str | None = None) -> str:
    return _is_text(raw[key] if default is None else raw.get(key, default), key)


def _optional_text(raw: Mapping[str, Any], key: str) -> str | None:
    value = raw.get(key)
    return None if value is None else _is_text(value, key)


def _integer(raw: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = raw[key] if default is None else raw.get(key, default)
    if type(value) is not int:
        raise TypeError(f"{key} is not an integer")
    if not is_int64(value):
        raise ValueError(f"{key} is not an integer of 64 bits")
    return value


def _boolean(raw: Mapping[str, Any], key: str, default: bool | None = None) -> bool:
    value = raw[key] if default is None else raw.get(key, default)
    if not isinstance(value, bool):
        raise TypeError(f"{key} is not true or false")
    return value


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{what} is not a finite number")
    return number
