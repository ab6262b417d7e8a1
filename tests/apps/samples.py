"""The types the sample applications publish, and how sample number N of each looks. Plain DDS:
nothing here knows ddswan.
"""

# mypy: disable-error-code="type-arg, valid-type, arg-type, no-untyped-call"
# (cyclonedds' type constructors are values, not types, to a checker.)
# No postponed annotations and no `X | None` here: cyclonedds builds types from their values.

import dataclasses
import enum
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

import cyclonedds.idl.annotations as annotate
from cyclonedds.idl import IdlEnum, IdlStruct, IdlUnion
from cyclonedds.idl.types import (
    array,
    bounded_str,
    case,
    default,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    sequence,
    uint8,
    uint16,
    uint32,
    uint64,
)


@dataclass
@annotate.final
class Plain(IdlStruct, typename="lab.Plain"):
    index: uint32
    data: sequence[uint8]


@dataclass
@annotate.final
class Hello(IdlStruct, typename="HelloWorld"):
    """The type of the Fast DDS application."""

    index: uint32
    message: str


@dataclass
@annotate.final
class Keyed(IdlStruct, typename="lab.Keyed"):
    """The key is not the first member: a key-only sample and a whole one differ from byte one."""

    index: uint32
    id: int32
    annotate.key("id")
    data: sequence[uint8]


@dataclass
@annotate.final
class Named(IdlStruct, typename="lab.Named"):
    name: str
    annotate.key("name")
    unit: int16
    annotate.key("unit")
    index: uint32


@dataclass
@annotate.final
class Numbers(IdlStruct, typename="lab.Numbers"):
    index: uint32
    flag: bool
    i8: int8
    u8: uint8
    i16: int16
    u16: uint16
    i32: int32
    u32: uint32
    i64: int64
    u64: uint64
    f32: float32
    f64: float64
    letter: str


@dataclass
@annotate.final
class Point(IdlStruct, typename="lab.Point"):
    x: float64
    y: float64


@dataclass
@annotate.final
class Nested(IdlStruct, typename="lab.Nested"):
    index: uint32
    origin: Point
    corners: array[Point, 4]
    path: sequence[Point]


@dataclass
@annotate.final
class Texts(IdlStruct, typename="lab.Texts"):
    index: uint32
    text: str
    short: bounded_str[16]
    words: sequence[str]
    bounded: sequence[int32, 5]
    grid: array[array[int16, 2], 3]


class Colour(IdlEnum, typename="lab.Colour", default="RED"):
    RED = enum.auto()
    GREEN = enum.auto()
    BLUE = enum.auto()


class Reading(IdlUnion, discriminator=Colour, typename="lab.Reading"):
    number: case[Colour.RED, int64]
    text: case[Colour.GREEN, str]
    point: default[Point]


@dataclass
@annotate.final
class Choice(IdlStruct, typename="lab.Choice"):
    index: uint32
    colour: Colour
    reading: Reading


@dataclass
@annotate.appendable
class Appendable(IdlStruct, typename="lab.Appendable"):
    index: uint32
    text: str
    values: sequence[float64]


@dataclass
@annotate.mutable
class Mutable(IdlStruct, typename="lab.Mutable"):
    index: uint32
    annotate.key("index")
    present: Optional[str]  # noqa: UP045
    absent: Optional[int64]  # noqa: UP045
    values: sequence[int32]


def _octets(index: int, size: int) -> bytes:
    """Different for every index and cheap for megabytes."""
    return (index.to_bytes(4, "little") * (size // 4 + 1))[:size]


def _point(x: int, y: int) -> Point:
    return Point(float(x), float(y))


def _colour(index: int) -> Colour:
    return list(Colour)[index % 3]


def _reading(index: int) -> Reading:
    if index % 3 == 0:
        return Reading(number=-index)
    if index % 3 == 1:
        return Reading(text=f"text {index}")
    return Reading(discriminator=Colour.BLUE, value=_point(index, -index))


MAKERS: dict[str, tuple[type[Any], Callable[[int, int, int], Any]]] = {
    "plain": (Plain, lambda i, size, key: Plain(i, _octets(i, size))),
    "hello": (Hello, lambda i, size, key: Hello(i, f"hello {i}")),
    "keyed": (Keyed, lambda i, size, key: Keyed(i, key, _octets(i, size))),
    "named": (Named, lambda i, size, key: Named(f"näme {key}", key, i)),
    "numbers": (
        Numbers,
        lambda i, size, key: Numbers(
            i, i % 2 == 0, -8, 200, -30000, 60000, -i, i, -(2**62), 2**63 + i, 0.5, i / 7, "é"
        ),
    ),
    "nested": (
        Nested,
        lambda i, size, key: Nested(
            i, _point(i, 0), [_point(i, n) for n in range(4)], [_point(n, i) for n in range(i % 5)]
        ),
    ),
    "texts": (
        Texts,
        lambda i, size, key: Texts(
            i,
            "ünïcode " * (i % 3),
            f"short {i}"[:15],
            ["", "a", "bc" * i],
            list(range(i % 6)),
            [[i, -i], [1, 2], [3, 4]],
        ),
    ),
    "choice": (Choice, lambda i, size, key: Choice(i, _colour(i), _reading(i))),
    "appendable": (Appendable, lambda i, size, key: Appendable(i, f"a{i}", [i / 3] * (i % 4))),
    "mutable": (
        Mutable,
        lambda i, size, key: Mutable(i, f"here {i}" if i % 2 else None, None, [i] * (i % 3)),
    ),
}
"""Name on the command line: the type, and sample `index` of `size` payload bytes and key `key`."""


def fingerprint(sample: Any) -> str:
    """Equal for equal values, short for long ones."""
    return hashlib.sha256(repr(_plain_value(sample)).encode()).hexdigest()[:16]


def _plain_value(value: Any) -> Any:
    if isinstance(value, IdlUnion):
        return [str(value.discriminator), _plain_value(value.value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [_plain_value(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, (bytes, bytearray)):
        return bytes(value) if len(value) > 64 else list(value)
    if isinstance(value, (list, tuple)):
        if len(value) > 64 and all(type(item) is int and 0 <= item < 256 for item in value):
            return bytes(value)
        return [_plain_value(item) for item in value]
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, enum.Enum):
        return value.name
    return value
