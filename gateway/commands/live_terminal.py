"""The terminal of the live view of `ddswan status`: keys in, whole frames out, the terminal left as
it was. Used by live.py; what is drawn and what keys do is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import io
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable

from rich.console import Console, ConsoleDimensions, Group
from rich.control import Control
from rich.screen import Screen
from rich.text import Text

_TAKE = b"\x1b[?1049h\x1b[?25l"
"""The second screen that every terminal of today has, without a cursor."""
_GIVE_BACK = b"\x1b[0m\x1b[?25h\x1b[?1049l"
_SIZE_UNTOLD = (80, 24)
"""Some lines, such as serial ones, do not know what is at their end."""


def can_be_live() -> bool:
    """Whether somebody looks at our output and can press keys."""
    has_screen = os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
    return has_screen and sys.stdin.isatty() and sys.stdout.isatty()


class Terminal:
    """Standard input and output as one screen. A context manager."""

    def __init__(self, on_input: Callable[[str], None], on_resize: Callable[[], None]) -> None:
        """`on_input` gets what was typed, and nothing when there will be no more."""
        self._on_input = on_input
        self._on_resize = on_resize
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # a topic may have a name it cannot show
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._keyboard = sys.stdin.fileno()
        self._screen = sys.stdout.fileno()
        self._modes = termios.tcgetattr(self._keyboard)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines, now: not what the environment says, which does not know of changes."""
        width, height = os.get_terminal_size(self._screen)
        return width or _SIZE_UNTOLD[0], height or _SIZE_UNTOLD[1]

    def __enter__(self) -> Terminal:
        loop = asyncio.get_running_loop()
        self._take()
        loop.add_reader(self._keyboard, self._read)
        loop.add_signal_handler(signal.SIGWINCH, self._on_resize)
        loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        return self

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._keyboard)
        loop.remove_signal_handler(signal.SIGWINCH)
        loop.remove_signal_handler(signal.SIGTSTP)
        self._give_back()

    def show(self, lines: list[Text], size: tuple[int, int]) -> None:
        """Draws one frame of that size."""
        self._console.size = ConsoleDimensions(*size)
        with self._console:  # one write
            self._console.control(Control.home())
            self._console.print(Screen(Group(*lines)), end="")

    def _take(self) -> None:
        tty.setcbreak(self._keyboard)
        os.write(self._screen, _TAKE)

    def _give_back(self) -> None:
        # What fails here fails because the terminal is gone, and then there is nothing to restore.
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(self._keyboard, termios.TCSADRAIN, self._modes)
            # Not by the console: that would first try again what it may have failed to write.
            os.write(self._screen, _GIVE_BACK)

    def _suspend(self) -> None:
        """Ctrl-Z: the shell gets its terminal until it lets us go on."""
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()
        self._on_resize()

    def _read(self) -> None:
        try:
            typed = os.read(self._keyboard, 4096)
        except OSError:
            typed = b""
        if not typed:
            asyncio.get_running_loop().remove_reader(self._keyboard)
            self._on_input("")
        elif text := self._decoder.decode(typed):
            self._on_input(text)
