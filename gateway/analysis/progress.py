"""What the person who waits sees: the step, and how far Spark is with it. Called by run.py and
follow.py; on a terminal a line that moves, elsewhere one line a step.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from pyspark.sql import SparkSession

_REFRESH_S = 0.2
_WIDTH = 24


class Progress:
    """Says which of a known number of steps runs."""

    def __init__(self, sink: TextIO, steps: int) -> None:
        self._sink = sink
        self._steps = steps
        self._is_live = sink.isatty()
        self._step = 0
        self._spark: SparkSession | None = None

    def watch(self, spark: SparkSession) -> None:
        """From now on steps show how many of Spark's tasks are done."""
        self._spark = spark

    @contextlib.contextmanager
    def step(self, text: str) -> Iterator[None]:
        self._step += 1
        label = f"[{self._step}/{self._steps}] {text}"
        if not self._is_live:
            print(label, file=self._sink, flush=True)
            yield
            return
        ended = threading.Event()
        began = time.monotonic()
        thread = threading.Thread(
            target=self._draw, args=(label, began, ended), name="progress", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            took = time.monotonic() - began
            print(f"\r\x1b[K{label}  {took:.1f} s", file=self._sink, flush=True)

    def restart(self, steps: int) -> None:
        self._step = 0
        self._steps = steps

    def _draw(self, label: str, began: float, ended: threading.Event) -> None:
        while not ended.wait(_REFRESH_S):
            took = time.monotonic() - began
            line = f"\r\x1b[K{label}  {self._tasks()}{took:.0f} s"
            print(line, end="", file=self._sink, flush=True)

    def _tasks(self) -> str:
        if self._spark is None:
            return ""
        tracker = self._spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        total = sum(stage.numTasks for stage in stages if stage is not None)
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        if not total:
            return ""
        filled = _WIDTH * done // total
        return f"{'█' * filled}{'░' * (_WIDTH - filled)} {done}/{total} tasks  "
