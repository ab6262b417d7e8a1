"""What the host of a virtual machine takes from it, by the kernel's own count. Deadlines of tests
are about what brokers do with a machine, so time it did not have does not count; on one that
nobody else uses this changes nothing. Used by process.py and by tests of precise times.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

P = ParamSpec("P")

_STEAL = 8
"""The place of stolen time among the words of /proc/stat."""
_DISTURBED_SHARE = 0.02
_ATTEMPTS = 5


def stolen_s() -> float:
    """Since it was started, of all its processors together."""
    with Path("/proc/stat").open() as stat:
        return int(stat.readline().split()[_STEAL]) / os.sysconf("SC_CLK_TCK")


class Deadline:
    """So many seconds from now, and what is stolen of any processor until then."""

    def __init__(self, seconds: float) -> None:
        self._end_s = time.monotonic() + seconds
        self._stolen_s = stolen_s()

    @property
    def has_passed(self) -> bool:
        late_s = time.monotonic() - self._end_s
        return late_s > 0 and late_s > stolen_s() - self._stolen_s


def is_about_precise_times(test: Callable[P, None]) -> Callable[P, None]:
    """For a test that leaves everything as it found it: it is done again when it fails and the
    machine was disturbed meanwhile."""

    @functools.wraps(test)
    def attempt(*arguments: P.args, **named: P.kwargs) -> None:
        for _ in range(_ATTEMPTS - 1):
            stolen_before_s, began_s = stolen_s(), time.monotonic()
            try:
                test(*arguments, **named)
                return
            except AssertionError:
                missed_s = stolen_s() - stolen_before_s
                if missed_s < _DISTURBED_SHARE * (time.monotonic() - began_s):
                    raise
        test(*arguments, **named)

    return attempt
