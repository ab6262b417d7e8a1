"""The raw calls of Cyclone DDS this house relies on and the Python binding does not offer as
such: sample bytes in and out without deserialising, write batching, waitsets. Used inside
`edge_broker.dds` only; private API of the binding, pinned and contract-tested.
"""

from __future__ import annotations

import ctypes as ct
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from cyclonedds import _clayer
from cyclonedds.internal import load_cyclonedds

from gateway.errors import DdsError

RETCODE_OK = 0
RETCODE_TIMEOUT = -10
"""A write would have had to wait: the writer's history is full of unacknowledged samples."""

STATUS_DATA_AVAILABLE = 1 << 8
INSTANCE_ALIVE = 16
INSTANCE_DISPOSED = 32
INSTANCE_NO_WRITERS = 64

_ANY_STATE = 0x7F


class SampleInfo(Protocol):
    """What Cyclone DDS tells of a taken sample, as far as this house reads it."""

    instance_state: int
    valid_data: bool
    source_timestamp: int
    instance_handle: int
    publication_handle: int
    disposed_generation_count: int
    no_writers_generation_count: int


Taken = Sequence[tuple[bytes, SampleInfo]]

write_ts = _clayer.ddspy_write_ts
dispose_ts = _clayer.ddspy_dispose_ts
writedispose_ts = _clayer.ddspy_writedispose_ts
unregister_ts = _clayer.ddspy_unregister_instance_ts
"""All four: (writer, data, source time ns) -> return code; never block longer than the writer's
max_blocking_time, and hold the interpreter lock meanwhile: keep that time near zero."""

key_of = _clayer.ddspy_calc_key
"""(topic, sample) -> the serialised key, without encapsulation header."""

topic_create = _clayer.ddspy_topic_create
type_object = _clayer.ddspy_get_typeobj
"""(participant, type identifier bytes, timeout ns) -> TypeObject bytes or a negative code; asks
the network when the type is not known locally and releases the interpreter lock meanwhile."""

_library = load_cyclonedds()


def _function(name: str, result: object, *arguments: object) -> ct._NamedFuncPointer:
    function = getattr(_library, name)
    function.restype = result
    function.argtypes = list(arguments)
    return cast("ct._NamedFuncPointer", function)


class _PublicationMatched(ct.Structure):
    _fields_ = (
        ("total_count", ct.c_uint32),
        ("total_count_change", ct.c_int32),
        ("current_count", ct.c_uint32),
        ("current_count_change", ct.c_int32),
        ("last_subscription_handle", ct.c_uint64),
    )


_set_batch = _function("dds_write_set_batch", None, ct.c_bool)
flush = _function("dds_write_flush", ct.c_int32, ct.c_int32)
"""(writer) -> return code: sends what write batching has collected."""
assert_liveliness = _function("dds_assert_liveliness", ct.c_int32, ct.c_int32)
delete = _function("dds_delete", ct.c_int32, ct.c_int32)
wait_for_acks = _function("dds_wait_for_acks", ct.c_int32, ct.c_int32, ct.c_int64)
"""(writer, timeout ns) -> return code; releases the interpreter lock."""
_take_status = _function(
    "dds_take_status", ct.c_int32, ct.c_int32, ct.POINTER(ct.c_uint32), ct.c_uint32
)
_set_status_mask = _function("dds_set_status_mask", ct.c_int32, ct.c_int32, ct.c_uint32)
_publication_matched = _function(
    "dds_get_publication_matched_status", ct.c_int32, ct.c_int32, ct.POINTER(_PublicationMatched)
)
_waitset_attach = _function("dds_waitset_attach", ct.c_int32, ct.c_int32, ct.c_int32, ct.c_ssize_t)
_waitset_detach = _function("dds_waitset_detach", ct.c_int32, ct.c_int32, ct.c_int32)
_waitset_wait = _function(
    "dds_waitset_wait",
    ct.c_int32,
    ct.c_int32,
    ct.POINTER(ct.c_ssize_t),
    ct.c_size_t,
    ct.c_int64,
)


_create_publisher = _function(
    "dds_create_publisher", ct.c_int32, ct.c_int32, ct.c_void_p, ct.c_void_p
)
_create_subscriber = _function(
    "dds_create_subscriber", ct.c_int32, ct.c_int32, ct.c_void_p, ct.c_void_p
)
_create_writer = _function(
    "dds_create_writer", ct.c_int32, ct.c_int32, ct.c_int32, ct.c_void_p, ct.c_void_p
)
_create_reader = _function(
    "dds_create_reader", ct.c_int32, ct.c_int32, ct.c_int32, ct.c_void_p, ct.c_void_p
)
_delete_qos = _function("dds_delete_qos", None, ct.c_void_p)


def create_publisher(participant: int, qos: int, what: str) -> int:
    return _created(_create_publisher(participant, qos, None), qos, "publisher", what)


def create_subscriber(participant: int, qos: int, what: str) -> int:
    return _created(_create_subscriber(participant, qos, None), qos, "subscriber", what)


def create_writer(publisher: int, topic: int, qos: int, what: str) -> int:
    return _created(_create_writer(publisher, topic, qos, None), qos, "writer", what)


def create_reader(subscriber: int, topic: int, qos: int, what: str) -> int:
    return _created(_create_reader(subscriber, topic, qos, None), qos, "reader", what)


def _created(handle: int, qos: int, kind: str, what: str) -> int:
    _delete_qos(qos)
    if handle < 0:
        raise DdsError(f"DDS refuses to create a {kind} for {what} (code {handle})")
    return handle


def take(reader: int, most: int) -> Taken:
    """Up to `most` samples of a reader, oldest first within an instance; empty when there is
    none or the reader is gone."""
    taken = _clayer.ddspy_take(reader, _ANY_STATE, most)
    return () if isinstance(taken, int) else taken


def key_sample(topic: int, sample: bytes) -> bytes:
    """The key-only sample that disposes or unregisters the instance of a whole one."""
    key: bytes = key_of(topic, sample)
    padding = -len(key) % 4
    # The encapsulation of the whole sample, in the byte order of this machine: little endian.
    return bytes((sample[0], sample[1] | 1, 0, padding)) + key + bytes(padding)


def enable_write_batching() -> None:
    """Applies to domains that exist and to writers created from now on."""
    _set_batch(True)


def matched_readers(writer: int) -> int:
    status = _PublicationMatched()
    code = _publication_matched(writer, ct.byref(status))
    return int(status.current_count) if code == RETCODE_OK else 0


def watch_data(waitset: int, reader: int) -> int:
    """Makes the waitset report the reader whenever data arrives. Returns a DDS code."""
    code = int(_set_status_mask(reader, STATUS_DATA_AVAILABLE))
    return code if code != RETCODE_OK else int(_waitset_attach(waitset, reader, reader))


def unwatch(waitset: int, entity: int) -> None:
    _waitset_detach(waitset, entity)


def watch_trigger(waitset: int, condition: int) -> int:
    return int(_waitset_attach(waitset, condition, condition))


class WaitBuffer:
    """Reused memory for the answers of `wait`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._found = (ct.c_ssize_t * most)()
        self._status = ct.c_uint32()

    def wait(self, waitset: int, timeout_ns: int) -> list[int]:
        """Readers with new data, their flags cleared; blocks without the interpreter lock."""
        count = int(_waitset_wait(waitset, self._found, self._most, timeout_ns))
        ready = self._found[: min(max(count, 0), self._most)]
        for reader in ready:
            _take_status(reader, ct.byref(self._status), STATUS_DATA_AVAILABLE)
        return ready


_WRITES = (write_ts, dispose_ts, writedispose_ts, unregister_ts)
"""By sample kind as the wire numbers them."""


def write_samples(
    writer: int,
    samples: Sequence[memoryview],
    timestamps: Sequence[int],
    kinds: bytes,
    on_rejected: Callable[[int], None],
) -> int:
    """Writes samples in order and sends them off; returns how many were dealt with. Fewer than
    all: the writer is full, go on later from there. A sample DDS rejects is reported with its
    code and passed over."""
    done = len(samples)
    if kinds:
        for index, sample in enumerate(samples):
            code = _WRITES[kinds[index]](writer, sample, timestamps[index])
            if code == RETCODE_TIMEOUT:
                done = index
                break
            if code < 0:
                on_rejected(code)
    else:
        write = write_ts
        for index, sample in enumerate(samples):
            code = write(writer, sample, timestamps[index])
            if code < 0:
                if code == RETCODE_TIMEOUT:
                    done = index
                    break
                on_rejected(code)
    flush(writer)
    return done
