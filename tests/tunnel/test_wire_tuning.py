"""What is asked for on a connection, as the system tells it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from gateway.plan import congestion
from gateway.tunnel.wire_tuning import CongestionControl, tune

_USUAL = b"cubic"


@pytest.fixture
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as near,
    ):
        far, _ = server.accept()
        with far:
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _USUAL)
            tune(near)
            yield near, far


def _exchange(pair: tuple[socket.socket, socket.socket], *sizes: int) -> None:
    near, far = pair
    for size in sizes:
        near.sendall(bytes(size))
        left = size
        while left:
            left -= len(far.recv(left))


def _in_use(connected: socket.socket) -> bytes:
    name = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return name.rstrip(b"\0")


def test_a_thin_connection_goes_without_pauses_until_it_is_one_no_longer(
    connected: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(congestion, "PAUSING", _USUAL.decode())
    monkeypatch.setattr(congestion, "CLEAN_FIRST_S", 1e-9)
    control = CongestionControl(connected[0])
    control.review()
    assert _in_use(connected[0]) == _USUAL
    _exchange(connected, *[100] * 20)
    control.review()
    assert _in_use(connected[0]) == congestion.GENTLE.encode()
    _exchange(connected, *[200_000] * 20)
    control.review()
    assert _in_use(connected[0]) == _USUAL


def test_a_connection_whose_congestion_control_does_not_pause_keeps_it(
    connected: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(congestion, "CLEAN_FIRST_S", 1e-9)
    control = CongestionControl(connected[0])
    for _ in range(3):
        _exchange(connected, *[100] * 20)
        control.review()
        assert _in_use(connected[0]) == _USUAL
