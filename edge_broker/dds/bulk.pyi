# What bulk.c offers; bulk_in_python.py has the same.

from array import array
from collections.abc import Sequence

def bind(addresses: Sequence[int]) -> None: ...
def wait(waitset: int, timeout_ns: int) -> list[int]: ...
def take(
    reader: int, most: int, mask: int
) -> (
    tuple[int, bytes, bytes, int, bytes, bytes, bytes | int]
    | list[tuple[bytes, tuple[int, ...]]]
    | None
): ...
def write(
    writer: int,
    payload: memoryview,
    sizes: array[int] | None,
    uniform_size: int,
    timestamps: array[int],
    kinds: bytes,
    start: int,
) -> tuple[int, int]: ...
