"""Datagrams that say when they were sent, and a receiver that says when they came: what tests of
networks are measured with. Run as a module in namespaces by `tests/lab/test_wan.py`.
"""

from __future__ import annotations

import argparse
import json
import socket
import struct
import sys
import time

_STAMP = struct.Struct("!Iq")
_END = 2**32 - 1
_SO_TIMESTAMPNS = 35
_SO_RCVBUFFORCE = 33


def main() -> int:
    command = argparse.ArgumentParser(description=__doc__)
    command.add_argument("action", choices=["send", "receive", "end"])
    command.add_argument("address")
    command.add_argument("port", type=int)
    command.add_argument("--count", type=int, default=1)
    command.add_argument("--gap-ms", type=float, default=1.0)
    command.add_argument("--size", type=int, default=64)
    options = command.parse_args()
    target = (options.address, options.port)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        if options.action == "receive":
            udp.bind(target)
            receive(udp)
        elif options.action == "end":
            udp.sendto(_STAMP.pack(_END, 0), target)
        else:
            send(udp, target, options.count, options.gap_ms / 1e3, options.size)
    return 0


def send(udp: socket.socket, target: tuple[str, int], count: int, gap_s: float, size: int) -> None:
    """`size` is that of the IP packet."""
    padding = bytes(size - 28 - _STAMP.size)
    begun_s = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, begun_s + number * gap_s - time.monotonic()))
        udp.sendto(_STAMP.pack(number, time.time_ns()) + padding, target)


def receive(udp: socket.socket) -> None:
    """Until told to end; then, as JSON, number, time sent and time received of each datagram."""
    # Received is when the kernel had it, not when this process was awake; it may sleep for long.
    udp.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    udp.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 16 << 20)
    print("receiving", flush=True)
    found = []
    while True:
        data, (ancillary, *_), _, _ = udp.recvmsg(_STAMP.size, 64)
        number, sent_ns = _STAMP.unpack(data)
        if number == _END:
            break
        seconds, nanoseconds = struct.unpack("qq", ancillary[2])
        found.append((number, sent_ns, seconds * 1_000_000_000 + nanoseconds))
    print(json.dumps({"arrivals": found}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
