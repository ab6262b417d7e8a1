"""What the applications of the LAN have: endpoints read from the DDS built-in topics. Keeps the
present state and says when it changed; the reconciler rereads all of it. Endpoints of ddswan
participants, this one's included, are left out here, so that nobody further in can loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from cyclonedds.builtin import BuiltinDataReader
from cyclonedds.core import DDSException, Policy
from cyclonedds.idl._typesupport.DDS.XTypes import TypeIdentifier

from edge_broker.dds import native, qos, types
from edge_broker.dds.domain import TAG_PREFIX, LanDomain
from gateway.model import Direction, Endpoint
from gateway.observe.logs import get_logger
from gateway.plan.demand import ProfileKey, profile_of

_log = get_logger("edge.discovery")

_MOST_FAILURES_IN_A_ROW = 100
_MOST_DEPARTED_WRITERS = 65_536
_MOST_FORMER_PROFILES = 16

_KEYED_ENTITY_KINDS = frozenset((0x02, 0x07))
"""Low six bits of an RTPS entity id: writer with key, reader with key."""
_KIND_MASK = 0x3F


class Discovery:
    """The endpoints of one LAN."""

    def __init__(self, domain: LanDomain, on_change: Callable[[], None]) -> None:
        """`on_change` is called when anything has, whoever had it collected."""
        self._domain = domain
        self._on_change = on_change
        self._is_ours: dict[UUID, bool] = {}
        self._found: dict[UUID, tuple[UUID, Endpoint]] = {}
        self._writers: dict[int, tuple[str, ProfileKey]] = {}
        self._former: dict[int, set[ProfileKey]] = {}
        self.type_identifiers: dict[str, TypeIdentifier] = {}
        """How to ask for each announced type, by hash."""
        self.failures = 0
        """Discovery samples that could not be understood."""

    def endpoints(self) -> list[Endpoint]:
        """Applications' endpoints now. One whose participant is not known yet is not shown: it
        might be another gateway's."""
        return [
            endpoint
            for participant, endpoint in self._found.values()
            if self._is_ours.get(participant) is False
        ]

    def profile_of_writer(self, handle: int) -> ProfileKey | None:
        """The topic and profile of the writer a sample's publication handle stands for."""
        found = self._writers.get(handle)
        return None if found is None else found[1]

    def had_profile(self, handle: int, key: ProfileKey) -> bool:
        """Whether this writer was of that profile before it changed policies."""
        return key in self._former.get(handle, ())

    def collect(self) -> None:
        """Reads what the built-in topics have."""
        # Participants first: an endpoint is judged by the tag of its participant.
        changed = self._collect(self._domain.participants, self._take_participant)
        for reader, direction in (
            (self._domain.publications, Direction.PUB),
            (self._domain.subscriptions, Direction.SUB),
        ):
            changed |= self._collect(
                reader, lambda sample, direction=direction: self._take_endpoint(sample, direction)
            )
        if changed:
            self._on_change()

    def _collect(self, reader: BuiltinDataReader, take: Any) -> bool:
        changed = False
        failures = 0
        while failures < _MOST_FAILURES_IN_A_ROW:
            try:
                # One by one: where the binding cannot read one of several, all of them are gone.
                samples = reader.take(N=1)
            except DDSException as error:
                self._count_failure("discovery data cannot be read", error)
                break
            except Exception as error:  # the binding raises no narrower one
                self._count_failure("discovery data cannot be read", error)
                failures += 1
                continue
            if not samples:
                break
            try:
                take(samples[0])
                changed = True
            except (ValueError, TypeError, AttributeError, StopIteration) as error:
                self._count_failure("a discovered endpoint cannot be understood", error)
            failures = 0
        return changed

    def _count_failure(self, what: str, error: Exception) -> None:
        self.failures += 1
        if self.failures & (self.failures - 1) == 0:  # 1st, 2nd, 4th, 8th…: never a flood
            _log.warning(
                "a discovered entity cannot be understood, it is skipped; do applications use the "
                "types and policies you think?",
                what=what,
                reason=str(error),
                failures=self.failures,
            )

    def _take_participant(self, sample: Any) -> None:
        if sample.sample_info.instance_state != native.INSTANCE_ALIVE:
            self._is_ours.pop(sample.key, None)
            return
        tag = b""
        if Policy.Userdata in sample.qos:
            tag = bytes(sample.qos[Policy.Userdata].data)
        self._is_ours[sample.key] = tag.startswith(TAG_PREFIX)

    def _take_endpoint(self, sample: Any, direction: Direction) -> None:
        if sample.sample_info.instance_state != native.INSTANCE_ALIVE:
            self._found.pop(sample.key, None)
            return
        hash_ = types.type_hash(sample.type_id)
        if hash_ is not None:
            self.type_identifiers[hash_] = sample.type_id
        endpoint = Endpoint(
            guid=sample.key.hex,
            direction=direction,
            topic=sample.topic_name,
            type_name=sample.type_name,
            type_hash=hash_,
            keyed=(sample.key.bytes[15] & _KIND_MASK) in _KEYED_ENTITY_KINDS,
            qos=qos.discovered(sample.qos),
        )
        self._found[sample.key] = (sample.participant_key, endpoint)
        if direction is Direction.PUB:
            # A publication handle is the instance handle of the writer's discovery sample. It is
            # kept after the writer's departure: its last samples may still be in a reader.
            handle = sample.sample_info.instance_handle
            before = self._writers.pop(handle, None)
            key = (endpoint.topic, profile_of(endpoint).id)
            if before is not None and before[1] != key:
                former = self._former.setdefault(handle, set())
                if len(former) < _MOST_FORMER_PROFILES:
                    former.add(before[1])
                former.discard(key)
            self._writers[handle] = (endpoint.guid, key)
            if len(self._writers) > _MOST_DEPARTED_WRITERS:
                self._forget_oldest_departed()

    def _forget_oldest_departed(self) -> None:
        present = {endpoint.guid for _, endpoint in self._found.values()}
        for handle, (guid, _) in list(self._writers.items())[: _MOST_DEPARTED_WRITERS // 2]:
            if guid not in present:
                del self._writers[handle]
                self._former.pop(handle, None)
