"""The command line options the sample applications share, and the DDS entities they describe."""

from __future__ import annotations

import argparse
import signal
from queue import Empty, SimpleQueue
from typing import Any

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.topic import Topic
from cyclonedds.util import duration

from tests.apps.samples import MAKERS


def parser(description: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--domain", type=int, default=0)
    made.add_argument("--topic", default="Lab")
    made.add_argument("--topics", type=int, default=1, help="so many, numbered, when above 1")
    made.add_argument("--type", choices=sorted(MAKERS), default="plain")
    made.add_argument("--best-effort", action="store_true")
    made.add_argument("--durability", choices=["volatile", "transient_local"], default="volatile")
    made.add_argument("--history", default="all", help="all, or the depth to keep")
    made.add_argument("--partition", action="append", default=[])
    made.add_argument("--deadline-ms", type=float)
    made.add_argument("--lifespan-ms", type=float)
    made.add_argument("--strength", type=int, help="ownership is exclusive, with this strength")
    made.add_argument("--exclusive", action="store_true", help="ownership is exclusive (reader)")
    made.add_argument("--by-source", action="store_true", help="order by source timestamp")
    made.add_argument("--representation", type=int, choices=[1, 2])
    made.add_argument("--user-data", default="")
    made.add_argument("--keep-instances", action="store_true", help="autodispose off (writer)")
    made.add_argument("--manual-lease-ms", type=float, help="liveliness is manual by topic")
    made.add_argument("--max-samples", type=int, help="resource limit")
    made.add_argument("--max-blocking-s", type=float, default=60.0)
    return made


def policies(options: argparse.Namespace, *, writes: bool) -> Qos:
    """What the options say, for a writer or a reader."""
    chosen: list[Any] = [
        Policy.Reliability.BestEffort
        if options.best_effort
        else Policy.Reliability.Reliable(duration(seconds=options.max_blocking_s)),
        Policy.Durability.TransientLocal
        if options.durability == "transient_local"
        else Policy.Durability.Volatile,
        _history(options.history),
    ]
    if writes and options.durability == "transient_local":
        chosen.append(Policy.DurabilityService(0, _history(options.history), -1, -1, -1))
    if options.partition:
        chosen.append(Policy.Partition(options.partition))
    if options.deadline_ms is not None:
        chosen.append(Policy.Deadline(duration(milliseconds=options.deadline_ms)))
    if options.lifespan_ms is not None and writes:
        chosen.append(Policy.Lifespan(duration(milliseconds=options.lifespan_ms)))
    if options.strength is not None or options.exclusive:
        chosen.append(Policy.Ownership.Exclusive)
    if options.strength is not None and writes:
        chosen.append(Policy.OwnershipStrength(options.strength))
    if options.keep_instances and writes:
        chosen.append(Policy.WriterDataLifecycle(autodispose=False))
    if options.by_source:
        chosen.append(Policy.DestinationOrder.BySourceTimestamp)
    if options.representation is not None:
        chosen.append(
            Policy.DataRepresentation(
                use_cdrv0_representation=options.representation == 1,
                use_xcdrv2_representation=options.representation == 2,
            )
        )
    if options.manual_lease_ms is not None:
        lease = duration(milliseconds=options.manual_lease_ms)
        chosen.append(Policy.Liveliness.ManualByTopic(lease))
    if options.max_samples is not None:
        chosen.append(Policy.ResourceLimits(max_samples=options.max_samples))
    if options.user_data:
        chosen.append(Policy.Userdata(options.user_data.encode()))
    return Qos(*chosen)


def topics(options: argparse.Namespace, participant: DomainParticipant) -> dict[str, Topic[Any]]:
    kind = MAKERS[options.type][0]
    names = (
        [options.topic]
        if options.topics == 1
        else [f"{options.topic}{number}" for number in range(options.topics)]
    )
    return {name: Topic(participant, name, kind) for name in names}


class Stopping:
    """Set by SIGTERM or SIGINT. No threading.Event: a handler that sets one waits for ever when the
    signal comes while the same thread begins to wait for it."""

    def __init__(self) -> None:
        self._signals: SimpleQueue[int] = SimpleQueue()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: self._signals.put(number))

    def is_set(self) -> bool:
        return not self._signals.empty()

    def wait(self, seconds: float | None) -> None:
        """So long at most; None: until it is set."""
        try:
            self._signals.put(self._signals.get(timeout=seconds))
        except Empty:
            return


def _history(text: str) -> Any:
    return Policy.History.KeepAll if text == "all" else Policy.History.KeepLast(int(text))
