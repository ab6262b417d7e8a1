"""Processes of labs whose owner was killed, so that nothing could clean up: each carries in its
environment who started it. Used by `namespaces.py`.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

_VARIABLE = "LAN_LAB_OWNER"


def owner() -> dict[str, str]:
    """Variables of all this process starts in a lab."""
    return {_VARIABLE: _identity(os.getpid()) or ""}


def end_orphans() -> list[int]:
    """End processes of labs whose owner is gone (killed, so that nothing could clean up)."""
    ended = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            for item in (entry / "environ").read_bytes().split(b"\0"):
                name, _, owned_by = item.decode(errors="replace").partition("=")
                pid, _, _ = owned_by.partition("@")
                if name == _VARIABLE and pid.isdigit() and _identity(int(pid)) != owned_by:
                    os.kill(int(entry.name), signal.SIGKILL)
                    ended.append(int(entry.name))
    return ended


def _identity(pid: int) -> str | None:
    """A pid with its start time, so that a reused pid is somebody else."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return f"{pid}@{stat.rpartition(')')[2].split()[19]}"
