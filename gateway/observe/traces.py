"""Writes trace rows to rotating Parquet files: the hot path only puts a batch into a bounded list,
a thread of its own does the rest. The only door to pyarrow. Made and ended by the edge's app.py;
what the columns mean is in trace_schema.py.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gateway.config import Trace
from gateway.errors import ConfigError
from gateway.model import INFINITE_NS
from gateway.observe.logs import get_logger
from gateway.observe.metrics import BrokerMetrics
from gateway.observe.trace_schema import (
    COLUMNS,
    SCHEMA_VERSION,
    ColumnType,
    TracedBatch,
    TracedStream,
)

_log = get_logger("traces")

_TURN_S = 0.5
_GROUP_ROWS = 65_536
"""Rows written together. They wait in memory until then, or until the file is closed."""
_MOST_FILES_SHARE = 4
_ARROW = {
    ColumnType.TEXT: pa.string(),
    ColumnType.INTEGER: pa.int64(),
    ColumnType.FRACTION: pa.float64(),
    ColumnType.FLAG: pa.bool_(),
}
ARROW_SCHEMA = pa.schema(
    [pa.field(c.name, _ARROW[c.type], nullable=c.is_nullable) for c in COLUMNS],
    metadata={"ddswan.trace_schema": str(SCHEMA_VERSION)},
)
_INTEGERS = [c.name for c in COLUMNS if c.type is ColumnType.INTEGER]
_OTHERS = [c.name for c in COLUMNS if c.type is not ColumnType.INTEGER]
_COLUMN_NAMES = {column.name for column in COLUMNS}
_OF_STREAM = sorted(
    _COLUMN_NAMES.intersection(TracedStream._fields) - {"origin_incarnation", "deadline_ns"}
)
_OF_BATCH = sorted(_COLUMN_NAMES.intersection(TracedBatch._fields) - {"source_ns", "stream"})


class TraceWriter:
    """Trace files of one life of an edge.

    A file is written under a hidden name and renamed when it is whole and on disk, so a reader
    never sees half of one, whatever happens to the edge.
    """

    def __init__(
        self,
        settings: Trace,
        edge: str,
        incarnation: int,
        metrics: BrokerMetrics,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        assert settings.directory is not None, "traces without a directory"
        self._directory = Path(settings.directory)
        self._edge = edge
        self._incarnation = incarnation
        self._file_bytes = min(settings.file_bytes, settings.disk_bytes // _MOST_FILES_SHARE)
        self._file_age_s = settings.file_age_s
        self._disk_bytes = settings.disk_bytes
        self._queue_rows = settings.queue_samples
        self._clock = clock
        self._rows_written = metrics.trace_rows
        self._disk_used = metrics.trace_disk_bytes
        self._dropped = {
            reason: metrics.trace_rows_dropped.labels(reason=reason)
            for reason in ("queue", "disk", "malformed")
        }
        metrics.trace_disk_limit_bytes.set(settings.disk_bytes)
        self._lock = threading.Lock()
        self._waiting: list[TracedBatch] = []
        self._waiting_rows = 0
        self._wake = threading.Event()
        self._is_stopping = False
        self._thread: threading.Thread | None = None
        self._tables: list[pa.Table] = []
        self._table_rows = 0
        self._file: _OpenFile | None = None
        self._sequence = 0

    def start(self) -> None:
        """Makes the directory and begins; raises ConfigError when it cannot be written."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            for leftover in self._own_files("." + _NAME + r"\.tmp"):
                leftover.unlink(missing_ok=True)
            probe = self._directory / f".{self._edge}.probe"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise ConfigError(
                f"cannot write traces into {self._directory}: {error.strerror}; "
                "change trace.directory or its permissions"
            ) from error
        self._make_room()
        self._thread = threading.Thread(target=self._run, name="trace-writer", daemon=True)
        self._thread.start()

    def append(self, batch: TracedBatch) -> None:
        """Takes a batch, or drops and counts it when too many rows wait. Costs about a
        microsecond; any thread may call it."""
        with self._lock:
            rows = self._waiting_rows + batch.samples
            if rows <= self._queue_rows:
                self._waiting_rows = rows
                self._waiting.append(batch)
                if rows < self._queue_rows // 2:
                    return
        if rows > self._queue_rows:
            self._dropped["queue"].inc(batch.samples)
        self._wake.set()

    def stop(self, patience_s: float = 5.0) -> None:
        """Writes what waits, closes the file and ends the thread."""
        if self._thread is None:
            return
        self._is_stopping = True
        self._wake.set()
        self._thread.join(patience_s)
        if self._thread.is_alive():
            _log.warning("traces are not written in time; is the disk slow?", patience_s=patience_s)
        self._thread = None

    # ---------------------------------------------------------------- its own thread

    def _run(self) -> None:
        while not self._is_stopping:
            self._wake.wait(_TURN_S)
            self._wake.clear()
            self._turn()
        self._turn()
        self._close_file()

    def _turn(self) -> None:
        with self._lock:
            batches, self._waiting = self._waiting, []
            self._waiting_rows = 0
        if batches:
            for table in self._lay_out(batches):
                self._tables.append(table)
                self._table_rows += table.num_rows
            if self._file is None:
                self._open_file()
        if self._table_rows >= _GROUP_ROWS:
            self._write_group()
        file = self._file
        if file is not None and (
            file.size >= self._file_bytes or self._clock() - file.since_s >= self._file_age_s
        ):
            self._close_file()

    def _lay_out(self, batches: Sequence[TracedBatch]) -> list[pa.Table]:
        try:
            return [lay_out(batches)]
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            if len(batches) == 1:
                _log.error(
                    "a batch cannot be traced, it is dropped; please report this", error=error
                )
                self._dropped["malformed"].inc(batches[0].samples)
                return []
        return [table for batch in batches for table in self._lay_out([batch])]

    def _open_file(self) -> None:
        self._make_room()
        self._sequence += 1
        stamp = datetime.fromtimestamp(self._clock(), UTC).strftime("%Y%m%dT%H%M%SZ")
        name = f"{stamp}-{self._edge}-{self._incarnation:016x}-{self._sequence:06d}.parquet"
        try:
            self._file = _OpenFile(self._directory, name, self._clock())
        except OSError as error:
            self._give_up(error)

    def _write_group(self) -> None:
        if self._file is None:  # it could not be opened: tried again with the next batches
            self._give_up(None)
            return
        try:
            self._file.write(pa.concat_tables(self._tables))
        except OSError as error:
            self._give_up(error)
            return
        self._tables = []
        self._table_rows = 0

    def _close_file(self) -> None:
        if self._tables:
            self._write_group()
        file = self._file
        if file is None:
            return
        try:
            file.finish()
        except OSError as error:
            self._give_up(error)
            return
        self._file = None
        self._rows_written.inc(file.rows)
        self._make_room()

    def _give_up(self, error: OSError | None) -> None:
        """Drops the file being written with all its rows."""
        rows = self._table_rows
        if self._file is not None:
            rows += self._file.rows
            self._file.discard()
            self._file = None
        self._tables = []
        self._table_rows = 0
        self._dropped["disk"].inc(rows)
        if error is not None:
            _log.error(
                "traces cannot be written; free the disk or change trace.directory",
                directory=str(self._directory),
                error=error,
            )

    def _make_room(self) -> None:
        """Removes the oldest files so that one more fits, and tells how much there is."""
        try:
            sizes = [(file, file.stat().st_size) for file in self._own_files(_NAME)]
        except OSError as error:
            _log.error(
                "traces cannot be listed; check the rights of trace.directory",
                directory=str(self._directory),
                error=error,
            )
            return
        used = sum(size for _, size in sizes)
        for file, size in sizes:
            if used + self._file_bytes <= self._disk_bytes:
                break
            with contextlib.suppress(FileNotFoundError):
                file.unlink()
            used -= size
        self._disk_used.set(used)

    def _own_files(self, pattern: str) -> list[Path]:
        """Files of this edge, of all its lives, oldest first."""
        expression = re.compile(pattern.replace("EDGE", re.escape(self._edge)))
        return sorted(file for file in self._directory.iterdir() if expression.fullmatch(file.name))


_NAME = r"\d{8}T\d{6}Z-EDGE-[0-9a-f]{16}-\d{6}\.parquet"


class _OpenFile:
    """The file being written."""

    def __init__(self, directory: Path, name: str, since_s: float) -> None:
        self.since_s = since_s
        self.rows = 0
        self._directory = directory
        self._path = directory / name
        self._hidden = directory / f".{name}.tmp"
        self._sink: BinaryIO = self._hidden.open("wb")
        self._writer = pq.ParquetWriter(
            self._sink,
            ARROW_SCHEMA,
            compression="zstd",
            compression_level=1,
            use_dictionary=_OTHERS,
            column_encoding=dict.fromkeys(_INTEGERS, "DELTA_BINARY_PACKED"),
            write_statistics=False,
        )

    @property
    def size(self) -> int:
        return self._sink.tell()

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table)
        self.rows += table.num_rows

    def finish(self) -> None:
        self._writer.close()
        self._sink.flush()
        os.fsync(self._sink.fileno())
        self._sink.close()
        self._hidden.rename(self._path)
        directory = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def discard(self) -> None:
        with contextlib.suppress(OSError):  # why it is given up has been said
            self._writer.close()
        with contextlib.suppress(OSError):
            self._sink.close()
        with contextlib.suppress(OSError):
            self._hidden.unlink(missing_ok=True)


# ---------------------------------------------------------------- batches to rows


def lay_out(batches: Sequence[TracedBatch]) -> pa.Table:
    """The rows of these batches. Python handles each batch once; what is per row happens in
    Arrow, without the interpreter's lock."""
    counts = [batch.samples for batch in batches]
    ends: list[int] = []
    total = 0
    for count in counts:
        total += count
        ends.append(total)
    # Which batch each row belongs to.
    batch_of = pc.run_end_decode(
        pa.RunEndEncodedArray.from_arrays(
            pa.array(ends, pa.int32()), pa.array(range(len(batches)), pa.int32())
        )
    )
    rows = {
        name: pa.array(values, ARROW_SCHEMA.field(name).type).take(batch_of)
        for name, values in _per_batch(batches).items()
    }
    # first + (row - row of the batch's first)
    shift = [batch.first - (end - batch.samples) for batch, end in zip(batches, ends, strict=True)]
    rows["number"] = pc.add(pa.arange(0, total), pa.array(shift, pa.int64()).take(batch_of))
    rows["source_ns"] = pa.concat_arrays([_source_times(batch) for batch in batches])
    rows["size_bytes"] = pa.concat_arrays([_sizes(batch) for batch in batches])
    return pa.table([rows[column.name] for column in COLUMNS], schema=ARROW_SCHEMA)


def _per_batch(batches: Sequence[TracedBatch]) -> dict[str, list[Any]]:
    """The columns that are the same for all samples of a batch, one value a batch."""
    streams = [batch.stream for batch in batches]
    return {
        "schema_version": [SCHEMA_VERSION] * len(batches),
        "origin_incarnation": [_signed(stream.origin_incarnation) for stream in streams],
        "deadline_ns": [None if s.deadline_ns == INFINITE_NS else s.deadline_ns for s in streams],
        **{name: [getattr(stream, name) for stream in streams] for name in _OF_STREAM},
        **{name: [getattr(batch, name) for batch in batches] for name in _OF_BATCH},
    }


def _signed(number: int) -> int:
    """Parquet readers in Java have no unsigned 64-bit integers."""
    return number - (1 << 64) if number >= 1 << 63 else number


def _source_times(batch: TracedBatch) -> pa.Array:
    if len(batch.source_ns) != batch.samples:
        raise ValueError(f"{len(batch.source_ns)} source times for {batch.samples} samples")
    return pa.Array.from_buffers(pa.int64(), batch.samples, [None, pa.py_buffer(batch.source_ns)])


def _sizes(batch: TracedBatch) -> pa.Array:
    if batch.sizes is None:
        return pa.repeat(pa.scalar(batch.uniform_size, pa.int64()), batch.samples)
    if len(batch.sizes) != batch.samples:
        raise ValueError(f"{len(batch.sizes)} sizes for {batch.samples} samples")
    sizes = pa.Array.from_buffers(pa.uint32(), batch.samples, [None, pa.py_buffer(batch.sizes)])
    return sizes.cast(pa.int64())
