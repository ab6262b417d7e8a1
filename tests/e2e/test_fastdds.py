"""Another vendor's application on one side: Fast DDS, which announces no type information."""

from __future__ import annotations

import pytest

from tests.apps.fastdds.build import build
from tests.e2e.traffic import finish, indices, of, publish, subscribe
from tests.lab.fabric import Fabric


def test_from_fast_dds_to_cyclone(fabric: Fabric) -> None:
    program = str(build())
    subscriber = subscribe(fabric, "b", "FromFast", "--type=hello", "--count=20")
    publisher = fabric.lab.lan("a").spawn([program, "pub", "FromFast", "20", "5"])
    finish(publisher, subscriber)
    assert indices(subscriber) == list(range(20))


def test_from_cyclone_to_fast_dds(fabric: Fabric) -> None:
    program = str(build())
    subscriber = fabric.lab.lan("b").spawn([program, "sub", "ToFast", "20", "30"])
    subscriber.wait_for_line("ready")
    publisher = publish(
        fabric, "a", "ToFast", "--type=hello", "--count=20", "--rate=200", "--stay-s=-1"
    )
    finish(publisher, subscriber)
    got = [(r["index"], r["message"], r["timestamp"]) for r in subscriber.records()[1:-1]]
    sent = [(r["index"], f"hello {r['index']}", r["timestamp"]) for r in of(publisher, "written")]
    assert [one[:2] for one in got] == [one[:2] for one in sent]
    # A time on the wire has 2^-32 s resolution.
    for received, written in zip(got, sent, strict=True):
        assert abs(received[2] - written[2]) <= 2


def test_from_fast_dds_to_fast_dds(fabric: Fabric) -> None:
    program = str(build())
    subscriber = fabric.lab.lan("c").spawn([program, "sub", "FastToFast", "20", "30"])
    subscriber.wait_for_line("ready")
    publisher = fabric.lab.lan("a").spawn([program, "pub", "FastToFast", "20", "5"])
    finish(publisher, subscriber)
    got = [(record["index"], record["message"]) for record in subscriber.records()[1:-1]]
    assert got == [(index, f"hello {index}") for index in range(20)]


@pytest.mark.parametrize("topic", ["with spaces in it", "ünïcode/日本"], ids=["spaces", "unicode"])
def test_topic_names_only_others_allow(fabric: Fabric, topic: str) -> None:
    """Cyclone refuses to create such topics, Fast DDS does not."""
    program = str(build())
    subscriber = fabric.lab.lan("b").spawn([program, "sub", topic, "5", "20"])
    subscriber.wait_for_line("ready")
    publisher = fabric.lab.lan("a").spawn([program, "pub", topic, "5", "5"])
    finish(publisher, subscriber)
