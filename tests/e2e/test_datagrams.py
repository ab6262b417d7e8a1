"""A direct link that loses packets: deadline topics leave TCP for datagrams with repair data by
themselves, and nothing is lost, repeated or out of order whatever else happens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import watched
from tests.e2e.traffic import (
    assert_same_samples,
    indices,
    leave,
    of,
    publish,
    subscribe,
)
from tests.lab.fabric import EDGE_METRICS, Fabric
from tests.lab.namespaces import Lab
from tests.lab.process import Process, wait_until
from tests.lab.wan import Wan

DELAY_MS, UPLINK_MS, LOSS = 60, 100, 0.05
DEADLINE = "--deadline-ms=150"
FLOW = (DEADLINE, "--rate=150", "--count=1000000", "--stay-s=-1")


@pytest.fixture(scope="module")
def fabric() -> Iterator[Fabric]:
    lans = ["a", "b"]
    with Lab(*lans, wan=Wan(direct=[("a", "b")])) as lab:
        for lan in lans:
            lab.wan[lan, "cloud"].set(delay_ms=UPLINK_MS)
        lab.wan["a", "b"].set(delay_ms=DELAY_MS)
        with watched(Fabric(lab, lans, settings=EDGE_METRICS, express_lans=["a", "b"])) as running:
            yield running


@pytest.fixture
def lossy(fabric: Fabric) -> Iterator[Fabric]:
    direct = fabric.lab.wan["a", "b"]
    direct.set(loss=LOSS)
    try:
        yield fabric
    finally:
        direct.set(loss=0.0, cut=False)


def direct_via(fabric: Fabric, topic: str) -> set[str]:
    """What the direct way of a topic from a to b is now."""
    found = set()
    for outflow in fabric.edge_status("a")["outflows"]:
        if outflow["topic"] == topic:
            found |= {row["paths"].get("express", "none") for row in outflow["deadline"]}
    return found


def wait_for_transport(fabric: Fabric, topic: str, via: str) -> None:
    wait_until(lambda: direct_via(fabric, topic) == {via}, 60.0, f"{topic} goes over {via}")


def count(fabric: Fabric, lan: str, what: str) -> float:
    text = fabric.ask(lan, "/metrics").decode()
    found = re.findall(rf"^ddswan_datagrams_{what}_total\{{.*\}} (\S+)$", text, re.MULTILINE)
    return sum(map(float, found))


def wait_for_repairs(fabric: Fabric, more: int) -> None:
    before = count(fabric, "b", "repaired")
    wait_until(lambda: count(fabric, "b", "repaired") > before + more, 60.0, "repairs")


def begin(fabric: Fabric, topic: str, *qos: str, size: int = 16) -> tuple[Process, Process]:
    subscriber = subscribe(fabric, "b", topic, DEADLINE, *qos)
    publisher = publish(fabric, "a", topic, *FLOW, *qos, f"--size={size}")
    wait_until(lambda: len(indices(subscriber)) > 5, 30.0, "the first samples")
    return publisher, subscriber


def end(publisher: Process, subscriber: Process) -> None:
    """All that was written has come, once and in order."""
    leave(publisher)
    written = len(of(publisher, "written"))
    wait_until(lambda: len(indices(subscriber)) >= written, 30.0, "all came")
    subscriber.terminate()
    assert_same_samples(publisher, subscriber)


def test_without_losses_all_goes_over_tcp(fabric: Fabric) -> None:
    publisher, subscriber = begin(fabric, "sound")
    came = len(indices(subscriber))
    wait_until(lambda: len(indices(subscriber)) > came + 500, 30.0, "500 samples")
    assert direct_via(fabric, "sound") == {"express"}
    end(publisher, subscriber)


def test_a_reliable_topic_goes_over_datagrams_and_loses_nothing(lossy: Fabric) -> None:
    """Also when the link is cut for a while, and whichever way a sample takes."""
    publisher, subscriber = begin(lossy, "careful")
    wait_for_transport(lossy, "careful", "datagrams")
    wait_until(lambda: count(lossy, "a", "sent") > 0, 10.0, "they are counted")
    wait_for_repairs(lossy, 30)
    wait_until(lambda: count(lossy, "a", "lost") > 30, 20.0, "the sender knows of losses")
    direct = lossy.lab.wan["a", "b"]
    direct.set(cut=True)
    came = len(indices(subscriber))
    wait_until(lambda: len(indices(subscriber)) > came + 100, 30.0, "the routed way serves")
    direct.set(cut=False)
    wait_for_transport(lossy, "careful", "datagrams")
    wait_for_repairs(lossy, 30)
    end(publisher, subscriber)


def test_of_a_best_effort_topic_hardly_any_sample_is_lost_and_none_comes_late(
    lossy: Fabric,
) -> None:
    publisher, subscriber = begin(lossy, "careless", "--best-effort")
    wait_for_transport(lossy, "careless", "datagrams")
    wait_for_repairs(lossy, 5)
    first = max(indices(subscriber))
    wait_until(lambda: max(indices(subscriber)) > first + 1000, 60.0, "a thousand samples")
    leave(publisher)
    got = indices(subscriber)
    assert got == sorted(set(got)), "repeated or out of order"
    lost = 1000 - len([each for each in got if first < each <= first + 1000])
    assert lost < 1000 * LOSS / 4


def test_large_samples_go_over_tcp(lossy: Fabric) -> None:
    """In datagrams they would need many of which none may be lost."""
    publisher, subscriber = begin(lossy, "large", size=20_000)
    small, there = begin(lossy, "small")
    wait_for_transport(lossy, "small", "datagrams")
    assert direct_via(lossy, "large") == {"express"}
    end(publisher, subscriber)
    end(small, there)
