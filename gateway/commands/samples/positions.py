"""A sample DDS application that knows nothing of ddswan: vehicles publish where they are, or the
positions of others are shown. `demo` runs it as processes of their own; nobody imports it.

    python positions.py publish --domain 0 --topic fleet/positions --vehicle truck-1
    python positions.py subscribe --domain 1 --topic fleet/positions --count 10
"""

# No postponed annotations here: cyclonedds builds the type from their values.

import argparse
import math
import time
from dataclasses import dataclass

import cyclonedds.idl.annotations as annotate
from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import float64, uint32
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

QOS = Qos(Policy.Reliability.Reliable(duration(seconds=1)), Policy.History.KeepLast(100))


@dataclass
@annotate.appendable
class Position(IdlStruct, typename="samples.Position"):
    vehicle: str
    annotate.key("vehicle")
    number: uint32
    x: float64
    y: float64


def publish(
    participant: DomainParticipant, topic: Topic[Position], vehicle: str, rate_hz: float
) -> None:
    writer = DataWriter(participant, topic, qos=QOS)
    number = 0
    while True:
        number += 1
        angle = number / 10
        writer.write(Position(vehicle, number, math.cos(angle), math.sin(angle)))
        time.sleep(1 / rate_hz)


def subscribe(
    participant: DomainParticipant, topic: Topic[Position], count: int, timeout_s: float
) -> int:
    reader = DataReader(participant, topic, qos=QOS)
    received = 0
    deadline = time.monotonic() + timeout_s
    while received < count and time.monotonic() < deadline:
        for sample in reader.take(N=count - received):
            if isinstance(sample, Position):  # not the end of a vehicle
                received += 1
                info = sample.sample_info  # type: ignore[attr-defined]  # added by the reader
                late_ms = (time.time_ns() - info.source_timestamp) / 1e6
                print(
                    f"{sample.vehicle} #{sample.number} at ({sample.x:+.2f}, {sample.y:+.2f}), "
                    f"{late_ms:.1f} ms after it was written",
                    flush=True,
                )
        time.sleep(0.001)
    return 0 if received == count else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="publishes or shows positions of vehicles")
    parser.add_argument("what", choices=("publish", "subscribe"))
    parser.add_argument("--domain", type=int, default=0, help="DDS domain (0)")
    parser.add_argument("--topic", default="fleet/positions")
    parser.add_argument("--vehicle", default="truck-1", help="who publishes")
    parser.add_argument("--rate", type=float, default=10.0, help="samples per second (10)")
    parser.add_argument("--count", type=int, default=10, help="samples to show, then exit 0 (10)")
    parser.add_argument("--timeout", type=float, default=60.0, help="then exit 1; seconds (60)")
    args = parser.parse_args()
    participant = DomainParticipant(args.domain)
    topic = Topic(participant, args.topic, Position)
    if args.what == "publish":
        publish(participant, topic, args.vehicle, args.rate)
    return subscribe(participant, topic, args.count, args.timeout)


if __name__ == "__main__":
    raise SystemExit(main())
