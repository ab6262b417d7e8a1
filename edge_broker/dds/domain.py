"""The edge's place in its LAN: one DDS participant, the thread that waits for data, and the
creation of readers and writers on raw bytes. The only part of the edge that makes DDS entities;
called on the loop by discovery, ingress and mirrors. Decides nothing.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from xml.sax.saxutils import quoteattr

from cyclonedds.builtin import (
    BuiltinDataReader,
    BuiltinTopicDcpsParticipant,
    BuiltinTopicDcpsPublication,
    BuiltinTopicDcpsSubscription,
)
from cyclonedds.core import DDSException, GuardCondition, Policy, WaitSet
from cyclonedds.core import Qos as CycloneQos
from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.qos import _CQos

from edge_broker.dds import native, qos, samples, shortcuts, watermark
from edge_broker.dds.types import TopicType
from gateway.errors import DdsError
from gateway.model import Qos
from gateway.observe.logs import get_logger
from gateway.shared_loop import running_loop

_log = get_logger("edge.dds")

TAG_PREFIX = b"ddswan/"
"""User data of every ddswan participant starts so; their endpoints are nobody's application."""

TopicKey = tuple[str, str, str | None, str]
"""Topic name, type name, type hash, topic data."""

_CONFIGURATION = (
    '<CycloneDDS><Domain Id="any"><Internal>'
    f"<Watermarks><WhcLow>{watermark.LOW_BYTES}B</WhcLow>"
    f"<WhcHighInit>{watermark.FIRST_BYTES}B</WhcHighInit>"
    f"<WhcHigh>{watermark.MOST_BYTES}B</WhcHigh></Watermarks>"
    '<HeartbeatInterval min="1 ms">100 ms</HeartbeatInterval>'
    '<SocketReceiveBufferSize max="4 MiB"/>'
    "<WriterLingerDuration>0 s</WriterLingerDuration>"
    "</Internal></Domain></CycloneDDS>"
)
"""Cyclone's defaults but for these: a writer whose history is half full asks for confirmations
every millisecond, not every five, so that it does not become full where readers keep up; the edge,
which reads what many applications write, has room for four times as much (as far as the system
grants it); and to delete a writer does not block the edge until readers confirm, or for a second:
mirrors wait for that by other means."""

_WAIT_NS = 1_000_000_000
_AFTER_FAULT_S = 0.5
"""DDS tells of news once, so they are told again; what failed may fail again at once."""


@dataclass(slots=True)
class Topic:
    """A DDS topic and how many readers and writers need it."""

    ref: int
    users: int = 0


@dataclass(frozen=True, slots=True)
class Port:
    """An ingress reader or a mirror writer (`ref`) with its parent entity and its topic."""

    ref: int
    group: int
    topic: int
    topic_key: TopicKey


class LanDomain:
    """One DDS domain of the LAN, seen through one participant."""

    def __init__(self, domain: int, interface: str | None, tag: str) -> None:
        self._domain_id = domain
        self._interface = interface
        self._tag = TAG_PREFIX + tag.encode()
        self._topics: dict[TopicKey, Topic] = {}
        self._domain: Domain | None = None
        self._waiter: _Waiter | None = None

    def open(self, on_ready: Callable[[list[int]], None]) -> None:
        """Joins the domain. `on_ready` is called in a turn of the running loop with readers that
        have data; nothing more is reported until `wait_again`."""
        if self._interface is not None:
            _require_interface(self._interface)
        try:
            self._domain = Domain(self._domain_id, _configuration(self._interface))
            self.participant = DomainParticipant(
                self._domain_id, qos=CycloneQos(Policy.Userdata(data=self._tag))
            )
            native.enable_write_batching()
            self.participants = BuiltinDataReader(self.participant, BuiltinTopicDcpsParticipant)
            self.publications = BuiltinDataReader(self.participant, BuiltinTopicDcpsPublication)
            self.subscriptions = BuiltinDataReader(self.participant, BuiltinTopicDcpsSubscription)
            self._waiter = _Waiter(self.participant, on_ready)
        except DDSException as error:
            raise DdsError(
                f"cannot join DDS domain {self._domain_id}"
                + (f" on interface {self._interface}" if self._interface else "")
                + f": {error.msg or error}; is a network interface up?"
            ) from error
        readers = (self.participants, self.publications, self.subscriptions)
        self.built_in_readers = frozenset(reader._ref for reader in readers)
        for reader in self.built_in_readers:
            self._waiter.add(reader)
        self._waiter.start()

    def wait_again(self, after_s: float = 0.0) -> None:
        """Every reader reported so far was emptied (or is known not to be). `after_s`: not at once,
        so that more comes together."""
        if self._waiter is not None:
            self._waiter.resume(after_s)

    def close(self) -> None:
        """Leaves the domain; every entity is deleted, so that nobody waits for a lease."""
        if self._waiter is not None:
            self._waiter.stop()
            self._waiter = None
        if self._domain is not None:
            native.delete(self.participant._ref)
            native.delete(self._domain._ref)
            self._domain = None
        self._topics.clear()

    def create_reader(
        self, topic: str, topic_type: TopicType, offered: Qos, most_samples: int
    ) -> Port:
        """A reader that gets all that writers offering `offered` have to give."""
        assert self._waiter is not None
        port = self._create(
            topic,
            topic_type,
            native.create_subscriber,
            qos.ingress_group(offered),
            native.create_reader,
            qos.ingress_reader(offered, most_samples),
        )
        self._waiter.add(port.ref)
        return port

    def create_writer(self, topic: str, topic_type: TopicType, offered: Qos) -> Port:
        """A writer that looks to the LAN like the remote one it stands for."""
        return self._create(
            topic,
            topic_type,
            native.create_publisher,
            qos.mirror_group(offered),
            native.create_writer,
            qos.mirror_writer(offered),
            offered.topic_data,
        )

    def ignore_reader(self, reader: Port) -> None:
        """Its data is no news until `heed_reader`, which tells what came meanwhile."""
        if self._waiter is not None:
            self._waiter.remove(reader.ref)

    def heed_reader(self, reader: Port) -> None:
        if self._waiter is not None:
            self._waiter.add(reader.ref)

    def delete_reader(self, reader: Port) -> None:
        if self._waiter is not None:
            self._waiter.remove(reader.ref)
        self._delete(reader)

    def delete_writer(self, writer: Port) -> None:
        self._delete(writer)

    def _create(
        self,
        topic: str,
        topic_type: TopicType,
        create_group: Callable[[int, int, str], int],
        group_qos: CycloneQos,
        create_endpoint: Callable[[int, int, int, str], int],
        endpoint_qos: CycloneQos,
        topic_data: str = "",
    ) -> Port:
        key = (topic, topic_type.name, topic_type.hash, topic_data)
        known = self._topics.get(key)
        if known is None:
            ref = self._create_topic(topic, topic_type, topic_data)
            known = self._topics[key] = Topic(ref)
        known.users += 1
        group = 0
        try:
            group = create_group(self.participant._ref, _native(group_qos), f"topic {topic!r}")
            ref = create_endpoint(group, known.ref, _native(endpoint_qos), f"topic {topic!r}")
        except DdsError:
            if group:
                native.delete(group)
            self._release(key)
            raise
        return Port(ref, group, known.ref, key)

    def _create_topic(self, topic: str, topic_type: TopicType, topic_data: str) -> int:
        create = native.create_topic
        if topic_data:
            try:
                policy = CycloneQos(Policy.Topicdata(data=bytes.fromhex(topic_data)))
                return create(self.participant._ref, topic, topic_type.support, _native(policy))
            except DdsError:
                # DDS knows one topic data for each topic of a participant: the first one stays.
                _log.info("topic data is not carried, the topic has another", topic=topic)
        return create(self.participant._ref, topic, topic_type.support)

    def _delete(self, port: Port) -> None:
        native.delete(port.group)
        self._release(port.topic_key)

    def _release(self, key: TopicKey) -> None:
        topic = self._topics.get(key)
        if topic is None:
            return
        topic.users -= 1
        if topic.users == 0:
            native.delete(topic.ref)
            del self._topics[key]


def _native(value: CycloneQos) -> int:
    """A C QoS object; the creating call takes it over and frees it."""
    return int(_CQos.qos_to_cqos(value))


def _configuration(interface: str | None) -> str:
    """What mirrors need, then what the user's CYCLONEDDS_URI says, then our interface: later
    entries win."""
    parts = [_CONFIGURATION]
    if uri := os.environ.get("CYCLONEDDS_URI"):
        parts.append(uri)
    if interface is not None:
        attribute = "address" if _is_ip_address(interface) else "name"
        parts.append(
            '<CycloneDDS><Domain Id="any"><General><Interfaces><NetworkInterface '
            f"{attribute}={quoteattr(interface)}/></Interfaces></General></Domain></CycloneDDS>"
        )
    return ",".join(parts)


def _is_ip_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _require_interface(interface: str) -> None:
    present = [name for _, name in socket.if_nameindex()]
    if interface not in present and not _is_ip_address(interface):
        raise DdsError(
            f"network interface {interface!r} does not exist; present: {', '.join(present)}"
        )


class _Waiter:
    """The one thread that waits inside DDS. It takes a turn of the loop to report, then rests until
    told to go on, so that a busy edge is not interrupted for every sample that arrives."""

    def __init__(
        self, participant: DomainParticipant, on_ready: Callable[[list[int]], None]
    ) -> None:
        self._waitset = WaitSet(participant)
        self._guard = GuardCondition(participant)
        self._on_ready = on_ready
        self._loop = running_loop()
        # A lock, because a semaphore is a page of Python on the way of every sample.
        self._gate = threading.Lock()
        self._gate.acquire()
        self._is_resting = False
        self._after_s = 0.0
        self._is_stopping = False
        self._has_failed = False
        """Whoever was told of news did not come to its end."""
        self._thread = threading.Thread(target=self._run, name="dds-wait", daemon=True)
        native.watch_trigger(self._waitset._ref, self._guard._ref)
        shortcuts.wake_by(self._guard._ref)

    def start(self) -> None:
        self._thread.start()

    def add(self, reader: int) -> None:
        code = native.watch_data(self._waitset._ref, reader)
        if code < 0:
            raise DdsError(f"DDS cannot wait for a reader (code {code})")

    def remove(self, reader: int) -> None:
        native.unwatch(self._waitset._ref, reader)

    def resume(self, after_s: float) -> None:
        if self._is_resting:
            self._is_resting = False
            self._after_s = after_s
            self._gate.release()

    def stop(self) -> None:
        self._is_stopping = True
        self._guard.set(True)
        if self._gate.locked():
            self._gate.release()
        with self._loop.turns_left_to_others():
            self._thread.join(timeout=5)

    def _run(self) -> None:
        waitset = self._waitset._ref
        while not self._is_stopping:
            ready = samples.wait(waitset, _WAIT_NS)
            if not ready:
                # What took the shortcut is accounted for when a turn begins.
                self._loop.take_turn(_nothing)
            else:
                self._loop.take_turn(self._report, ready)
                # The loop has told why. Whatever it was, the edge must not become deaf.
                while self._has_failed and not self._is_stopping:
                    time.sleep(_AFTER_FAULT_S)
                    self._gate.acquire(blocking=False)
                    self._loop.take_turn(self._report, ready)
                self._gate.acquire()
                if self._after_s:
                    time.sleep(self._after_s)

    def _report(self, ready: list[int]) -> None:
        self._is_resting = True
        if self._is_stopping:
            return
        self._has_failed = True
        self._on_ready(ready)
        self._has_failed = False


def _nothing() -> None:
    pass
