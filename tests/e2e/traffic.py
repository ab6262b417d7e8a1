"""Publishers and subscribers of the end-to-end tests, and what must be true of what they saw."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

from tests.lab.fabric import Fabric
from tests.lab.process import Process

Record = dict[str, Any]


def subscribe(fabric: Fabric, lan: str, topic: str, *options: str) -> Process:
    """A subscriber in a LAN, once its readers exist."""
    process = fabric.lab.lan(lan).python("tests.apps.sub", f"--topic={topic}", *options)
    process.wait_for_line('"ready"', 15.0)
    return process


def publish(
    fabric: Fabric, lan: str, topic: str, *options: str, readers: int = 1, dds: str = ""
) -> Process:
    """A publisher in a LAN, started; it writes when every topic has so many readers. `dds`: what
    Cyclone DDS is told there."""
    arguments = (f"--topic={topic}", f"--wait-readers={readers}", *options)
    env = {"CYCLONEDDS_URI": dds} if dds else {}
    return fabric.lab.lan(lan).python("tests.apps.pub", *arguments, env=env)


def finish(publisher: Process, *subscribers: Process, deadline_s: float = 40.0) -> None:
    """Each subscriber gets what it counts to and leaves; then the publisher, told to stay, may."""
    publisher.wait_for_line('"done"', deadline_s)
    for subscriber in subscribers:
        subscriber.wait_for_success(30.0)
    leave(publisher)


def leave(publisher: Process) -> None:
    """It ends in good order: what it wrote is acknowledged."""
    assert publisher.terminate() == 0, publisher.tail()


def of(process: Process, event: str, topic: str | None = None) -> list[Record]:
    """The records of one kind of event."""
    return [
        record
        for record in process.records()
        if record["event"] == event and topic in (None, record["topic"])
    ]


def indices(process: Process, topic: str | None = None) -> list[int]:
    return [record["index"] for record in of(process, "sample", topic)]


def assert_same_samples(publisher: Process, subscriber: Process, topic: str | None = None) -> None:
    """Each written sample arrived once, in order, with its value and its source timestamp."""
    sent = of(publisher, "written", topic)
    got = of(subscriber, "sample", topic)
    assert_same_order([record["index"] for record in sent], [record["index"] for record in got])
    for written, received in zip(sent, got, strict=True):
        assert received["fingerprint"] == written["fingerprint"], written
        assert received["timestamp"] == written["timestamp"], written


def assert_same_order(sent: list[int], got: list[int]) -> None:
    """Tells what is wrong in a line where a comparison of thousands of numbers would not."""
    if got == sent:
        return
    missing = sorted(set(sent) - set(got))
    repeated = sorted(index for index, count in Counter(got).items() if count > 1)
    disorder = [pair for pair in pairwise(got) if pair[1] < pair[0]]
    raise AssertionError(
        f"{len(got)} of {len(sent)} samples: missing {len(missing)} {missing[:10]},"
        f" repeated {len(repeated)} {repeated[:10]}, backwards {len(disorder)} {disorder[:10]}"
    )


def assert_contiguous(subscriber: Process, last: int, first_at_most: int) -> None:
    """From its first sample on a subscriber got every one, once and in order."""
    got = indices(subscriber)
    assert got, f"nothing arrived:\n{subscriber.tail()}"
    assert got[0] <= first_at_most
    assert_same_order(list(range(got[0], last + 1)), got)


def ddsperf_totals(process: Process) -> tuple[int, int]:
    """What a `ddsperf sub` counted to its end: samples received, and lost. Its `lost` also moves
    when a sample comes twice or in another order."""
    totals = [
        (int(words[words.index("total") + 1]), int(words[words.index("lost") + 1]))
        for words in (line.split() for line in process.lines())
        if "total" in words
    ]
    assert totals, f"{process.name} received nothing:\n{process.tail()}"
    return totals[-1]
