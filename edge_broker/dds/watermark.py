"""How many bytes a writer may have under way before its readers confirm them: Cyclone DDS has one
setting for all writers of a domain, so the mark of one writer is set where Cyclone keeps it. Called
by mirrors; how much each may have is decided elsewhere. Contract-tested.
"""

from __future__ import annotations

import ctypes as ct
import struct

from cyclonedds.internal import load_cyclonedds

from edge_broker.dds import native

LOW_BYTES = 1024
FIRST_BYTES = 30 * 1024
MOST_BYTES = 500 * 1024
"""Cyclone's defaults. A writer starts with FIRST_BYTES and gets more as long as nothing is lost."""

_SIGNATURE = struct.pack("=II", LOW_BYTES, FIRST_BYTES)
_ENTITY_WORDS = 160
"""A writer's entity is searched so far for the pointer to the writer of the protocol,"""
_NAME_BYTES = 64
"""whose GUID stands at its beginning."""
_MARKS_AFTER_NAME = 436
"""There its marks follow. Not found by searching: memory of another writer may lie behind it."""

_get_guid = load_cyclonedds().dds_get_guid
_get_guid.restype = ct.c_int32
_get_guid.argtypes = [ct.c_int32, ct.c_char_p]


def find(writer: int) -> ct.c_uint32 | None:
    """The mark of a writer made just now, to be read and set as long as the writer lives; None
    when its history is not bounded so, when the user's CYCLONEDDS_URI sets marks of its own, or
    when this version of Cyclone keeps it elsewhere."""
    guid = _protocol_guid(writer)
    with native.pinned(writer) as entity:
        if entity is None or guid is None:
            return None
        for place in range(_ENTITY_WORDS):
            address = entity[place]
            name_at = native.bytes_at(address, _NAME_BYTES).find(guid)
            at = address + name_at + _MARKS_AFTER_NAME
            if name_at >= 0 and native.bytes_at(at, len(_SIGNATURE)) == _SIGNATURE:
                return ct.c_uint32.from_address(at + 4)
    return None


def _protocol_guid(writer: int) -> bytes | None:
    """As the protocol's part of Cyclone keeps it: words in this machine's byte order."""
    guid = ct.create_string_buffer(16)
    if _get_guid(writer, guid) < 0:
        return None
    return struct.pack("=4I", *struct.unpack(">4I", guid.raw))
