"""Lets a test talk to addresses inside a namespace: run there as a module, it passes connections
to a UNIX socket, whose name is the same everywhere, on to a TCP address. Started by `fabric.py`.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading

_PATIENCE_S = 5.0


def main() -> int:
    """One request, one answer a connection: `HOST:PORT` in the first line is where to."""
    (path,) = sys.argv[1:]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("relaying", flush=True)
        while True:
            near, _ = listener.accept()
            threading.Thread(target=_serve, args=(near,), daemon=True).start()


def _serve(near: socket.socket) -> None:
    # Whoever asks sees from the missing answer that nobody could be asked.
    with near, contextlib.suppress(OSError):
        near.settimeout(_PATIENCE_S)
        request = near.recv(1 << 16)
        address, _, rest = request.partition(b"\n")
        host, _, port = address.decode().rpartition(":")
        with socket.create_connection((host, int(port)), _PATIENCE_S) as far:
            far.sendall(rest)
            while answer := far.recv(1 << 16):
                near.sendall(answer)


if __name__ == "__main__":
    sys.exit(main())
