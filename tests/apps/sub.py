"""A DDS subscriber for the end-to-end tests: an ordinary application that knows no ddswan. Prints
every sample and every change it sees as a JSON line.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import json
import sys
import time
from typing import Any

from cyclonedds.core import (
    DDSException,
    InstanceState,
    ReadCondition,
    SampleState,
    ViewState,
    WaitSet,
)
from cyclonedds.domain import DomainParticipant
from cyclonedds.internal import InvalidSample
from cyclonedds.sub import DataReader, Subscriber
from cyclonedds.util import duration

from tests.apps.qos import Stopping, parser, policies, topics
from tests.apps.samples import fingerprint

STATES = {
    InstanceState.Alive: "alive",
    InstanceState.NotAliveDisposed: "disposed",
    InstanceState.NotAliveNoWriters: "no_writers",
}


def main() -> int:
    command = parser(__doc__ or "")
    command.add_argument("--count", type=int, default=0, help="leave after so many samples")
    command.add_argument("--seconds", type=float, default=0.0, help="leave after so long")
    command.add_argument("--pause-ms", type=float, default=0.0, help="after each single sample")
    options = command.parse_args()
    stopping = Stopping()

    participant = DomainParticipant(options.domain)
    subscriber = Subscriber(participant, qos=policies(options, writes=False))
    readers = {
        name: DataReader(subscriber, topic, qos=policies(options, writes=False))
        for name, topic in topics(options, participant).items()
    }
    waitset = WaitSet(participant)
    anything = ViewState.Any | InstanceState.Any | SampleState.NotRead
    conditions = [ReadCondition(reader, anything) for reader in readers.values()]
    for condition in conditions:
        waitset.attach(condition)
    report(event="ready", topics=len(readers))

    seen: dict[tuple[str, str], Any] = {}
    received = 0
    end = time.monotonic() + options.seconds if options.seconds else float("inf")
    while not stopping.is_set() and time.monotonic() < end:
        waitset.wait(duration(milliseconds=50))
        for name, reader in readers.items():
            for sample in reader.take(N=1 if options.pause_ms else 500):
                received += report_sample(name, sample)
                stopping.wait(options.pause_ms / 1e3)
            report_changes(name, reader, seen)
        if options.count and received >= options.count:
            break
    report(event="leaving", received=received)
    return 0


def report_sample(topic: str, sample: Any) -> int:
    """How many valid samples this was: one or none."""
    info = sample.sample_info
    state = STATES.get(info.instance_state, str(info.instance_state))
    if isinstance(sample, InvalidSample):
        key = getattr(sample.key_sample, "id", getattr(sample.key_sample, "unit", None))
        report(event="state", topic=topic, key=key, state=state, timestamp=info.source_timestamp)
        return 0
    report(
        event="sample",
        topic=topic,
        index=sample.index,
        key=getattr(sample, "id", getattr(sample, "unit", None)),
        fingerprint=fingerprint(sample),
        timestamp=info.source_timestamp,
        state=state,
        received=time.time_ns(),
    )
    return 1


def report_changes(topic: str, reader: DataReader[Any], seen: dict[tuple[str, str], Any]) -> None:
    """Matched writers, live ones, missed deadlines and incompatible offers, each as it changes."""
    matched = int(reader.get_subscription_matched_status().current_count)
    alive = int(reader.get_liveliness_changed_status().alive_count)
    missed = int(reader.get_requested_deadline_missed_status().total_count)
    refused = reader.get_requested_incompatible_qos_status()
    states: dict[str, Any] = {
        "writers": {"count": matched},
        "liveliness": {"alive": alive},
        "deadline_missed": {"total": missed},
        "incompatible": {
            "total": int(refused.total_count),
            "policy": int(refused.last_policy_id),
        },
    }
    for event, values in states.items():
        before = seen.get((topic, event))
        seen[topic, event] = values
        if values != before and (before is not None or any(values.values())):
            report(event=event, topic=topic, **values)


def report(**record: Any) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DDSException as error:
        report(event="failed", error=str(error))
        sys.exit(1)
