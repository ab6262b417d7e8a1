"""Single samples of deadline topics over direct links, which take the shortcut, while everything
around them changes: who comes late, who leaves, copies that come another way. Meanwhile processors
stay awake.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from edge_broker.vigil import DEVICE
from tests.e2e.conftest import watched
from tests.e2e.traffic import (
    assert_same_order,
    assert_same_samples,
    indices,
    leave,
    of,
    publish,
    subscribe,
)
from tests.lab.fabric import EDGE_METRICS, Fabric
from tests.lab.namespaces import Lab
from tests.lab.process import wait_until
from tests.lab.wan import Wan

TOPICS = 4
OPTIONS = (f"--topics={TOPICS}", "--deadline-ms=200", "--durability=transient_local")
ENDLESS = ("--rate=100", "--count=1000000", "--stay-s=-1")
VISITS = 8


@pytest.fixture(scope="module")
def fabric() -> Iterator[Fabric]:
    lans = ["a", "b", "c"]
    wan = Wan(direct=[("a", "b"), ("a", "c")], is_emulated=False)
    settings = {
        **EDGE_METRICS,
        "DDSWAN_EXPRESS_MODES": "twice*=duplicate",
        "DDSWAN_EXPRESS_AWAKE_DEADLINE_S": "0.1",
    }
    with Lab(*lans, wan=wan) as lab, watched(Fabric(lab, lans, settings=settings)) as running:
        yield running


def test_late_joiners_get_every_sample_while_lone_ones_go_ahead(fabric: Fabric) -> None:
    """Each is in the history they get first or in what follows it, and never in both."""
    steady = subscribe(fabric, "b", "lone", *OPTIONS)
    publisher = publish(fabric, "a", "lone", *OPTIONS, *ENDLESS)
    names = [f"lone{number}" for number in range(TOPICS)]
    steady.wait_for_line('"index": 100,', 30.0)
    for visit in range(VISITS):
        late = subscribe(fabric, "cb"[visit % 2], "lone", *OPTIONS)
        aims = {name: of(publisher, "written", name)[-1]["index"] + 20 for name in names}
        for name in names:
            late.wait_for_line(f'"{name}", "index": {aims[name]},', 20.0)
        late.terminate()
        for name in names:
            got = indices(late, name)
            assert_same_order(list(range(got[-1] + 1)), got)
    leave(publisher)
    for name in names:
        sent = [record["index"] for record in of(publisher, "written", name)]
        wait_until(lambda n=name, s=sent: indices(steady, n)[-1] == s[-1], 20.0, f"all of {name}")  # type: ignore[misc]
        assert_same_order(sent, indices(steady, name))
    steady.terminate()
    # What came for those who had just left came: the paths lost nothing.
    pairs = fabric.edge_status("a")["pairs"]
    paths = [path for pair in pairs for path in pair["paths"]]
    assert len(paths) > 1
    assert not any(path["lost"] for path in paths), paths


def test_copies_that_come_another_way_meanwhile_are_copies(fabric: Fabric) -> None:
    """The other path brings each sample, too, while or after it goes ahead."""
    subscriber = subscribe(fabric, "b", "twice", *OPTIONS, f"--count={TOPICS * 600}")
    timing = ("--rate=150", "--count=600", "--stay-s=-1")
    publisher = publish(fabric, "a", "twice", *OPTIONS, *timing)
    names = [f"twice{number}" for number in range(TOPICS)]
    for name in names:
        subscriber.wait_for_line(f'"{name}", "index": 300,', 30.0)
    outflows = fabric.edge_status("a")["outflows"]
    taken = {row["topic"]: row["deadline"][0]["taken"] for row in outflows if row["deadline"]}
    assert {tuple(taken[name]) for name in names} == {("express", "routed")}
    subscriber.wait_for_success(30.0)
    leave(publisher)
    for name in names:
        assert_same_samples(publisher, subscriber, name)


def test_processors_stay_awake_while_very_strict_topics_flow(fabric: Fabric) -> None:
    """In both LANs of such a topic, on the machine itself, and no longer than it flows."""
    may = os.access(DEVICE, os.W_OK)

    def awake() -> dict[str, bool]:
        lines = {lan: fabric.ask(lan, "/metrics").decode().splitlines() for lan in "abc"}
        return {
            lan: any(
                line.startswith("ddswan_processors_awake{") and line.endswith(" 1.0")
                for line in found
            )
            for lan, found in lines.items()
        }

    def latency_us() -> int:
        return int.from_bytes(DEVICE.read_bytes(), "little") if may else -1

    at_rest_us = latency_us()
    for deadline, expected in (("--deadline-ms=200", False), ("--deadline-ms=100", may)):
        name = f"strict{deadline[-3:]}"
        subscriber = subscribe(fabric, "b", name, deadline)
        publisher = publish(fabric, "a", name, deadline, *ENDLESS)
        subscriber.wait_for_line('"index": 150,', 30.0)
        wanted = {"a": expected, "b": expected, "c": False}
        wait_until(lambda w=wanted: awake() == w, 10.0, f"awake: {wanted}")  # type: ignore[misc]
        assert latency_us() == (0 if expected else at_rest_us)
        leave(publisher)
        subscriber.terminate()
    wait_until(lambda: not any(awake().values()), 10.0, "nobody awake")
    assert latency_us() == at_rest_us
