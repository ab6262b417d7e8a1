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


def find_traces(spark: SparkSession, directory: str) -> int:
    """How many files there are; raises AnalysisError when the directory cannot be of traces."""
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(directory)
    system = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    if not system.exists(path):
        raise AnalysisError(
            f"there is no directory {directory}; name the trace.directory of the edges"
        )
    if not system.getFileStatus(path).isDirectory():
        raise AnalysisError(f"{directory} is a file; name the directory it is in")
    found = 0
    for status in system.listStatus(path):
        name = status.getPath().getName()
        found += status.isFile() and name.endswith(".parquet") and name[0] not in "._"
    return found


def read_batch(spark: SparkSession, directory: str) -> DataFrame:
    """All traces there are now."""
    if find_traces(spark, directory) == 0:
        raise AnalysisError(
            f"there are no traces in {directory}; set trace.directory of the edges to it and wait "
            "for trace.file_age_s (60 s unless set)"
        )
    _require_traces(spark, directory)
    traces = spark.read.schema(SCHEMA).option("pathGlobFilter", "*.parquet").parquet(directory)
    return _with_event_time(traces)


def read_stream(spark: SparkSession, directory: str, *, files_at_once: int) -> DataFrame:
    """Traces as they come."""
    if find_traces(spark, directory):
        _require_traces(spark, directory)
    traces = (
        spark.readStream.schema(SCHEMA)
        .option("pathGlobFilter", "*.parquet")
        .option("maxFilesPerTrigger", str(files_at_once))
        .parquet(directory)
    )
    return _with_event_time(traces)


def survey(spark: SparkSession, traces: DataFrame, directory: str) -> Survey:
    """Counts and dates; reads one column."""
    row = traces.agg(
        F.count(F.lit(1)).alias("rows"),
        F.count_distinct("file").alias("files"),
        F.percentile_approx(EVENT, [0.01, 0.99], 1000).alias("times"),
    ).first()
    assert row is not None
    if not row["rows"]:
        raise AnalysisError(f"the files in {directory} hold no trace; are they of ddswan?")
    found = find_traces(spark, directory)
    first, last = row["times"]
    return Survey(row["rows"], row["files"], max(0, found - row["files"]), first, last)


def _require_traces(spark: SparkSession, directory: str) -> None:
    try:
        found = spark.read.option("pathGlobFilter", "*.parquet").parquet(directory).columns
    except PySparkException as error:
        raise AnalysisError(
            f"no file in {directory} can be read; are they traces of ddswan?"
        ) from error
    missing = sorted(_REQUIRED.difference(found))
    if missing:
        raise AnalysisError(
            f"{directory} holds something else than traces of ddswan (no column {missing[0]}); "
            "name the trace.directory of the edges"
        )


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
