"""The raw calls of Cyclone DDS this house relies on and the Python binding does not offer as
such: write batching, waitsets, entities by handle, single samples as bytes. Used inside
`edge_broker.dds` only; private API of the binding, pinned and contract-tested.
"""

from __future__ import annotations

import ctypes as ct
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, cast

from cyclonedds import _clayer
from cyclonedds.internal import load_cyclonedds

from gateway.errors import DdsError

RETCODE_OK = 0
RETCODE_TIMEOUT = -10
"""A write would have had to wait: the writer's history is full of unacknowledged samples."""

RETCODE_BAD_PARAMETER = -3

STATUS_DATA_AVAILABLE = 1 << 8
INSTANCE_ALIVE = 16
INSTANCE_DISPOSED = 32
INSTANCE_NO_WRITERS = 64


class SampleInfo(NamedTuple):
    """What Cyclone DDS tells of a taken sample."""

    sample_state: int
    view_state: int
    instance_state: int
    valid_data: int
    source_timestamp: int
    instance_handle: int
    publication_handle: int
    disposed_generation_count: int
    no_writers_generation_count: int
    sample_rank: int
    generation_rank: int
    absolute_generation_rank: int


write_ts = _clayer.ddspy_write_ts
dispose_ts = _clayer.ddspy_dispose_ts
writedispose_ts = _clayer.ddspy_writedispose_ts
unregister_ts = _clayer.ddspy_unregister_instance_ts
"""All four: (writer, data, source time ns) -> return code; never block longer than the writer's
max_blocking_time, and hold the interpreter lock meanwhile: keep that time near zero."""

key_of = _clayer.ddspy_calc_key
"""(topic, sample) -> the serialised key, without encapsulation header."""

_topic_create = _clayer.ddspy_topic_create
type_object = _clayer.ddspy_get_typeobj
"""(participant, type identifier bytes, timeout ns) -> TypeObject bytes or a negative code; asks
the network when the type is not known locally and releases the interpreter lock meanwhile."""

_library = load_cyclonedds()


def function(name: str, result: object, *arguments: object) -> ct._NamedFuncPointer:
    """A call of Cyclone DDS; releases the interpreter lock."""
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


_set_batch = function("dds_write_set_batch", None, ct.c_bool)
flush = function("dds_write_flush", ct.c_int32, ct.c_int32)
"""(writer) -> return code: sends what write batching has collected."""
assert_liveliness = function("dds_assert_liveliness", ct.c_int32, ct.c_int32)
delete = function("dds_delete", ct.c_int32, ct.c_int32)
wait_for_acks = function("dds_wait_for_acks", ct.c_int32, ct.c_int32, ct.c_int64)
"""(writer, timeout ns) -> return code; releases the interpreter lock."""
_set_status_mask = function("dds_set_status_mask", ct.c_int32, ct.c_int32, ct.c_uint32)
_publication_matched = function(
    "dds_get_publication_matched_status", ct.c_int32, ct.c_int32, ct.POINTER(_PublicationMatched)
)
_waitset_attach = function("dds_waitset_attach", ct.c_int32, ct.c_int32, ct.c_int32, ct.c_ssize_t)
_waitset_detach = function("dds_waitset_detach", ct.c_int32, ct.c_int32, ct.c_int32)


_create_publisher = function(
    "dds_create_publisher", ct.c_int32, ct.c_int32, ct.c_void_p, ct.c_void_p
)
_create_subscriber = function(
    "dds_create_subscriber", ct.c_int32, ct.c_int32, ct.c_void_p, ct.c_void_p
)
_create_writer = function(
    "dds_create_writer", ct.c_int32, ct.c_int32, ct.c_int32, ct.c_void_p, ct.c_void_p
)
_create_reader = function(
    "dds_create_reader", ct.c_int32, ct.c_int32, ct.c_int32, ct.c_void_p, ct.c_void_p
)
_delete_qos = function("dds_delete_qos", None, ct.c_void_p)


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


_entity_pin = function(
    "dds_entity_pin", ct.c_int32, ct.c_int32, ct.POINTER(ct.POINTER(ct.c_size_t))
)
_entity_unpin = function("dds_entity_unpin", None, ct.POINTER(ct.c_size_t))
_get_name = function("dds_get_name", ct.c_int32, ct.c_int32, ct.c_char_p, ct.c_size_t)

_REFUSED_IN_NAMES = frozenset("*?[]\"'#$")
_MOST_NAME_BYTES = 65_536
_TOPIC_WORDS = 256
"""A topic's structure is searched so far for the pointer to its name."""


def create_topic(participant: int, name: str, support: object, qos: int | None = None) -> int:
    """A topic of any name; `qos` is taken over and freed. Cyclone DDS lets applications create
    only topics with printable ASCII names, but others may be in the LAN: those are made under a
    stand-in name of equal length, which is overwritten before any endpoint announces it."""
    try:
        return _create_topic(participant, name, support, qos)
    finally:
        if qos is not None:
            _delete_qos(qos)


def _create_topic(participant: int, name: str, support: object, qos: int | None) -> int:
    if not name or "\0" in name or len(name.encode()) > _MOST_NAME_BYTES:
        raise DdsError(f"topic name {name[:40]!r} is empty, too long or has a NUL")
    is_usual = name.isascii() and not _REFUSED_IN_NAMES & set(name)
    if is_usual and name.isprintable() and " " not in name:
        return _made_topic(_topic_create(participant, name, support, qos, None), name)
    stand_in = _stand_in(name.encode())
    topic = _made_topic(_topic_create(participant, stand_in.decode(), support, qos, None), name)
    try:
        _rename(topic, stand_in, name.encode())
    except DdsError:
        delete(topic)
        raise
    return topic


def _made_topic(code: int, name: str) -> int:
    if code < 0:
        raise DdsError(f"DDS refuses topic {name!r} (code {code})")
    return int(code)


def _stand_in(name: bytes) -> bytes:
    """A name Cyclone accepts, as long as the wanted one and its own for each."""
    digest = hashlib.sha256(name).hexdigest().encode()
    return (digest * (len(name) // len(digest) + 1))[: len(name)]


def _rename(topic: int, old: bytes, new: bytes) -> None:
    """Overwrites the name in the topic's own structure: found there by what it points to, and
    checked through the public call afterwards."""
    with pinned(topic) as entity:
        if entity is None:
            raise DdsError("a topic vanished while it was made")
        for place in range(_TOPIC_WORDS):
            if bytes_at(entity[place], len(old) + 1) == old + b"\0":
                ct.memmove(entity[place], new, len(new))
                break
    found = ct.create_string_buffer(len(new) + 1)
    _get_name(topic, found, len(new) + 1)
    if found.value != new:
        raise DdsError(f"this version of Cyclone DDS cannot make a topic called {new.decode()!r}")


@contextmanager
def pinned(entity: int) -> Iterator[ct._Pointer[ct.c_size_t] | None]:
    """An entity's own structure, word by word, which stays while this lasts; None: it is gone."""
    found = ct.POINTER(ct.c_size_t)()
    if _entity_pin(entity, ct.byref(found)) < 0:
        yield None
        return
    try:
        yield found
    finally:
        _entity_unpin(found)


def bytes_at(address: int, count: int) -> bytes:
    """Memory of this process at an address that may be none; empty when it is none."""
    if address < 4096:
        return b""
    found = ct.create_string_buffer(count)
    local = _IoVector(ct.addressof(found), count)
    remote = _IoVector(address, count)
    copied = _process_vm_readv(os.getpid(), ct.byref(local), 1, ct.byref(remote), 1, 0)
    return found.raw if copied == count else b""


class _IoVector(ct.Structure):
    _fields_ = (("base", ct.c_void_p), ("length", ct.c_size_t))


_process_vm_readv = ct.CDLL(None).process_vm_readv
_process_vm_readv.restype = ct.c_ssize_t
_process_vm_readv.argtypes = [
    ct.c_int,
    ct.POINTER(_IoVector),
    ct.c_ulong,
    ct.POINTER(_IoVector),
    ct.c_ulong,
    ct.c_ulong,
]


def key_sample(topic: int, sample: bytes) -> bytes:
    """The key-only sample that disposes or unregisters the instance of a whole one."""
    key: bytes = key_of(topic, sample) or b""  # None where the type has no key
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
