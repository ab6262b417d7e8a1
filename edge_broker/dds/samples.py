"""Samples in and out of DDS without deserialising them, many at once. Called by ingress sources and
by mirrors; the loops themselves are compiled (bulk.c) or, where there was no compiler, in Python.
"""

from __future__ import annotations

import ctypes as ct
import sys
from array import array
from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import NamedTuple

from cyclonedds import _clayer
from cyclonedds.internal import load_cyclonedds

from edge_broker.dds.native import INSTANCE_ALIVE, RETCODE_OK, RETCODE_TIMEOUT, SampleInfo
from gateway.tunnel.columns import Packed
from gateway.tunnel.frames import Batch

try:
    from edge_broker.dds import bulk
except ImportError:  # installed without a compiler: slower
    IS_COMPILED = False
else:
    IS_COMPILED = True

_ANY_STATE = 0x7F

_CALLS = (
    "dds_take_with_collector",
    "ddsi_serdata_size",
    "ddsi_serdata_to_ser_ref",
    "ddsi_serdata_to_ser_unref",
    "ddsi_serdata_untyped_to_sample",
    "dds_free",
    "dds_write_flush",
    "dds_waitset_wait",
    "dds_take_status",
    "dds_write_ts",
    "dds_dispose_ts",
    "dds_writedispose_ts",
    "dds_unregister_instance_ts",
    "dds_create_listener",
    "dds_lset_data_available_arg",
    "dds_set_listener",
    "dds_set_guardcondition",
)
"""What bulk.c calls, in its order."""

_LEAN_CALLS = (
    "dds_stream_normalize",
    "dds_stream_extract_key_from_data",
    "dds_stream_extract_key_from_key",
)
"""What lean.c calls, in its order."""

_LEAN_VERSION = "11.0.1"
"""Of Cyclone DDS and its binding, whose memory lean.c knows."""

IS_LEAN = (
    IS_COMPILED
    and version("cyclonedds") == _LEAN_VERSION
    and sys.byteorder == "little"
    and ct.sizeof(ct.c_void_p) == 8
)
"""Whether each sample is one piece of memory, made by lean.c; else the binding makes it."""


def _addresses(names: Iterable[str]) -> list[int]:
    library = load_cyclonedds()
    return [ct.cast(getattr(library, name), ct.c_void_p).value or 0 for name in names]


if IS_LEAN:
    _operations = ct.c_char.in_dll(ct.CDLL(_clayer.__file__), "ddspy_serdata_ops")
    bulk.lean(ct.addressof(_operations), *_addresses(_LEAN_CALLS))

if IS_COMPILED:
    bulk.bind(_addresses(_CALLS))
    _wait, _take, _write = bulk.wait, bulk.take, bulk.write
else:
    from edge_broker.dds import bulk_in_python

    _wait, _take, _write = bulk_in_python.wait, bulk_in_python.take, bulk_in_python.write


Entry = tuple[bytes, SampleInfo]
"""One taken sample."""


_NEVER_DIED = (0, 0, 0, 0, 0)


class Plain(NamedTuple):
    """What was taken, in the order of writing, when all are writes to instances that live and never
    died."""

    packed: Packed
    instances: bytes
    writers: bytes | int

    def writer_handles(self) -> Iterable[int]:
        """Each writer once."""
        if isinstance(self.writers, int):
            return (self.writers,)
        return set(array("Q", self.writers))

    def instance_handles(self) -> array[int]:
        return array("Q", self.instances)

    def entries(self) -> list[Entry]:
        """Sample by sample."""
        packed = self.packed
        one = self.writers
        writers = [one] * packed.count if isinstance(one, int) else array("Q", one)
        return [
            (
                bytes(sample),
                SampleInfo(0, 0, INSTANCE_ALIVE, 1, time, instance, writer, *_NEVER_DIED),
            )
            for sample, time, instance, writer in zip(
                packed.samples(), packed.times(), self.instance_handles(), writers, strict=True
            )
        ]


def wait(waitset: int, timeout_ns: int) -> list[int]:
    """What was attached and has news; of readers, that there is data, it is taken note of. Blocks
    without the interpreter lock."""
    return _wait(waitset, timeout_ns)


def take(reader: int, most: int) -> Plain | list[Entry] | None:
    """Up to `most` samples of a reader, those of one instance as they came; None when there is none
    or the reader is gone."""
    taken = _take(reader, most, _ANY_STATE)
    if taken is None:
        return None
    if isinstance(taken, list):
        return [(sample, SampleInfo._make(info)) for sample, info in taken]
    count, times, sizes, first_size, payload, instances, writers = taken
    return Plain(Packed(count, times, sizes, first_size, b"", payload), instances, writers)


def write(writer: int, batch: Batch, start: int, on_rejected: Callable[[int], None]) -> int:
    """Writes the samples of a batch from `start` on, in order, and sends them off; returns the
    place of the first not dealt with. When there is one the writer is full: go on later from
    there. A sample DDS rejects is reported with its code and passed over."""
    count = batch.count
    while start < count:
        start, code = _write(
            writer,
            batch.payload,
            batch.sizes,
            batch.uniform_size,
            batch.timestamps,
            batch.kinds,
            start,
        )
        if code in (RETCODE_OK, RETCODE_TIMEOUT):
            break
        on_rejected(code)
        start += 1
    return start
