"""What the system is asked for on the TCP connection of a wire, at its beginning and as long as it
lasts. Called by wire.py; when to ask for what is decided in plan/congestion.py.
"""

from __future__ import annotations

import socket
import struct
import time

from gateway.observe.logs import get_logger
from gateway.plan.congestion import GENTLE, CongestionChoice, Sent
from gateway.tunnel.conversation import SILENT_TICKS, TICK_S

_log = get_logger("tunnel")

_LINUX_THIN_LINEAR_TIMEOUTS = 16
"""TCP_THIN_LINEAR_TIMEOUTS: a lone sample that is lost again is not waited for twice as long."""
_INFO_BYTES = 208
"""Of Linux's tcp_info: tcpi_snd_mss, tcpi_rtt, tcpi_total_retrans, tcpi_data_segs_out and
tcpi_bytes_sent are within."""
_INFO = struct.Struct("=16xI48xI28xI52xI40xQ")
_NAME_BYTES = 16


def tune(connected: socket.socket) -> None:
    """Latency first, and no peer that is gone without a word is believed in for long."""
    tcp = socket.IPPROTO_TCP
    connected.setsockopt(tcp, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        milliseconds = round(SILENT_TICKS * TICK_S * 1000)
        connected.setsockopt(tcp, socket.TCP_USER_TIMEOUT, milliseconds)
        connected.setsockopt(tcp, _LINUX_THIN_LINEAR_TIMEOUTS, 1)


class CongestionControl:
    """Of one connection: asks for what suits it, where the system can tell what it does."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._name = _in_use(connected) if _sent(connected) is not None else ""
        """What it uses now."""
        self._choice = CongestionChoice(self._name, time.monotonic())
        self._is_fixed = not self._choice.may_change
        """It stays as it is."""

    def review(self) -> None:
        """Called once a tick while the connection is open."""
        sent = None if self._is_fixed else _sent(self._socket)
        if sent is None:
            return
        name = self._choice.choose(sent, time.monotonic())
        if name == self._name:
            return
        try:
            if name == GENTLE:  # there may be no way back
                _try(name, self._name)
            _ask_for(self._socket, name)
        except OSError as error:
            self._is_fixed = True
            _log.info(
                "the congestion control of a link stays as it is: this process may not change it "
                "and change it back; see net.ipv4.tcp_allowed_congestion_control",
                in_use=self._name,
                wanted=name,
                reason=str(error),
            )
        else:
            self._name = name


def _try(*names: str) -> None:
    """Raises OSError when this process may not ask for one of them."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        for name in names:
            _ask_for(probe, name)


def _ask_for(connected: socket.socket, name: str) -> None:
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())


def _in_use(connected: socket.socket) -> str:
    if not hasattr(socket, "TCP_CONGESTION"):
        return ""
    found = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _NAME_BYTES)
    return found.partition(b"\0")[0].decode("ascii", "replace")


def _sent(connected: socket.socket) -> Sent | None:
    """None: this system does not say."""
    if not hasattr(socket, "TCP_INFO"):
        return None
    found = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    if len(found) < _INFO_BYTES:
        return None
    most_packet_bytes, rtt_us, repeats, packets, size_bytes = _INFO.unpack(found)
    return Sent(packets, repeats, size_bytes, most_packet_bytes, rtt_us / 1e6)
