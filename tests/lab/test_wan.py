"""Emulated links as a lab has them: measured by what arrives in namespaces, against what was set
and against the model.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
from collections.abc import Iterator

import pytest

from tests.lab.machine import is_about_precise_times
from tests.lab.namespaces import CLOUD_ADDRESS, LAN_INTERFACE, Lab, LabUnavailable
from tests.lab.process import Process, ProcessFailed, wait_until
from tests.lab.test_lab import is_alive
from tests.lab.wan import LinkCounters, Wan
from tests.lab.wan_model import Drop, Impairments, LinkModel

pytestmark = [pytest.mark.lab]

SEED = 7
PORT = 7100

Arrival = tuple[int, int, int]
"""Number, nanosecond sent, nanosecond received."""

_PULL = """
import hashlib, socket, sys, time
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 30.0) as tcp:
    digest, size, begun = hashlib.blake2b(), 0, time.monotonic()
    while data := tcp.recv(1 << 20):
        digest.update(data)
        size += len(data)
print(digest.hexdigest(), size, size * 8e-6 / (time.monotonic() - begun))
"""
_SERVE = """
import hashlib, random, socket, sys
body = random.Random(1).randbytes(int(sys.argv[2]))
server = socket.create_server(("0.0.0.0", int(sys.argv[1])))
print("serving", hashlib.blake2b(body).hexdigest(), flush=True)
while True:
    with server.accept()[0] as tcp:
        tcp.sendall(body)
"""


@pytest.fixture(scope="module")
def made() -> Iterator[Lab]:
    wan = Wan(direct=[("a", "b")], seed=SEED)
    with Lab("a", "b", "c", wan=wan) as lab:
        yield lab


@pytest.fixture
def lab(made: Lab) -> Lab:
    """With links that pass everything on."""
    for names in (("a", "b"), ("a", "cloud"), ("b", "cloud"), ("c", "cloud")):
        made.wan[names].clear()
    return made


def listen(lab: Lab, lan: str) -> Process:
    process = lab.lan(lan).python("tests.lab.probe", "receive", "0.0.0.0", str(PORT))
    process.wait_for_line("receiving")
    return process


def send(lab: Lab, lan: str, peer: str, count: int, gap_ms: float, size: int = 64) -> Process:
    arguments = [f"--count={count}", f"--gap-ms={gap_ms}", f"--size={size}"]
    address = lab.express_address(peer, lan)
    return lab.lan(lan).python("tests.lab.probe", "send", address, str(PORT), *arguments)


def arrivals(lab: Lab, lan: str, receiver: Process) -> list[Arrival]:
    """What a receiver in `lan` had once the direct link is empty."""

    def is_empty() -> bool:
        total = lab.wan["a", "b"].counters().total
        return total.delivered_packets + total.dropped == total.packets

    wait_until(is_empty, 10.0, "nothing is on its way")
    lab.lan(lan).run([sys.executable, "-m", "tests.lab.probe", "end", "127.0.0.1", str(PORT)])
    (found,) = receiver.wait_for_records(1)
    receiver.wait_for_success()
    return [(number, sent, received) for number, sent, received in found["arrivals"]]


def carry(lab: Lab, count: int, gap_ms: float, size: int = 64) -> list[Arrival]:
    """From LAN a to LAN b over their direct link."""
    receiver = listen(lab, "b")
    send(lab, "a", "b", count, gap_ms, size).wait_for_success(30.0)
    return arrivals(lab, "b", receiver)


def predict(lab: Lab, asked: Impairments, count: int) -> list[int | Drop]:
    """The fates of the next packets from a to b, sent at time 0, had there been no settings yet."""
    model = LinkModel(f"{SEED}/a-b/there")
    for _ in range(lab.wan["a", "b"].counters().there.packets):
        model.fate(0, 64)
    model.change(0, asked)
    return [model.fate(0, 64) for _ in range(count)]


def since(lab: Lab, before: LinkCounters) -> LinkCounters:
    now = lab.wan["a", "b"].counters()
    return LinkCounters(now.there - before.there, now.back - before.back)


def error_ms(found: list[Arrival], delay_ms: float) -> float:
    return statistics.median(abs(b - a - delay_ms * 1e6) for _, a, b in found) / 1e6


@is_about_precise_times
def test_delay_is_that_of_each_direction(lab: Lab) -> None:
    link = lab.wan["a", "b"]
    link.set(delay_ms=30)
    lab.wan["b", "a"].set(direction="there", delay_ms=80)
    assert [way.delay_ms for way in link.impairments()] == [30, 80]
    at_a, at_b = listen(lab, "a"), listen(lab, "b")
    senders = [send(lab, "a", "b", 300, 2.0), send(lab, "b", "a", 300, 2.0)]
    for sender in senders:
        sender.wait_for_success()
    there, back = arrivals(lab, "b", at_b), arrivals(lab, "a", at_a)
    assert len(there) == len(back) == 300
    assert error_ms(there, 30) < 0.5
    assert error_ms(back, 80) < 0.5
    assert min(b - a for _, a, b in there) >= 30e6
    assert min(b - a for _, a, b in back) >= 80e6


@is_about_precise_times
def test_what_passes_on_at_once_is_hardly_late(lab: Lab) -> None:
    assert error_ms(carry(lab, 300, 1.0), 0.0) < 0.5


def test_the_seed_says_which_packets_are_lost(lab: Lab) -> None:
    """The same ones as in the model, which has its own tests of rates."""
    asked = Impairments(loss=0.1, burst_start=0.02, burst_end=0.3, burst_loss=0.9)
    fates = predict(lab, asked, 1000)
    before = lab.wan["a", "b"].counters()
    lab.wan["a", "b"].apply(asked, direction="there")
    found = carry(lab, 1000, 0.1, 100)
    assert [number for number, _, _ in found] == [
        number for number, fate in enumerate(fates) if fate is not Drop.LOST
    ]
    counted = since(lab, before)
    assert (counted.there.packets, counted.there.bytes) == (1000, 100_000)
    assert counted.there.delivered_packets == len(found)
    assert counted.there.delivered_bytes == 100 * len(found)
    assert counted.there.lost == counted.total.dropped == 1000 - len(found)
    assert counted.back.packets == 0


def test_only_what_is_held_back_is_overtaken(lab: Lab) -> None:
    asked = Impairments(delay_ms=5, reorder=0.1, reorder_ms=20)
    fates = predict(lab, asked, 300)
    lab.wan["a", "b"].apply(asked)
    found = carry(lab, 300, 1.0)
    late = {number for number, fate in enumerate(fates) if fate == 25_000_000}
    assert late
    assert len(found) == 300
    order = [number for number, _, _ in found]
    assert [n for n in order if n not in late] == [n for n in range(300) if n not in late]
    assert order != sorted(order)
    assert error_ms([arrival for arrival in found if arrival[0] in late], 25) < 0.5


@is_about_precise_times
def test_jitter_spreads_arrivals_and_keeps_their_order(lab: Lab) -> None:
    lab.wan["a", "b"].set(delay_ms=20, jitter_ms=10)
    found = carry(lab, 300, 1.0)
    ways = [(b - a) / 1e6 for _, a, b in found]
    assert [number for number, _, _ in found] == list(range(300))
    assert min(ways) >= 10
    assert statistics.quantiles(ways)[2] - statistics.quantiles(ways)[0] > 2


@is_about_precise_times
def test_a_flood_comes_out_at_the_rate_without_its_tail(lab: Lab) -> None:
    """8 Mbit/s is a packet of 1000 bytes each millisecond; a hundred may wait."""
    before = lab.wan["a", "b"].counters()
    lab.wan["a", "b"].set(rate_mbit=8, queue_bytes=100_000)
    found = carry(lab, 300, 0.0, 1000)
    took_ms = (found[-1][2] - found[0][2]) / 1e6
    assert took_ms / (len(found) - 1) == pytest.approx(1.0, rel=0.02)
    sent_ms = (max(sent for _, sent, _ in found) - found[0][1]) / 1e6
    assert 99 <= len(found) <= 102 + sent_ms
    assert since(lab, before).there.overflowed == 300 - len(found)


def test_a_flood_with_no_settings_loses_nothing(lab: Lab) -> None:
    before = lab.wan["a", "b"].counters()
    assert len(carry(lab, 5000, 0.0)) == 5000
    assert since(lab, before).total.overrun == 0


def test_a_cut_loses_what_is_on_the_way_and_heals(lab: Lab) -> None:
    link = lab.wan["a", "b"]
    before = link.counters()
    link.set(delay_ms=10_000)
    receiver = listen(lab, "b")
    send(lab, "a", "b", 10, 0.0).wait_for_success()
    link.set(cut=True)
    send(lab, "a", "b", 10, 0.0).wait_for_success()
    assert since(lab, before).there.cut == 20
    link.set(cut=False, delay_ms=1)
    send(lab, "a", "b", 10, 0.0).wait_for_success()
    assert len(arrivals(lab, "b", receiver)) == 10


def pull(lab: Lab, lan: str, address: str, port: int) -> tuple[str, float]:
    """What a server sends over TCP: its digest, and Mbit/s."""
    line = lab.lan(lan).run([sys.executable, "-c", _PULL, address, str(port)])
    digest, _, rate = line.split()
    return digest, float(rate)


def serve(lab: Lab, lan: str, port: int, size: int) -> str:
    process = lab.lan(lan).spawn([sys.executable, "-c", _SERVE, str(port), str(size)])
    return process.wait_for_line(r"^serving (\w+)$")[1]


def test_tcp_crosses_bad_links_whole(lab: Lab) -> None:
    digest = serve(lab, "b", 7101, 2_000_000)
    lab.wan["a", "b"].set(delay_ms=5, jitter_ms=2, loss=0.01, reorder=0.01, reorder_ms=3)
    assert pull(lab, "a", lab.express_address("b", "a"), 7101)[0] == digest


def test_links_carry_much_and_are_independent(lab: Lab) -> None:
    """1900 Mbit/s on a quiet machine of two processors; the bound is for busy ones."""
    digest = serve(lab, "b", 7102, 50_000_000)
    uplinks = [lab.wan["a", "cloud"], lab.wan["b", "cloud"]]
    before = [link.counters() for link in uplinks]
    for link in uplinks:
        link.set(cut=True)
    found, rate = pull(lab, "a", lab.express_address("b", "a"), 7102)
    assert found == digest
    assert rate > 100
    assert [link.counters() for link in uplinks] == before
    assert lab.wan["a", "b"].counters().total.overrun == 0


def test_the_uplink_is_cut_and_healed_by_the_lab(lab: Lab) -> None:
    serve_here = [sys.executable, "-c", _SERVE, "7103", "1"]
    lab.cloud.spawn(serve_here).wait_for_line("serving")
    connect = [
        sys.executable,
        "-c",
        f"import socket; socket.create_connection(('{CLOUD_ADDRESS}', 7103), 0.3).close()",
    ]
    lab.cut("a")
    with pytest.raises(ProcessFailed, match="timed out"):
        lab.lan("a").run(connect)
    lab.lan("b").run(connect)
    lab.heal("a")
    lab.lan("a").run(connect)


def test_only_the_two_lans_of_a_direct_link_reach_each_other(lab: Lab) -> None:
    for lan, target in (("c", "a"), ("c", "b")):
        address = lab.express_address(target, "b" if target == "a" else "a")
        with pytest.raises(ProcessFailed, match="unreachable"):
            lab.lan(lan).run(["ip", "route", "get", address])
    assert "direct0" in lab.lan("a").run(["ip", "route", "get", lab.express_address("b", "a")])
    with pytest.raises(KeyError, match="no direct link between a and c"):
        lab.express_address("a", "c")
    with pytest.raises(KeyError, match="no link b-c"):
        lab.wan["b", "c"]
    with pytest.raises(KeyError, match="nobody"), Lab("a", wan=Wan(direct=[("a", "nobody")])):
        pass


def test_settings_with_wrong_names_are_refused(lab: Lab) -> None:
    with pytest.raises(TypeError, match="no such setting: delay"):
        lab.wan["a", "b"].set(delay=30)
    with pytest.raises(ValueError, match="loss is a probability"):
        lab.wan["a", "b"].set(loss=30)


@pytest.mark.dds
def test_dds_stays_in_its_lan(lab: Lab) -> None:
    """Not one packet of its discovery goes over any emulated link."""
    links = [lab.wan[names] for names in (("a", "b"), ("a", "cloud"), ("b", "cloud"))]
    before = [link.counters() for link in links]
    publisher = lab.lan("a").spawn(["ddsperf", "-D", "3", "pub", "1kHz", "size", "64"])
    beside = lab.lan("a").spawn(["ddsperf", "-D", "2", "sub"])
    apart = lab.lan("b").spawn(["ddsperf", "-D", "2", "sub"])
    for process in (beside, apart, publisher):
        process.wait_for_success(10.0)
    assert "total" in beside.text()
    assert "total" not in apart.text(), apart.text()
    assert [link.counters() for link in links] == before
    assert lab.lan("a").interface_bytes(LAN_INTERFACE)[1] > 0


def test_the_emulator_ends_with_its_lab_and_its_end_is_told() -> None:
    with Lab("a", wan=Wan()) as lab:
        pid = lab.wan.pid
        assert pid is not None
        assert not lab.pids()
    assert not is_alive(pid)
    with Lab("a", wan=Wan()) as lab:
        assert lab.wan.pid is not None
        os.kill(lab.wan.pid, signal.SIGKILL)
        with pytest.raises(ProcessFailed, match="the emulator ended"):
            lab.wan["a", "cloud"].set(cut=True)


def test_direct_links_may_be_plain_cables() -> None:
    with Lab("a", "b", wan=Wan(direct=[("a", "b")], is_emulated=False, mtu=9000)) as lab:
        digest = serve(lab, "b", 7104, 1000)
        assert pull(lab, "a", lab.express_address("b", "a"), 7104)[0] == digest
        with pytest.raises(LabUnavailable, match="no emulated links"):
            _ = lab.wan


def test_large_packets() -> None:
    with Lab("a", "b", wan=Wan(direct=[("a", "b")], mtu=65_535)) as lab:
        assert len(carry(lab, 10, 1.0, 65_535)) == 10
        counted = lab.wan["a", "b"].counters().there
        assert (counted.packets, counted.bytes) == (10, 655_350)
