"""Where everything lives in the ZooKeeper tree and how topic names become node names.

Pure. Used by the rest of gateway/coordination and by `status`; what the nodes contain is in
records.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gateway.errors import ConfigError, RecordError
from gateway.model import Direction

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_RESERVED = frozenset({".", "..", "zookeeper"})
"""Node names ZooKeeper refuses or keeps for itself."""
_EMPTY = "%"
"""Stands for the empty topic name; a lone percent sign encodes nothing else."""
_ESCAPED = re.compile(r"(?:[A-Za-z0-9._-]|%[0-9A-F]{2})+")
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ANNOUNCEMENT = re.compile(r"([A-Za-z0-9._-]{1,64})~([0-9a-f]{12})")


def encode_topic(topic: str) -> str:
    """A node name for any topic name; different topics have different node names."""
    raw = topic.encode("utf-8", "surrogatepass")
    name = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in raw)
    if name in _RESERVED:
        return f"%{ord(name[0]):02X}{name[1:]}"
    return name or _EMPTY


def decode_topic(name: str) -> str:
    """Inverse of `encode_topic`; raises RecordError for a name that it never makes."""
    if name == _EMPTY:
        return ""
    if _ESCAPED.fullmatch(name):
        raw = re.sub(rb"%(..)", lambda m: bytes([int(m[1], 16)]), name.encode("ascii"))
        try:
            topic = raw.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            topic = ""
        if encode_topic(topic) == name:
            return topic
    raise RecordError(f"topic node {name!r} is not a percent-encoded topic name")


def parse_announcement_name(name: str) -> tuple[str, str]:
    """(edge, digest) of a node under pub/ or sub/; raises RecordError for any other name."""
    match = _ANNOUNCEMENT.fullmatch(name)
    if match is None:
        raise RecordError(f"announcement node {name!r} is not named <edge>~<digest>")
    return match[1], match[2]


def _checked(kind: str, name: str) -> str:
    if not _ID.fullmatch(name) or name in _RESERVED:
        raise ConfigError(
            f"{kind} {name!r} is not a usable name; use 1 to 64 letters, digits, '.', '_' or '-'"
        )
    return name


@dataclass(frozen=True, slots=True)
class FabricPaths:
    """The paths of one fabric."""

    fabric: str

    def __post_init__(self) -> None:
        _checked("fabric", self.fabric)

    @property
    def root(self) -> str:
        return f"/ddswan/{self.fabric}"

    @property
    def leader(self) -> str:
        return f"{self.root}/leader"

    @property
    def routers(self) -> str:
        return f"{self.root}/routers"

    @property
    def edges(self) -> str:
        return f"{self.root}/edges"

    @property
    def topics(self) -> str:
        return f"{self.root}/topics"

    @property
    def types(self) -> str:
        return f"{self.root}/types"

    @property
    def advice(self) -> str:
        return f"{self.root}/advice"

    @property
    def skeleton(self) -> tuple[str, ...]:
        """The persistent nodes every fabric has."""
        return (self.leader, self.routers, self.edges, self.topics, self.types, self.advice)

    def router(self, router: str) -> str:
        return f"{self.routers}/{_checked('router id', router)}"

    def edge(self, edge: str) -> str:
        return f"{self.edges}/{_checked('edge id', edge)}"

    def topic(self, topic: str) -> str:
        return f"{self.topics}/{encode_topic(topic)}"

    def direction(self, topic: str, direction: Direction) -> str:
        return f"{self.topic(topic)}/{direction.value}"

    def announcement(self, topic: str, direction: Direction, edge: str, digest: str) -> str:
        return f"{self.direction(topic, direction)}/{_checked('edge id', edge)}~{digest}"

    def type(self, type_hash: str) -> str:
        return f"{self.types}/{_checked('type hash', type_hash)}"

    def parts(self, path: str) -> tuple[str, ...]:
        """The node names below the root of the fabric; empty for a path outside of it."""
        below = path.removeprefix(f"{self.root}/")
        return tuple(below.split("/")) if below != path else ()
