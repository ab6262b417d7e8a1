"""Compiles the sample applications written in C and C++, once for each text of their source."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / "build" / "lab"


def compiled(source: Path, command: Sequence[str], libraries: Sequence[str]) -> Path:
    """The executable; `command` is the compiler with its options."""
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    program = CACHE / f"{source.stem}-{digest}"
    if not program.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        unfinished = program.with_suffix(f".{os.getpid()}")
        subprocess.run([*command, "-o", str(unfinished), str(source), *libraries], check=True)
        unfinished.rename(program)
    return program
