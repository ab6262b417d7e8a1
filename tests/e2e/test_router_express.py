"""Express links of edges to routers, which carry samples beside gRPC: edges find them by
themselves, do without where they cannot reach them, and lose nothing when they end.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import watched
from tests.e2e.traffic import (
    assert_same_order,
    assert_same_samples,
    finish,
    indices,
    leave,
    of,
    publish,
    subscribe,
)
from tests.lab.fabric import EDGE_METRICS, Fabric
from tests.lab.namespaces import Lab
from tests.lab.process import wait_until

PORT = 7600
LANS = ["a", "b"]


@pytest.fixture
def fabric(request: pytest.FixtureRequest) -> Iterator[Fabric]:
    settings = {**EDGE_METRICS, "DDSWAN_ROUTER_EXPRESS_LISTEN": request.param}
    with Lab(*LANS) as lab, watched(Fabric(lab, LANS, settings=settings)) as running:
        yield running


def is_express(fabric: Fabric, lan: str) -> bool:
    (link,) = fabric.edge_status(lan)["links"]
    assert link["up"], link
    return bool(link["express"])


# The port is as good as closed by a firewall, or there is none.
@pytest.mark.parametrize("fabric", ["127.0.0.1:0", "none"], indirect=True)
def test_grpc_alone_carries_everything(fabric: Fabric) -> None:
    options = ("--type=keyed", "--durability=transient_local")
    subscriber = subscribe(fabric, "b", "alone", *options, "--count=300")
    timing = ("--rate=200", "--count=300", "--size=5000", "--stay-s=-1")
    publisher = publish(fabric, "a", "alone", *options, *timing)
    subscriber.wait_for_line('"index": 20,', 20.0)
    assert not any(is_express(fabric, lan) for lan in LANS)
    late = subscribe(fabric, "b", "alone", *options, "--count=300")
    finish(publisher, subscriber, late)
    assert_same_samples(publisher, subscriber)
    assert_same_samples(publisher, late)


@pytest.mark.parametrize("fabric", [f"0.0.0.0:{PORT}"], indirect=True)
def test_nothing_is_lost_with_links_that_are_reset_again_and_again(fabric: Fabric) -> None:
    """Lone samples, which pass ahead of turns everywhere, and large ones, which do not."""
    flows = []
    for topic, options in (
        ("lone", ("--rate=300", "--size=100")),
        ("large", ("--rate=20", "--size=150000")),
        ("best", ("--rate=300", "--size=100", "--best-effort")),
    ):
        of_both = [each for each in options if each == "--best-effort"]
        subscriber = subscribe(fabric, "b", topic, *of_both)
        publisher = publish(fabric, "a", topic, *options, "--count=1000000")
        flows.append((topic, publisher, subscriber))
    for _, _, subscriber in flows:
        subscriber.wait_for_line('"index": 5,', 30.0)
    for _ in range(8):
        wait_until(lambda: all(is_express(fabric, lan) for lan in LANS), 10.0, "they are back")
        seen = [len(indices(subscriber)) for _, _, subscriber in flows]
        fabric.lab.cloud.run(["ss", "-K", "state", "established", f"( sport = :{PORT} )"])
        for (topic, _, subscriber), before in zip(flows, seen, strict=True):
            wait_until(
                lambda s=subscriber, b=before: len(indices(s)) > b + 5,  # type: ignore[misc]
                15.0,
                f"{topic} goes on",
            )
    for topic, publisher, subscriber in flows:
        leave(publisher)
        sent = [record["index"] for record in of(publisher, "written")]
        if topic != "best":
            wait_until(
                lambda s=subscriber, last=sent[-1]: indices(s)[-1] == last,  # type: ignore[misc]
                20.0,
                f"the end of {topic} arrives",
            )
            assert_same_order(sent, indices(subscriber))
        else:
            got = indices(subscriber)
            assert got == sorted(set(got)), "repetitions or disorder"
            assert len(got) > 0.5 * len(sent)
        subscriber.terminate()
