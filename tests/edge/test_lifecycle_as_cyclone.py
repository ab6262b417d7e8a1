"""Through a real reader, the translation and a real writer: an observer behind them sees what an
observer of the origin sees. Everything is in one domain, where DDS delivers within the call.
"""

# mypy: disable-error-code="arg-type, no-untyped-call"
# (cyclonedds' type constructors are values, not types, to a checker.)

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from cyclonedds.core import Policy
from cyclonedds.core import Qos as CycloneQos
from cyclonedds.domain import DomainParticipant
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edge_broker.dds import native, samples
from edge_broker.dds.domain import Port
from edge_broker.dds.reader_room import ReaderRoom
from edge_broker.source import ReaderSource
from gateway.tunnel.frames import StreamKey, decode_batch, encode_batch
from tests.edge.parts import RELIABLE, Keyed, never, take

pytestmark = [pytest.mark.dds, pytest.mark.usefixtures("loops")]

QOS = CycloneQos(RELIABLE, Policy.History.KeepAll, Policy.WriterDataLifecycle(autodispose=False))


class Relay:
    """Origin writers, the translation of what they wrote, and an observer at either end."""

    def __init__(self, participant: DomainParticipant) -> None:
        origin: Topic[Any] = Topic(participant, "origin", Keyed)
        mirror: Topic[Any] = Topic(participant, "mirror", Keyed)
        self.writers: list[DataWriter[Any]] = [
            DataWriter(participant, origin, qos=QOS) for _ in range(2)
        ]
        ingress: DataReader[Any] = DataReader(participant, origin, qos=QOS)
        self._mirror: DataWriter[Any] = DataWriter(participant, mirror, qos=QOS)
        self._entities = (origin, ingress, mirror)
        self._observers: list[DataReader[Any]] = [
            DataReader(participant, topic, qos=QOS) for topic in (origin, mirror)
        ]
        port = Port(ingress._ref, ingress._ref, origin._ref, ("origin", "Keyed", None, ""))
        self._source = ReaderSource(
            port, lambda reader: None, lambda handle: True, ReaderRoom(port.ref, 1000, 1 << 26)
        )
        self.now = 0
        self.first_id = 0

    def act(self, step: str, instance: int, writer: int) -> None:
        self.now += 1
        sample = Keyed(self.now, self.first_id + instance, [])
        act = {
            "w": self.writers[writer].write,
            "d": self.writers[writer].dispose,
            "D": lambda sample, time: native.writedispose_ts(
                self.writers[writer]._ref, sample.serialize(), time
            ),
            "u": self.writers[writer].unregister_instance,
        }[step]
        act(sample, self.now)

    def forward(self, most: int) -> None:
        """One take from the origin, written to the mirror."""
        packed = self._source.take(most).packed
        if packed.count:
            batch = decode_batch(encode_batch(StreamKey("a", 1, 1), (), 1, packed))
            assert samples.write(self._mirror._ref, batch, 0, never) == packed.count

    def seen(self) -> list[dict[int, tuple[list[tuple[int, bool]], int]]]:
        """For either observer and each instance: its samples, each with whether the instance died
        and was reborn before it, and its state now."""
        result = []
        for observer in self._observers:
            instances: dict[int, tuple[list[tuple[int, bool]], int]] = {}
            deaths: Counter[int] = Counter()
            for data, info in take(observer._ref):
                at = 8 if info.valid_data else 4
                key = int.from_bytes(data[at : at + 4], "little")
                samples = instances.setdefault(key, ([], 0))[0]
                died = info.disposed_generation_count + info.no_writers_generation_count
                if info.valid_data:
                    assert int.from_bytes(data[4:8], "little") == info.source_timestamp
                    samples.append((info.source_timestamp, died > deaths[key]))
                deaths[key] = died
                instances[key] = samples, info.instance_state
            result.append(instances)
        return result


@pytest.fixture(scope="module")
def relay(machines: tuple[DomainParticipant, DomainParticipant]) -> Iterator[Relay]:
    yield Relay(machines[0])


steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("wwwdDu"), st.integers(0, 2), st.integers(0, 1)),
        st.tuples(st.just("t"), st.sampled_from([1, 2, 4, 100]), st.just(0)),
    ),
    max_size=30,
)


def script(text: str) -> list[tuple[str, int, int]]:
    return [(step, 100 if step == "t" else 0, 0) for step in text]


@settings(max_examples=400)
@given(steps, st.booleans())
@example(script("wdwdt"), True)
@example(script("wtdwtdwt"), True)
@example(script("wtuwtuwt"), True)
@example(script("wtdutwtdwt"), True)
@example(script("wdutwtdwtdwt"), True)
@example([("d", 0, 0), ("t", 1, 0), ("d", 0, 0), ("u", 0, 0)], True)
def test_both_observers_see_the_same(
    relay: Relay, steps: list[tuple[str, int, int]], has_one_writer: bool
) -> None:
    relay.first_id += 10
    for step, which, writer in steps:
        if step == "t":
            relay.forward(which)
        else:
            relay.act(step, which, 0 if has_one_writer else writer)
    for _ in range(200):
        relay.forward(1)
    relay.forward(10_000)
    origin, mirror = relay.seen()
    assert mirror == origin
