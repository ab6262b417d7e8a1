"""What is asked for on a connection, as the system tells it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.plan import congestion
from gateway.tunnel import wire_tuning
from gateway.tunnel.wire_tuning import CongestionControl, tune

_ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def usual() -> str:
    """What connections here use, or may use, besides the gentle one."""
    names = [name for name in _ALLOWED.read_text().split() if name != congestion.GENTLE]
    assert names, "this machine knows Reno only: load another one (modprobe tcp_cubic)"
    return names[0]


@pytest.fixture
def connected(usual: str) -> Iterator[Pair]:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as near,
    ):
        far, _ = server.accept()
        with far:
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, usual.encode())
            tune(near)
            yield near, far


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if each look came after a long time, on a long path."""
    for name in ("CLEAN_FIRST_S", "CLEAN_AGAIN_S", "LEAST_LOOK_S"):
        monkeypatch.setattr(congestion, name, 1e-9)
    for name in ("LEAST_IN_FLIGHT", "IDLE_IN_FLIGHT"):
        monkeypatch.setattr(congestion, name, 0.0)
    monkeypatch.setattr(congestion, "MOST_IN_FLIGHT", float("inf"))


def _exchange(pair: Pair, *sizes: int) -> None:
    near, far = pair
    for size in sizes:
        near.sendall(bytes(size))
        left = size
        while left:
            left -= len(far.recv(left))


def _in_use(connected: socket.socket) -> str:
    name = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return name.rstrip(b"\0").decode()


def test_a_thin_connection_goes_without_pauses_until_it_is_one_no_longer(
    connected: Pair, usual: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(congestion, "PAUSING", usual)
    control = CongestionControl(connected[0])
    assert _in_use(connected[0]) == usual
    _exchange(connected, *[100] * 20)
    control.review()
    assert _in_use(connected[0]) == congestion.GENTLE
    _exchange(connected, *[200_000] * 20)
    control.review()
    assert _in_use(connected[0]) == usual
    _exchange(connected, *[100] * 20)
    control.review()
    assert _in_use(connected[0]) == congestion.GENTLE


def test_a_connection_whose_congestion_control_does_not_pause_keeps_it(
    connected: Pair, usual: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(congestion, "PAUSING", f"not {usual}")
    control = CongestionControl(connected[0])
    for _ in range(3):
        _exchange(connected, *[100] * 20)
        control.review()
        assert _in_use(connected[0]) == usual


def test_without_a_way_back_nothing_is_changed(
    connected: Pair, usual: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(congestion, "PAUSING", usual)
    asked: list[str] = []

    def ask_for(where: socket.socket, name: str) -> None:
        asked.append(name)
        if name == usual:
            raise PermissionError(1, "not allowed")
        where.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())

    monkeypatch.setattr(wire_tuning, "_ask_for", ask_for)
    control = CongestionControl(connected[0])
    for _ in range(3):
        _exchange(connected, *[100] * 20)
        control.review()
        assert _in_use(connected[0]) == usual
    assert asked == [congestion.GENTLE, usual]
