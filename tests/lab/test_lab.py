"""The lab itself: LANs are isolated, reach the cloud, can be cut, and leave nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.namespaces import CLOUD_ADDRESS, LAN_INTERFACE, REPOSITORY, Lab
from tests.lab.process import ProcessFailed, wait_until
from tests.lab.wan import WAN_INTERFACE

pytestmark = [pytest.mark.lab]

_CONNECT = f"""
import socket, sys
socket.create_connection(("{CLOUD_ADDRESS}", int(sys.argv[1])), timeout=float(sys.argv[2])).close()
"""
_SERVE = """
import socket
server = socket.create_server(("0.0.0.0", 7000))
print("listening")
while True:
    server.accept()[0].close()
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab("a", "b") as made:
        made.cloud.spawn([sys.executable, "-c", _SERVE]).wait_for_line("listening")
        yield made


def is_alive(pid: int) -> bool:
    """A zombie that nobody has reaped yet is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def connect(lab: Lab, lan: str, timeout_s: float) -> None:
    lab.lan(lan).run([sys.executable, "-c", _CONNECT, "7000", str(timeout_s)])


def test_every_lan_reaches_the_cloud(lab: Lab) -> None:
    connect(lab, "a", 5.0)
    connect(lab, "b", 5.0)


def test_a_lan_has_no_way_into_another(lab: Lab) -> None:
    for target in ("100.64.1.2", "100.64.1.1"):
        with pytest.raises(ProcessFailed, match=r"unreachable"):
            lab.lan("a").run(["ip", "route", "get", target])


def test_a_cut_stops_traffic_until_it_is_healed(lab: Lab) -> None:
    lab.cut("a")
    with pytest.raises(ProcessFailed):
        connect(lab, "a", 0.3)
    connect(lab, "b", 5.0)
    lab.heal("a")
    connect(lab, "a", 5.0)


@pytest.mark.dds
def test_dds_discovers_inside_a_lan_and_never_between_lans(lab: Lab) -> None:
    before = lab.lan("a").interface_bytes(WAN_INTERFACE)[1]
    publisher = lab.lan("a").spawn(["ddsperf", "-D", "4", "pub", "1kHz", "size", "64"])
    beside = lab.lan("a").spawn(["ddsperf", "-D", "3", "sub"])
    apart = lab.lan("b").spawn(["ddsperf", "-D", "3", "sub"])
    beside.wait_for_success(10.0)
    apart.wait_for_success(10.0)
    publisher.wait_for_success(10.0)
    assert "total" in beside.text()
    assert "lost 0" in beside.text()
    assert "total" not in apart.text(), apart.text()
    assert apart.text().count("participant") == 1, apart.text()
    # Unmodified applications pick the LAN's interface by themselves: none of the discovery
    # traffic of four seconds leaves through the uplink.
    assert lab.lan("a").interface_bytes(LAN_INTERFACE)[1] > 0
    assert lab.lan("a").interface_bytes(WAN_INTERFACE)[1] - before < 1000


def test_shared_memory_is_separate(lab: Lab) -> None:
    lab.lan("a").run(["touch", "/dev/shm/mark"])
    assert "mark" in lab.lan("a").run(["ls", "/dev/shm"])
    assert "mark" not in lab.lan("b").run(["ls", "/dev/shm"])


def test_leaving_ends_every_process_and_the_networks() -> None:
    with Lab("x") as lab:
        forking = [sys.executable, "-c", "import os, time; os.fork(); time.sleep(600)"]
        process = lab.lan("x").spawn(forking)
        pids = wait_until(
            lambda: lab.pids() if len(lab.pids()) == 2 else None, 5.0, "the process has forked"
        )
        holder = lab.lan("x").holder_pid
    assert not process.is_running
    for pid in [*pids, holder]:
        assert not is_alive(pid), pid


def test_a_killed_owner_leaves_nothing_for_long() -> None:
    """Even grandchildren, which no parent-death signal reaches, are ended by the next lab."""
    script = """
import sys
from tests.lab.namespaces import Lab
forking = [sys.executable, "-c", "import os, time; os.fork(); time.sleep(600)"]
with Lab("x") as lab:
    lab.lan("x").spawn(forking)
    while len(lab.pids()) < 2:
        pass
    print(lab.lan("x").holder_pid, *lab.pids(), flush=True)
    sys.stdin.read()
"""
    owner = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    assert owner.stdin is not None
    assert owner.stdout is not None
    with owner.stdin, owner.stdout:
        pids = [int(word) for word in owner.stdout.readline().split()]
        assert len(pids) == 3
        owner.send_signal(signal.SIGKILL)
        owner.wait(10.0)
    with Lab():
        wait_until(
            lambda: not any(is_alive(pid) for pid in pids),
            5.0,
            "what the killed owner had started ends",
        )


def test_waiting_for_a_line_fails_when_the_process_ends() -> None:
    with Lab("x") as lab:
        process = lab.lan("x").spawn(["echo", "hello"])
        assert process.wait_for_line("^hel+o$").group() == "hello"
        started = time.monotonic()
        with pytest.raises(ProcessFailed, match="ended without"):
            process.wait_for_line("never", 30.0)
        assert time.monotonic() - started < 5.0
