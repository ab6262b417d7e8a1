"""A terminal for tests: `ddswan` on a pseudo terminal, what its screen shows, and typing."""

from __future__ import annotations

import codecs
import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tests.environment import environment

PATIENCE_S = 30.0
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_FRAME = "\x1b[H"
TAKEN = "\x1b[?1049h\x1b[?25l"
GIVEN_BACK = "\x1b[0m\x1b[?25h\x1b[?1049l"


class Terminal:
    """`ddswan` with these arguments in the foreground of a terminal of its own."""

    def __init__(
        self,
        *arguments: str,
        columns: int = 120,
        lines: int = 20,
        variables: dict[str, str] | None = None,
    ) -> None:
        self.output = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._master: int | None
        self._master, slave = os.openpty()
        self._slave = slave
        self._size = (columns, lines)
        self._tell_size()
        self.modes: list[Any] = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            ["setsid", "--ctty", sys.executable, "-m", "gateway.cli", *arguments],
            env=environment(
                **{"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **(variables or {})}
            ),
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._slave)
        if self._master is not None:
            os.close(self._master)

    def resize(self, columns: int, lines: int) -> None:
        self._size = (columns, lines)
        self._tell_size()

    def _tell_size(self) -> None:
        columns, lines = self._size
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, text: str) -> None:
        assert self._master is not None
        os.write(self._master, text.encode())

    def hang_up(self) -> None:
        """As when the window is closed."""
        assert self._master is not None
        os.close(self._master)
        self._master = None

    @property
    def current_modes(self) -> list[Any]:
        return termios.tcgetattr(self._slave)

    @property
    def screen(self) -> list[str]:
        """The lines of the last frame that has come whole and fills the screen; none: no frame."""
        columns, lines = self._size
        for frame in reversed(self.output.rsplit(_FRAME, 3)[1:]):
            drawn = _CONTROL.sub("", frame).replace("\r", "").split("\n")
            if len(drawn) == lines and all(len(line) == columns for line in drawn):
                return [line.rstrip() for line in drawn]
        return []

    def row(self, topic: str) -> list[str]:
        """The cells of the first row of a topic; none when it is not shown."""
        rows = (re.split(r"\s{2,}", line) for line in self.screen)
        return next((cells for cells in rows if cells[0] == topic), [])

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
        """Until it is true; what is told meanwhile is read."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "\n".join(
                ["the screen does not become as expected:", *self.screen, repr(self.output[-300:])]
            )
            self._read(0.05)

    def see(self, text: str) -> None:
        self.wait_for(lambda: any(text in line for line in self.screen))

    def wait_until_stopped(self) -> None:
        """Until it has gone to sleep, as for Ctrl-Z."""
        look = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        self.wait_for(lambda: os.waitid(os.P_PID, self.process.pid, look) is not None)

    def end(self) -> int:
        """Its exit code, when it has ended; all it said is in `output` then."""
        self.wait_for(lambda: self.process.poll() is not None)
        while self._read(0.0):
            pass
        return self.process.wait()

    def _read(self, patience_s: float) -> bool:
        sources = [] if self._master is None else [self._master]
        readable, _, _ = select.select(sources, [], [], patience_s)
        for source in readable:
            self.output += self._decoder.decode(os.read(source, 65536))
        return bool(readable)
