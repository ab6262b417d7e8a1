"""What is to be said, a moment later, so that it travels together: when that moment is. Used by
egress, on the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_WAITED_SHARE = 0.3
"""What has waited for so much of its time does not wait for the rest: that would be a turn more."""


class Moment:
    """From the first `ask` on it takes so long; then `say` is called, once."""

    def __init__(self, after_s: float, say: Callable[[], object]) -> None:
        self._after_s = after_s
        self._say = say
        self._timer: asyncio.TimerHandle | None = None
        self._is_held = False
        self._is_asked = False

    def ask(self) -> None:
        """There is something to say."""
        self._is_asked = True
        if not self._is_held:
            self._wait(self._after_s)

    def hold(self) -> None:
        """Until `let_go` nothing is said, and asking costs nothing."""
        self._is_held = True

    def let_go(self, waited_s: float) -> None:
        """What was asked meanwhile is about something so old."""
        self._is_held = False
        if not self._is_asked:
            return
        if waited_s >= self._after_s * _WAITED_SHARE:
            self.close()
            self._come()
        else:
            self._wait(self._after_s - waited_s)

    def close(self) -> None:
        """Nothing is said any more, unless it is asked again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._come)

    def _come(self) -> None:
        self._timer = None
        self._is_asked = False
        self._say()
