"""What the types of samples may be, and what is kept of a sample on its way."""

from __future__ import annotations

import pytest

from tests.apps.samples import MAKERS
from tests.e2e.traffic import assert_same_samples, finish, indices, leave, of, publish, subscribe
from tests.lab.fabric import Fabric


def test_every_type_arrives_unchanged_with_its_source_timestamp(fabric: Fabric) -> None:
    kinds = sorted(MAKERS)
    # One sample a key and generation, so that a take cannot group samples of different keys.
    subscribers = {
        kind: subscribe(fabric, "b", f"types/{kind}", f"--type={kind}", "--count=12")
        for kind in kinds
    }
    publishers = {
        kind: publish(
            fabric,
            *("a", f"types/{kind}", f"--type={kind}"),
            *("--count=12", "--rate=100", "--stay-s=-1"),
        )
        for kind in kinds
    }
    for kind in kinds:
        finish(publishers[kind], subscribers[kind])
        assert_same_samples(publishers[kind], subscribers[kind])


@pytest.mark.parametrize("kind", ["appendable", "plain"])
@pytest.mark.parametrize("representation", ["1", "2"])
def test_both_data_representations(fabric: Fabric, kind: str, representation: str) -> None:
    topic = f"representation{representation}/{kind}"
    options = [f"--type={kind}", f"--representation={representation}"]
    subscriber = subscribe(fabric, "b", topic, *options, "--count=5")
    publisher = publish(fabric, "a", topic, *options, "--count=5", "--stay-s=-1")
    finish(publisher, subscriber)
    assert_same_samples(publisher, subscriber)


@pytest.mark.parametrize(
    "topic",
    [
        "plain_name",
        "rt/chatter/with/slashes",
        "/leading",
        "dots.and-dashes~and:colons",
        "per%cent%2F",
        "x" * 255,
    ],
    ids=["plain", "slashes", "leading-slash", "punctuation", "percent", "255"],
)
def test_topic_names(fabric: Fabric, topic: str) -> None:
    subscriber = subscribe(fabric, "c", topic, "--count=3")
    publisher = publish(fabric, "a", topic, "--count=3", "--stay-s=-1")
    finish(publisher, subscriber)
    assert_same_samples(publisher, subscriber)


@pytest.mark.parametrize(
    ("size", "count"),
    [(1, 50), (1400, 50), (70_000, 20), (1 << 20, 8), (8 << 20, 3)],
    ids=["1B", "1400B", "70kB", "1MiB", "8MiB"],
)
def test_sizes(fabric: Fabric, size: int, count: int) -> None:
    topic = f"sizes/{size}"
    subscriber = subscribe(fabric, "b", topic, f"--count={count}")
    publisher = publish(fabric, "a", topic, f"--count={count}", f"--size={size}", "--stay-s=-1")
    finish(publisher, subscriber, deadline_s=60.0)
    assert_same_samples(publisher, subscriber)


def test_keys_disposals_and_unregistrations(fabric: Fabric) -> None:
    options = ["--type=keyed", "--keep-instances"]
    subscriber = subscribe(fabric, "b", "instances", *options)
    script = "w1 w2 w3 d1 u2 w1 x3 w2 d2"
    publisher = publish(
        fabric, "a", "instances", *options, f"--script={script}", "--rate=20", "--stay-s=-1"
    )
    publisher.wait_for_line('"done"', 40.0)
    subscriber.wait_for_line('"index": 7', 10.0)
    subscriber.wait_for_line('"key": 2, "state": "disposed"', 10.0)
    assert indices(subscriber) == [0, 1, 2, 5, 6, 7]
    states = [
        (record["key"], record["state"])
        for record in subscriber.records()
        if record["event"] in ("sample", "state")
    ]
    expected = [
        *[(1, "alive"), (2, "alive"), (3, "alive"), (1, "disposed"), (2, "no_writers")],
        *[(1, "alive"), (3, "disposed"), (2, "alive"), (2, "disposed")],
    ]
    assert states == expected
    # Every change carries the time its origin gave it.
    sent = [record["timestamp"] for record in of(publisher, "written")]
    got = [r["timestamp"] for r in subscriber.records() if r["event"] in ("sample", "state")]
    assert got == sent
    # When its publisher leaves, the instance that is still alive loses its last writer.
    publisher.terminate()
    subscriber.wait_for_line('"key": 1, "state": "no_writers"', 10.0)
    subscriber.terminate()


def test_instances_are_disposed_when_their_writer_says_so_by_leaving(fabric: Fabric) -> None:
    """Autodispose of unregistered instances, DDS's default, is the origin's to apply."""
    subscriber = subscribe(fabric, "b", "autodispose", "--type=keyed")
    publisher = publish(fabric, "a", "autodispose", "--type=keyed", "--script=w1", "--stay-s=-1")
    subscriber.wait_for_line('"key": 1, "fingerprint"', 40.0)
    leave(publisher)
    subscriber.wait_for_line('"key": 1, "state": "disposed"', 10.0)
    subscriber.terminate()


def test_a_string_key(fabric: Fabric) -> None:
    options = ["--type=named", "--keep-instances"]
    subscriber = subscribe(fabric, "b", "string_key", *options)
    publisher = publish(
        fabric, "a", "string_key", *options, "--script=w1 w2 d1 u2", "--rate=20", "--stay-s=-1"
    )
    subscriber.wait_for_line('"key": 2, "state": "no_writers"', 40.0)
    leave(publisher)
    assert {(r["key"], r["state"]) for r in of(subscriber, "state")} == {
        (1, "disposed"),
        (2, "no_writers"),
    }
    subscriber.terminate()
