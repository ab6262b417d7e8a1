"""One process in the lab: its output in a file, its life by its pid, what it used. Started by
`tests/lab/namespaces.py`; knows nothing of networks or ddswan.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.lab.machine import Deadline

POLL_S = 0.01
_LOOK_EVERY_MS = 250
"""At the clock, while a process goes on."""

T = TypeVar("T")


class ProcessFailed(AssertionError):
    """A process of the lab did not do what was waited for; the message holds its last output."""


def wait_until(condition: Callable[[], T | None], deadline_s: float, what: str) -> T:
    """Poll until `condition` returns something true, and return that."""
    deadline = Deadline(deadline_s)
    while True:
        found = condition()
        if found:
            return found
        if deadline.has_passed:
            raise AssertionError(f"not within {deadline_s:g} s: {what}")
        time.sleep(POLL_S)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used so far."""

    cpu_s: float
    peak_rss_bytes: int

    @staticmethod
    def of(pid: int) -> Usage | None:
        """None when there is no such process any longer."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return None
        peak = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
        if peak is None:
            return None
        ticks = int(stat[11]) + int(stat[12])
        return Usage(ticks / os.sysconf("SC_CLK_TCK"), int(peak[1]) * 1024)


class Process:
    """A running command. Standard output and error go into one file, so that the command never
    waits for its reader and the file stays for whoever looks into a failure."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        name: str,
        output: Path,
        env: Mapping[str, str],
        cwd: Path,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.name = name
        self.argv = list(argv)
        self.output_path = output
        self._was_signalled = False
        self._read_bytes = 0
        self._lines: list[str] = []
        self._records: list[dict[str, Any]] = []
        self._parsed_lines = 0
        with output.open("wb") as sink:
            self._popen = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=dict(env),
                cwd=cwd,
                start_new_session=True,
                pass_fds=pass_fds,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._popen.poll()

    @property
    def has_crashed(self) -> bool:
        """Ended badly, and not because of a signal from here."""
        return not self._was_signalled and self._popen.poll() not in (None, 0)

    def text(self) -> str:
        return self.output_path.read_text(encoding="utf-8", errors="replace")

    def lines(self) -> list[str]:
        """The complete lines so far."""
        # Only what is new is read: who polls takes little from the processors of who is waited for.
        with self.output_path.open("rb") as output:
            output.seek(self._read_bytes)
            found = output.read()
        complete = found[: found.rfind(b"\n") + 1]
        self._read_bytes += len(complete)
        self._lines += complete.decode(errors="replace").splitlines()
        return list(self._lines)

    def records(self) -> list[dict[str, Any]]:
        """The lines that are JSON objects, as the sample applications write them."""
        new = self.lines()[self._parsed_lines :]
        self._parsed_lines += len(new)
        self._records += [json.loads(line) for line in new if line.startswith("{")]
        return list(self._records)

    def tail(self, count: int = 25) -> str:
        return "\n".join(self.text().splitlines()[-count:])

    def wait_for_line(self, pattern: str, deadline_s: float = 20.0) -> re.Match[str]:
        """The first line that matches; fails at once when the process ends without one."""
        expression = re.compile(pattern, re.MULTILINE)
        deadline = Deadline(deadline_s)
        searched = 0
        while True:
            was_running = self.is_running
            new = self.lines()[searched:]
            searched += len(new)
            found = expression.search("\n".join(new))
            if found:
                return found
            if not was_running:
                raise ProcessFailed(self._report(f"ended without a line matching {pattern!r}"))
            if deadline.has_passed:
                raise ProcessFailed(
                    self._report(f"no line matching {pattern!r} within {deadline_s:g} s")
                )
            time.sleep(POLL_S)

    def wait_for_records(self, count: int, deadline_s: float = 10.0) -> list[dict[str, Any]]:
        """At least `count` JSON records, or fail."""
        deadline = Deadline(deadline_s)
        while True:
            was_running = self.is_running
            found = self.records()
            if len(found) >= count:
                return found
            if not was_running or deadline.has_passed:
                raise ProcessFailed(self._report(f"{len(found)} of {count} records"))
            time.sleep(POLL_S)

    def wait(self, deadline_s: float = 10.0) -> int:
        """Its exit code."""
        code = self._end_within(deadline_s)
        if code is None:
            raise ProcessFailed(self._report(f"still running after {deadline_s:g} s"))
        return code

    def wait_for_success(self, deadline_s: float = 10.0) -> None:
        code = self.wait(deadline_s)
        if code != 0:
            raise ProcessFailed(self._report(f"exit code {code}"))

    def send(self, number: signal.Signals) -> None:
        if self.is_running:
            self._was_signalled = True
            os.kill(self.pid, number)

    def terminate(self, deadline_s: float = 10.0) -> int:
        """SIGTERM; its exit code. SIGKILL and a failure when it does not end in time."""
        self.send(signal.SIGTERM)
        code = self._end_within(deadline_s)
        if code is None:
            report = self._report(f"still running {deadline_s:g} s after SIGTERM")
            self.kill()
            raise ProcessFailed(report)
        return code

    def kill(self) -> None:
        """SIGKILL, and gone when this returns."""
        self.send(signal.SIGKILL)
        self._popen.wait(10.0)

    def _end_within(self, seconds: float) -> int | None:
        """Its exit code, unless it goes on."""
        deadline = Deadline(seconds)
        if not self.is_running:
            return self.exit_code
        # Who waits takes nothing from the processors of who is waited for.
        descriptor = os.pidfd_open(self.pid)
        try:
            end = select.poll()
            end.register(descriptor, select.POLLIN)
            while not end.poll(_LOOK_EVERY_MS) and not deadline.has_passed:
                continue
        finally:
            os.close(descriptor)
        return self.exit_code

    def _report(self, what: str) -> str:
        return f"{self.name} (pid {self.pid}): {what}; its last output:\n{self.tail()}"
