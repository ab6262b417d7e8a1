"""Who matches a reader or writer of this edge now, and policies of a writer that change while it
lives. Called by ingress and egress.
"""

from __future__ import annotations

import ctypes as ct

from cyclonedds.internal import load_cyclonedds
from cyclonedds.qos import _CQos

from edge_broker.dds import native, qos
from edge_broker.dds.domain import Port
from gateway.model import Qos

_MOST = 4096


class _LivelinessChanged(ct.Structure):
    _fields_ = (
        ("alive_count", ct.c_uint32),
        ("not_alive_count", ct.c_uint32),
        ("alive_count_change", ct.c_int32),
        ("not_alive_count_change", ct.c_int32),
        ("last_publication_handle", ct.c_uint64),
    )


_get_liveliness_changed_status = load_cyclonedds().dds_get_liveliness_changed_status
_get_liveliness_changed_status.restype = ct.c_int32
_get_liveliness_changed_status.argtypes = [ct.c_int32, ct.POINTER(_LivelinessChanged)]

_set_qos = load_cyclonedds().dds_set_qos
_set_qos.restype = ct.c_int32
_set_qos.argtypes = [ct.c_int32, ct.c_void_p]
_delete_qos = load_cyclonedds().dds_delete_qos
_delete_qos.restype = None
_delete_qos.argtypes = [ct.c_void_p]
_get_matched_publications = load_cyclonedds().dds_get_matched_publications
_get_matched_publications.restype = ct.c_int32
_get_matched_publications.argtypes = [ct.c_int32, ct.POINTER(ct.c_uint64), ct.c_size_t]


def matched_writers(reader: int) -> list[int]:
    """Publication handles. A writer that left is among them until the reader has what its leaving
    means: disposes, or instances without writers."""
    found = (ct.c_uint64 * _MOST)()
    count = int(_get_matched_publications(reader, found, _MOST))
    return list(found[: min(max(count, 0), _MOST)])


def has_live_writer(reader: int) -> bool:
    """Whether any writer that matches the reader keeps its promise to say that it lives."""
    status = _LivelinessChanged()
    code = int(_get_liveliness_changed_status(reader, ct.byref(status)))
    return code == native.RETCODE_OK and status.alive_count > 0


def change_writer(writer: Port, offered: Qos) -> bool:
    """Has a writer offer this from now on; only policies DDS can change may differ from before."""
    codes = []
    for entity, policies in (
        (writer.ref, qos.changeable_writer(offered)),
        (writer.group, qos.changeable_group(offered)),
    ):
        changed = int(_CQos.qos_to_cqos(policies))
        codes.append(int(_set_qos(entity, changed)))
        _delete_qos(changed)
    return all(code == native.RETCODE_OK for code in codes)
