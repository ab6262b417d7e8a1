"""A DDS publisher for the end-to-end tests: an ordinary application that knows no ddswan. Writes
samples or a script of writes, disposes and unregisters; reports in JSON lines.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import json
import sys
import time
from typing import Any

from cyclonedds.core import DDSException, Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.pub import DataWriter, Publisher

from tests.apps.qos import Stopping, parser, policies, topics
from tests.apps.samples import MAKERS, fingerprint


def main() -> int:
    command = parser(__doc__ or "")
    command.add_argument("--count", type=int, default=0, help="of each topic")
    command.add_argument("--script", default="", help="operations such as 'w1 w2 d1 u2 x3 s9 p7'")
    command.add_argument("--start", type=int, default=0, help="the first index")
    command.add_argument("--keys", type=int, default=1)
    command.add_argument("--size", type=int, default=16)
    command.add_argument("--age-ms", type=int, default=0, help="of samples when they are written")
    command.add_argument("--rate", type=float, default=0.0, help="operations per second")
    command.add_argument("--pause-at", type=int, default=0, help="before this operation")
    command.add_argument("--pause-s", type=float, default=0.0)
    command.add_argument("--wait-readers", type=int, default=0, help="matched before writing")
    command.add_argument("--wait-s", type=float, default=30.0)
    command.add_argument("--stay-s", type=float, default=0.0, help="after the last write; -1: on")
    command.add_argument("--quiet", action="store_true", help="no line for each sample")
    options = command.parse_args()
    stopping = Stopping()

    participant = DomainParticipant(options.domain)
    publisher = Publisher(participant, qos=policies(options, writes=True))
    writers = {
        name: DataWriter(publisher, topic, qos=policies(options, writes=True))
        for name, topic in topics(options, participant).items()
    }
    report(event="ready", topics=len(writers))
    if not wait_for_readers(list(writers.values()), options.wait_readers, options.wait_s, stopping):
        report(event="unmatched")
        return 1
    report(event="matched")

    operations = options.script.split() or [f"w{n % options.keys}" for n in range(options.count)]
    make = MAKERS[options.type][1]
    began = time.monotonic()
    for number, operation in enumerate(operations):
        if stopping.is_set():
            break
        if options.pause_s and number == options.pause_at:
            stopping.wait(options.pause_s)
            began += options.pause_s
        if options.rate > 0:
            stopping.wait(max(0.0, began + number / options.rate - time.monotonic()))
        sample = make(options.start + number, options.size, int(operation[1:]))
        for name, writer in writers.items():
            now_ns = time.time_ns() - options.age_ms * 1_000_000
            perform(writer, operation[0], int(operation[1:]), sample, now_ns)
            if not options.quiet:
                report(
                    event="written",
                    topic=name,
                    operation=operation,
                    index=options.start + number,
                    timestamp=now_ns,
                    fingerprint=fingerprint(sample),
                )
    report(event="done", count=len(operations), seconds=time.monotonic() - began)
    report_incompatible(writers)
    stopping.wait(None if options.stay_s < 0 else options.stay_s)
    if not options.best_effort:
        for writer in writers.values():
            writer._wait_for_acks(writer._ref, 2_000_000_000)
    report_incompatible(writers)
    report(event="leaving")
    return 0


def wait_for_readers(
    writers: list[DataWriter[Any]], count: int, wait_s: float, stopping: Stopping
) -> bool:
    end = time.monotonic() + wait_s
    while not all(
        writer.get_publication_matched_status().current_count >= count for writer in writers
    ):
        if time.monotonic() > end or stopping.is_set():
            return False
        stopping.wait(0.005)
    return True


def perform(writer: DataWriter[Any], operation: str, number: int, sample: Any, now_ns: int) -> None:
    if operation == "w":
        writer.write(sample, now_ns)
    elif operation == "d":
        writer.dispose(sample, now_ns)
    elif operation == "u":
        writer.unregister_instance(sample, now_ns)
    elif operation == "x":
        writer.write_dispose(sample, now_ns)
    elif operation == "s":
        writer.set_qos(Qos(Policy.OwnershipStrength(number)))
    elif operation == "p":
        writer.set_qos(Qos(Policy.Userdata(str(number).encode())))
    else:
        raise SystemExit(f"unknown operation {operation!r}: use w, d, u, x, s or p and a number")


def report_incompatible(writers: dict[str, DataWriter[Any]]) -> None:
    for name, writer in writers.items():
        status = writer.get_offered_incompatible_qos_status()
        if status.total_count:
            report(
                event="incompatible",
                topic=name,
                policy=int(status.last_policy_id),
                total=int(status.total_count),
            )


def report(**record: Any) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DDSException as error:
        report(event="failed", error=str(error))
        sys.exit(1)
