"""The options all benchmarks share, read by __main__.py."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Options:
    repetitions: int
    seconds: float
    """Of measuring, in each repetition, after warming up."""
    json: Path | None
    is_quick: bool
    """A smoke test: correctness is asserted, nothing is said about speed."""
    cases: tuple[int, ...] = ()
    """Of a benchmark that has several; empty: its usual ones."""
    sizes: tuple[int, ...] = ()
    """Bytes of a sample, of a benchmark that has several; empty: its usual ones."""
