"""The process that carries a lab's emulated links: moves packets between TUN devices in namespaces
when `tests/lab/wan_model.py` says so, and obeys `tests/lab/wan.py` through an inherited socket.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import fcntl
import gc
import json
import os
import select
import socket
import struct
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.lab.wan_model import NEVER_NS, Impairments, Line

MESSAGE_BYTES = 1 << 20
_PACKET_BYTES = 65535
_BATCH = 64
"""Packets of one device taken or written before the others have their turn."""
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_CLONE_NEWNET = 0x40000000
_PR_SET_TIMERSLACK = 29

_libc = ctypes.CDLL(None, use_errno=True)


class Emulator:
    """Two lines for every cable, each from one device's file to another's."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._lines: list[tuple[Line, int]] = []
        """A line and the file its packets come out at."""
        self._line_from: dict[int, Line] = {}
        self._readable = [control.fileno()]

    def lay(self, seed: str, files: tuple[int, int]) -> None:
        """Connect two devices; the lines of the n-th cable are 2n (there) and 2n + 1 (back)."""
        first, second = files
        for name, source, target in (("there", first, second), ("back", second, first)):
            line = Line(f"{seed}/{name}")
            self._lines.append((line, target))
            self._line_from[source] = line
            self._readable.append(source)

    def run(self) -> None:
        """Until the lab closes its end of the control socket."""
        control = self._control.fileno()
        lines, line_from = self._lines, self._line_from
        while True:
            due_ns = min(line.due_ns for line, _ in lines)
            rest_s = None
            if due_ns != NEVER_NS:
                rest_s = max(0, due_ns - time.monotonic_ns()) * 1e-9
            readable, _, _ = select.select(self._readable, (), (), rest_s)
            now_ns = time.monotonic_ns()
            for file in readable:
                if file != control:
                    _take_in(file, line_from[file], now_ns)
                elif not self._obey():
                    return
            now_ns = time.monotonic_ns()
            for line, file in lines:
                if line.due_ns <= now_ns:
                    _let_out(line, file, now_ns)

    def _obey(self) -> bool:
        """One request of the lab, and its answer. False when the lab is gone."""
        message = self._control.recv(MESSAGE_BYTES)
        if not message:
            return False
        request: dict[str, Any] = json.loads(message)
        now_ns = time.monotonic_ns()
        for number, settings in request["change"]:
            self._lines[number][0].change(now_ns, Impairments(**settings))
        self.say([asdict(self._lines[number][0].counters) for number in request["count"]])
        return True

    def say(self, answer: object) -> None:
        self._control.send(json.dumps(answer).encode())


def _take_in(file: int, line: Line, now_ns: int) -> None:
    for _ in range(_BATCH):
        try:
            packet = os.read(file, _PACKET_BYTES)
        except BlockingIOError:
            return
        line.send(now_ns, packet)


def _let_out(line: Line, file: int, now_ns: int) -> None:
    for packet in line.take_due(now_ns, _BATCH):
        try:
            os.write(file, packet)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            line.refuse(packet)


def open_device(pid: int, interface: str) -> int:
    """A TUN device in the network namespace of a process. It vanishes with the file."""
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    _enter(there)
    try:
        try:
            file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        except OSError as error:
            sys.exit(
                f"{error}: emulated links need the kernel's tun devices and the right to make them;"
                " run as root, after: modprobe tun"
            )
        request = struct.pack("16sH22x", interface.encode(), _IFF_TUN | _IFF_NO_PI)
        fcntl.ioctl(file, _TUNSETIFF, request)
        # Nobody but the lab's own processes speaks: no router solicitations, no reports of groups.
        silence = Path(f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6")
        if silence.exists():
            silence.write_text("1")
    finally:
        _enter(own)
        os.close(own)
        os.close(there)
    return file


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _be_punctual() -> None:
    # The kernel may otherwise wake the process 50 µs late.
    _libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    # Links stand for hardware that does not wait for the brokers' processors: with both busy, 99 %
    # of packets are then 0.1 ms late at most, else 3 ms. Only real root may; others do without.
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    # There is no cyclic garbage.
    gc.collect()
    gc.disable()


def main() -> int:
    command = argparse.ArgumentParser(description=__doc__)
    command.add_argument("control", type=int, help="number of the inherited socket")
    options = command.parse_args()
    with socket.socket(fileno=options.control) as control:
        emulator = Emulator(control)
        plan: dict[str, Any] = json.loads(control.recv(MESSAGE_BYTES))
        for fate, ends in plan["cables"]:
            first, second = (open_device(pid, interface) for pid, interface in ends)
            emulator.lay(f"{plan['seed']}/{fate}", (first, second))
        _be_punctual()
        emulator.say("ready")
        emulator.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
