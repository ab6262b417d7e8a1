"""Addresses an edge is reached at come and go while it runs: of a VPN, of another network."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import watched
from tests.e2e.traffic import assert_same_order, indices, publish, subscribe
from tests.lab.fabric import Fabric
from tests.lab.namespaces import Lab

_TOPIC = "Strict"


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    """Edges listen on all addresses they have, at which no other edge reaches them."""
    settings = {"DDSWAN_EDGE_EXPRESS_LISTEN": "0.0.0.0:7500"}
    lans = ["a", "b"]
    with Lab(*lans) as lab, watched(Fabric(lab, lans, settings=settings)) as running:
        yield running


def test_a_vpn_between_two_lans_is_used_as_soon_as_it_is_there(fabric: Fabric) -> None:
    lab = fabric.lab
    deadline = "--deadline-ms=200"
    subscriber = subscribe(fabric, "b", _TOPIC, deadline)
    publish(fabric, "a", _TOPIC, deadline, "--count=1000000", "--rate=50", "--quiet")
    subscriber.wait_for_line('"index": 20,', 20.0)
    fabric.edge("a").wait_for_line("no express link", 10.0)

    peer = f"peer name vpn0 netns {lab.lan('b').holder_pid}"
    lab.lan("a").run(f"ip link add vpn0 type veth {peer}".split())
    for lan, address in (("a", "10.8.0.1/24"), ("b", "10.8.0.2/24")):
        lab.lan(lan).run(["ip", "address", "add", address, "dev", "vpn0"])
        lab.lan(lan).run(["ip", "link", "set", "vpn0", "up"])
    fabric.wait_for_tree(
        lambda tree: "10.8.0.2:7500" in tree["edges/e-b"], 20.0, "the new address is told"
    )
    fabric.edge("a").wait_for_line("express link up.*10.8.0", 10.0)

    lab.lan("b").run(["ip", "link", "delete", "vpn0"])
    fabric.wait_for_tree(
        lambda tree: "10.8.0.2" not in tree["edges/e-b"], 20.0, "the old address is told no longer"
    )
    got = indices(subscriber)
    subscriber.wait_for_line(f'"index": {got[-1] + 100},', 10.0)
    got = indices(subscriber)
    assert_same_order(list(range(got[-1] + 1)), got)
