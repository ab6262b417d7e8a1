"""The contract of trace files: every column with its type, unit and meaning, and what a traced
batch is. Pure. Filled by the edge, laid out by traces.py, read by gateway/analysis; docs/traces.md
has the same table.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import NamedTuple

SCHEMA_VERSION = 1
"""Raised when columns are added. Columns never change their type or meaning and never go, so a
reader takes the columns it knows from files of any version; those a file lacks are null."""


class ColumnType(StrEnum):
    TEXT = "text"
    INTEGER = "int64"
    FRACTION = "float64"
    FLAG = "bool"


class TracePath(StrEnum):
    """Which way one copy of a sample took."""

    ROUTED = "routed"
    """By the topic's primary router."""
    EXPRESS = "express"
    """From edge to edge."""
    STANDBY = "standby"
    """By any other router."""


class Selection(StrEnum):
    """Why a row exists. Rates and percentiles are made from `sampled` rows only: the others were
    chosen because they were late."""

    SAMPLED = "sampled"
    DEADLINE_MISS = "deadline_miss"


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: ColumnType
    unit: str
    meaning: str
    is_nullable: bool = False
    since: int = 1
    """The schema version that brought it."""


_TEXT, _INTEGER, _FRACTION, _FLAG = ColumnType

COLUMNS: tuple[Column, ...] = (
    Column("schema_version", _INTEGER, "", "version of this contract the row was written by"),
    Column("fabric", _TEXT, "", "fabric of the edges"),
    Column("topic", _TEXT, "", "DDS topic"),
    Column("origin_lan", _TEXT, "", "LAN of the publisher"),
    Column("origin_edge", _TEXT, "", "edge that took the sample from DDS"),
    Column("origin_incarnation", _INTEGER, "", "life of that edge (64 bits, signed here)"),
    Column("stream", _INTEGER, "", "number of the stream within that life"),
    Column("number", _INTEGER, "", "number of the sample within the stream, from 1"),
    Column("destination_lan", _TEXT, "", "LAN of the subscriber"),
    Column("destination_edge", _TEXT, "", "edge that wrote the sample into DDS and this row"),
    Column("path", _TEXT, "", "way of this copy: routed, express or standby"),
    Column("router", _TEXT, "", "router it passed; null on the express path", True),
    Column("is_winner", _FLAG, "", "whether this copy arrived first; later ones were dropped"),
    Column("copies", _INTEGER, "copies", "how many paths the origin sent this sample on"),
    Column("is_reliable", _FLAG, "", "whether the stream is resent until acknowledged"),
    Column("selection", _TEXT, "", "sampled, or deadline_miss when traced only for being late"),
    Column("share", _FRACTION, "1", "share of the topic's batches that were sampled, 0…1"),
    Column("batch_samples", _INTEGER, "samples", "samples in the batch it travelled in"),
    Column("size_bytes", _INTEGER, "B", "payload"),
    Column("deadline_ns", _INTEGER, "ns", "deadline the publisher offers; null: none", True),
    Column("source_ns", _INTEGER, "ns", "DDS source timestamp; the publisher's clock"),
    Column("ingress_ns", _INTEGER, "ns", "taken from DDS; the origin edge's clock", True),
    Column("sent_ns", _INTEGER, "ns", "given to the link; the origin edge's clock", True),
    Column("router_in_ns", _INTEGER, "ns", "arrived at the router; the router's clock", True),
    Column("router_out_ns", _INTEGER, "ns", "left the router; the router's clock", True),
    Column("egress_ns", _INTEGER, "ns", "arrived; the destination edge's clock"),
    Column("written_ns", _INTEGER, "ns", "written into DDS; null for later copies", True),
    Column("clock_offset_ns", _INTEGER, "ns", "origin's clock minus destination's", True),
    Column("clock_error_ns", _INTEGER, "ns", "bound on the error of that offset", True),
    Column("router_clock_offset_ns", _INTEGER, "ns", "router's clock minus destination's", True),
    Column("router_clock_error_ns", _INTEGER, "ns", "bound on the error of that offset", True),
    Column(
        "lost_before",
        _INTEGER,
        "samples",
        "samples of the stream the destination has given up so far; null: not counted",
        True,
    ),
)
"""All times are nanoseconds since 1970 by the clock named; offsets translate between them."""


class TracedStream(NamedTuple):
    """What stays the same for all batches of a stream at one destination: make it once."""

    fabric: str
    topic: str
    origin_lan: str
    origin_edge: str
    origin_incarnation: int
    stream: int
    destination_lan: str
    destination_edge: str
    is_reliable: bool
    deadline_ns: int
    """As in the QoS: INFINITE_NS is none."""


class TracedBatch(NamedTuple):
    """Samples first … first+count-1 of a stream that arrived together by one path: one row each.
    The columns are arrays in the machine's byte order and must not change any more."""

    stream: TracedStream
    first: int
    samples: int
    source_ns: array[int]
    """`samples` values of type q."""
    sizes: array[int] | None
    """`samples` values of type I; None: every sample has `uniform_size` bytes."""
    uniform_size: int
    batch_samples: int
    path: str
    router: str | None
    is_winner: bool
    selection: str
    share: float
    egress_ns: int
    written_ns: int | None = None
    ingress_ns: int | None = None
    sent_ns: int | None = None
    router_in_ns: int | None = None
    router_out_ns: int | None = None
    clock_offset_ns: int | None = None
    clock_error_ns: int | None = None
    router_clock_offset_ns: int | None = None
    router_clock_error_ns: int | None = None
    copies: int = 1
    lost_before: int | None = None


def share_of(topic: str, shares: Mapping[str, float], otherwise: float) -> float:
    """The share of a topic's batches that are traced: what the first matching pattern says."""
    return next((s for pattern, s in shares.items() if fnmatchcase(topic, pattern)), otherwise)


_GOLDEN = 0x9E37_79B9_7F4A_7C15
_MIX = 0xBF58_476D_1CE4_E5B9
_MASK = (1 << 64) - 1


def is_sampled(incarnation: int, stream: int, first: int, share: float) -> bool:
    """Whether the batch that begins with this number is traced. Decided by its numbers alone, so a
    batch that is sent again or twice is decided alike; mixed (as splitmix64 does), so that no
    rhythm of the publisher can hide from it."""
    mixed = ((first + incarnation + (stream << 32)) * _GOLDEN) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * _MIX) & _MASK
    return mixed ^ (mixed >> 31) < share * (_MASK + 1)
