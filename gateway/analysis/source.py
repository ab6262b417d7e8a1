"""Where traces come from: finds them, says in one line what is wrong when there are none, and reads
them with the columns of the contract, whatever version wrote them. Called by run.py and follow.py.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from gateway.analysis.session import AnalysisError
from gateway.observe.trace_schema import COLUMNS, ColumnType

_TYPES: dict[ColumnType, DataType] = {
    ColumnType.TEXT: StringType(),
    ColumnType.INTEGER: LongType(),
    ColumnType.FRACTION: DoubleType(),
    ColumnType.FLAG: BooleanType(),
}
SCHEMA = StructType([StructField(column.name, _TYPES[column.type]) for column in COLUMNS])
_REQUIRED = {c.name for c in COLUMNS if c.since == 1 and not c.is_nullable}
EVENT = "event_time"
_MOST_LOOKED_INTO = 20


@dataclass(frozen=True, slots=True)
class Survey:
    """What a directory holds."""

    rows: int
    files: int
    unreadable_files: int
    first: datetime.datetime
    """Nearly: a hundredth of the rows is older, a hundredth newer than `last`; single wrong clocks
    move neither."""
    last: datetime.datetime

    @property
    def span_s(self) -> float:
        return (self.last - self.first).total_seconds()


def find_traces(spark: SparkSession, directory: str) -> list[str]:
    """The files there are; raises AnalysisError when the directory cannot be of traces."""
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(directory)
    system = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    if not system.exists(path):
        raise AnalysisError(
            f"there is no directory {directory}; name the trace.directory of the edges"
        )
    if not system.getFileStatus(path).isDirectory():
        raise AnalysisError(f"{directory} is a file; name the directory it is in")
    names = [s.getPath().getName() for s in system.listStatus(path) if s.isFile()]
    return sorted(name for name in names if name.endswith(".parquet") and name[0] not in "._")


def read_batch(spark: SparkSession, directory: str) -> DataFrame:
    """All traces there are now."""
    files = find_traces(spark, directory)
    if not files:
        raise AnalysisError(
            f"there are no traces in {directory}; set trace.directory of the edges to it and wait "
            "for trace.file_age_s (60 s unless set)"
        )
    _require_traces(spark, directory, files)
    traces = spark.read.schema(SCHEMA).option("pathGlobFilter", "*.parquet").parquet(directory)
    return _with_event_time(traces)


def read_stream(spark: SparkSession, directory: str, *, files_at_once: int) -> DataFrame:
    """Traces as they come."""
    files = find_traces(spark, directory)
    if files:
        _require_traces(spark, directory, files)
    traces = (
        spark.readStream.schema(SCHEMA)
        .option("pathGlobFilter", "*.parquet")
        .option("maxFilesPerTrigger", str(files_at_once))
        .parquet(directory)
    )
    return _with_event_time(traces)


def survey(traces: DataFrame, directory: str) -> Survey:
    """Counts and dates; reads one column."""
    row = traces.agg(
        F.count(F.lit(1)).alias("rows"),
        F.count_distinct("file").alias("files"),
        F.percentile_approx(EVENT, [0.01, 0.99], 1000).alias("times"),
    ).first()
    assert row is not None
    if not row["rows"]:
        raise AnalysisError(f"the files in {directory} hold no trace; are they of ddswan?")
    # Those of this reading: meanwhile edges write more and remove their oldest.
    unreadable = max(0, len(traces.inputFiles()) - row["files"])
    first, last = row["times"]
    return Survey(row["rows"], row["files"], unreadable, first, last)


def _require_traces(spark: SparkSession, directory: str, files: list[str]) -> None:
    """Looks into the first file that can be read: nothing else tells traces from other Parquet."""
    for name in files[:_MOST_LOOKED_INTO]:
        try:
            found = spark.read.parquet(f"{directory.rstrip('/')}/{name}").columns
        except PySparkException:
            continue  # cut off; counted as unreadable later
        missing = sorted(_REQUIRED.difference(found))
        if missing:
            raise AnalysisError(
                f"{directory} holds something else than traces of ddswan (no column {missing[0]} "
                f"in {name}); name the trace.directory of the edges"
            )
        return
    raise AnalysisError(f"no file in {directory} can be read; are they traces of ddswan?")


def _with_event_time(traces: DataFrame) -> DataFrame:
    """A row's time is its arrival, but never after its file was written: one edge whose clock is
    ahead must not make everybody else's rows late."""
    arrived: Column = F.timestamp_micros((F.col("egress_ns") / 1000).cast("long"))
    return traces.withColumns(
        {
            EVENT: F.least(arrived, F.col("_metadata.file_modification_time")),
            "file": F.col("_metadata.file_name"),
        }
    )
