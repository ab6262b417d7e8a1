"""What bulk.c does, where it was not compiled: the same two functions on top of the calls the
binding has for one sample. Called by samples.py only.
"""

from __future__ import annotations

import ctypes as ct
from array import array
from itertools import repeat
from operator import le, length_hint

from cyclonedds import _clayer, internal

from edge_broker.dds import native
from gateway.tunnel.columns import divide, pack


def _fields_only(_cls: type, *fields: int) -> tuple[int, ...]:
    """Stands in for making an object of the binding for every sample, which costs more than all
    the rest of a take."""
    return tuple.__new__(native.SampleInfo, fields)


internal.SampleInfo.__new__ = _fields_only  # type: ignore[method-assign,assignment]

_STATE, _VALID, _TIMESTAMP, _INSTANCE, _WRITER, _DISPOSED, _NO_WRITERS = range(2, 9)
"""Places in SampleInfo."""
_ALIVE = 16
_ENCODINGS = frozenset((*range(4), *range(6, 12)))
"""CDR in all its versions: the second byte of a sample."""

_WRITES = (native.write_ts, native.dispose_ts, native.writedispose_ts, native.unregister_ts)
"""By sample kind as the wire numbers them."""


_MOST_READY = 1024
_waitset_wait = native.function(
    "dds_waitset_wait", ct.c_int32, ct.c_int32, ct.POINTER(ct.c_ssize_t), ct.c_size_t, ct.c_int64
)
_take_status = native.function(
    "dds_take_status", ct.c_int32, ct.c_int32, ct.POINTER(ct.c_uint32), ct.c_uint32
)


def wait(waitset: int, timeout_ns: int) -> list[int]:
    found = (ct.c_ssize_t * _MOST_READY)()
    count = int(_waitset_wait(waitset, found, _MOST_READY, timeout_ns))
    ready = found[: min(max(count, 0), _MOST_READY)]
    status = ct.c_uint32()
    for each in ready:
        _take_status(each, ct.byref(status), native.STATUS_DATA_AVAILABLE)
    return ready


def take(
    reader: int, most: int, mask: int
) -> (
    tuple[int, bytes, bytes, int, bytes, bytes, bytes | int]
    | list[tuple[bytes, tuple[int, ...]]]
    | None
):
    entries: list[tuple[bytes, tuple[int, ...]]] | int = _clayer.ddspy_take(reader, mask, most)
    if isinstance(entries, int) or not entries:
        return None
    samples, infos = zip(*entries, strict=True)
    columns = list(zip(*infos, strict=True))
    if not _is_plain(columns):
        return entries
    order = _order(columns)
    if order is not None:
        samples = tuple(samples[at] for at in order)
        columns = [tuple(column[at] for at in order) for column in columns]
    packed = pack(columns[_TIMESTAMP], samples)
    writers = columns[_WRITER]
    is_of_one = writers.count(writers[0]) == len(writers)
    return (
        packed.count,
        packed.timestamps,
        packed.sizes,
        len(samples[0]),
        bytes(packed.payload),
        array("Q", columns[_INSTANCE]).tobytes(),
        writers[0] if is_of_one else array("Q", writers).tobytes(),
    )


def _is_plain(columns: list[tuple[int, ...]]) -> bool:
    states = columns[_STATE]
    return (
        states.count(_ALIVE) == len(states)
        and all(columns[_VALID])
        and not any(columns[_DISPOSED])
        and not any(columns[_NO_WRITERS])
    )


def _order(columns: list[tuple[int, ...]]) -> list[int] | None:
    """DDS hands out instance by instance; one writer's own order is that of its clock. Samples of
    one instance keep their order even if it set that back. None: they are in order."""
    times, instances, writers = columns[_TIMESTAMP], columns[_INSTANCE], columns[_WRITER]
    if len(set(writers)) > 1 or all(map(le, times, times[1:])):
        return None
    latest: dict[int, int] = {}
    keys: list[int] = []
    for instance, time in zip(instances, times, strict=True):
        latest[instance] = key = max(time, latest.get(instance, time))
        keys.append(key)
    return sorted(range(len(keys)), key=keys.__getitem__)


def write(
    writer: int,
    payload: memoryview,
    sizes: array[int] | None,
    uniform_size: int,
    timestamps: array[int],
    kinds: bytes,
    start: int,
) -> tuple[int, int]:
    """Without kinds no bytecode runs between two samples. One in an encoding DDS does not know
    fails: no reader would take it, and everything behind it would wait."""
    samples = divide(payload, sizes, uniform_size, len(timestamps))[start:]
    are_encoded = [len(sample) > 3 and sample[1] in _ENCODINGS for sample in samples]
    if False in are_encoded:
        samples = samples[: are_encoded.index(False)]
    times = timestamps[start:]
    left = iter(samples)
    if kinds:
        run = (
            _WRITES[kind](writer, sample, time)
            for sample, kind, time in zip(left, kinds[start:], times, strict=False)
        )
        code = next(filter(None, run), native.RETCODE_OK)
    else:
        codes = map(native.write_ts, repeat(writer), left, times)
        code = next(filter(None, codes), native.RETCODE_OK)
    native.flush(writer)
    done = len(samples) - length_hint(left) - (code != native.RETCODE_OK)
    if code == native.RETCODE_OK and done < len(are_encoded):
        code = native.RETCODE_BAD_PARAMETER
    return start + done, code
