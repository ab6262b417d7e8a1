"""What the edge's tests share: one LAN made inside this process (two DDS domains under one
number, so that their entities meet over the loopback interface as those of two machines would),
sample types, and waiting for a condition.
"""

# mypy: disable-error-code="type-arg, valid-type, arg-type, no-untyped-call"
# (cyclonedds' type constructors are values, not types, to a checker.)
# No postponed annotations here: cyclonedds builds types from their values.

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import cyclonedds.idl.annotations as annotate
from cyclonedds.core import Policy
from cyclonedds.core import Qos as CycloneQos
from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import int32, sequence, uint8, uint32
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic

from edge_broker.dds import native, samples
from edge_broker.dds.matched import matched_writers
from gateway.tunnel.columns import pack
from gateway.tunnel.frames import Batch, StreamKey, decode_batch, encode_batch

NEAR, FAR = 61, 62
PATIENCE_S = 10.0

RELIABLE = Policy.Reliability.Reliable(max_blocking_time=0)


def configuration(lan: str) -> str:
    """Nobody outside hears of it: loopback only, and a tag of its own."""
    return (
        '<CycloneDDS><Domain Id="any"><General><Interfaces><NetworkInterface name="lo"/>'
        "</Interfaces><AllowMulticast>false</AllowMulticast></General><Discovery>"
        f"<ExternalDomainId>{NEAR}</ExternalDomainId><Tag>{lan}</Tag>"
        "<ParticipantIndex>auto</ParticipantIndex>"
        '<Peers><Peer address="127.0.0.1"/></Peers></Discovery></Domain></CycloneDDS>'
    )


class Machine:
    """One participant in a domain of its own."""

    def __init__(self, domain: int, lan: str) -> None:
        self._domain = Domain(domain, configuration(lan))
        self.participant = DomainParticipant(domain)

    def close(self) -> None:
        native.delete(self.participant._ref)
        native.delete(self._domain._ref)


class Pair:
    """A writer on one machine and a reader on the other, matched."""

    def __init__(
        self,
        writing: DomainParticipant,
        reading: DomainParticipant,
        type_: type[Any],
        *,
        offered: CycloneQos | None = None,
        asked: CycloneQos | None = None,
        name: str | None = None,
    ) -> None:
        self.name = name or f"topic-{uuid.uuid4().hex}"
        reliable = CycloneQos(
            RELIABLE, Policy.History.KeepAll, Policy.WriterDataLifecycle(autodispose=False)
        )
        self.topic: Topic[Any] = Topic(writing, self.name, type_)
        self.writer: DataWriter[Any] = DataWriter(writing, self.topic, qos=offered or reliable)
        self.reader: DataReader[Any] = DataReader(
            reading, Topic(reading, self.name, type_), qos=asked or reliable
        )
        self.match()

    def match(self) -> None:
        until(lambda: native.matched_readers(self.writer._ref) > 0)
        until(lambda: matched_writers(self.reader._ref))

    def settle(self) -> None:
        """Everything written so far is in the reader."""
        settle(self.writer._ref)


def take(reader: int, most: int = 100_000) -> list[tuple[bytes, native.SampleInfo]]:
    taken = samples.take(reader, most) or []
    return taken if isinstance(taken, list) else taken.entries()


def never(code: int) -> None:
    raise AssertionError(f"DDS rejects a sample (code {code})")


def batch_of(data: Sequence[bytes], times: Sequence[int], kinds: bytes = b"") -> Batch:
    """As it comes out of the tunnel."""
    return decode_batch(encode_batch(StreamKey("a", 1, 1), (), 1, pack(times, data, kinds)))


def write(writer: int, data: bytes, time: int, kind: int = 0) -> None:
    assert samples.write(writer, batch_of([data], [time], bytes([kind])), 0, never) == 1


def gather(reader: int, count: int) -> list[tuple[bytes, native.SampleInfo]]:
    """Takes until there are so many."""
    got: list[tuple[bytes, native.SampleInfo]] = []

    def is_enough() -> bool:
        got.extend(take(reader))
        return len(got) >= count

    until(is_enough)
    return got


def settle(writer: int) -> None:
    native.flush(writer)
    assert native.wait_for_acks(writer, int(PATIENCE_S * 1e9)) == native.RETCODE_OK


def until(condition: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """Waits for the condition; returns what it said."""
    end_s = time.monotonic() + patience_s
    while not (answer := condition()):
        assert time.monotonic() < end_s, "the condition did not come true in time"
        time.sleep(0.001)
    return answer


@dataclass
@annotate.final
class Plain(IdlStruct, typename="edge.Plain"):
    index: uint32
    data: sequence[uint8]


@dataclass
@annotate.final
class Keyed(IdlStruct, typename="edge.Keyed"):
    """The key is not the first member."""

    index: uint32
    id: int32
    annotate.key("id")
    data: sequence[uint8]
