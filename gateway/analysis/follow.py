"""An analysis that goes on: the same facts and conclusions as run.py, from a stream of files that
edges keep adding. It may be ended and begun again at any time: its checkpoint knows what has been
counted. Called by `ddswan analyze --follow`.
"""

from __future__ import annotations

import json
import threading
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from gateway.analysis.conclude import STEPS, conclude
from gateway.analysis.facts import SAMPLE, make_facts, measure
from gateway.analysis.output import Output
from gateway.analysis.progress import Progress
from gateway.analysis.session import AnalysisError
from gateway.analysis.source import read_stream

_FACTS = "follow/facts"
_CHECKPOINT = "follow/checkpoint"
_EVERY_S = 10
_WAIT_S = 1
_FILES_AT_ONCE = 500


class Follower:
    """One run of `--follow`."""

    def __init__(
        self,
        spark: SparkSession,
        directory: str,
        place: str,
        progress: Progress,
        *,
        bucket_s: int,
        lateness_s: int,
        files_at_once: int = _FILES_AT_ONCE,
        every_s: int = _EVERY_S,
    ) -> None:
        self._spark = spark
        self._directory = directory
        self._out = Output(spark, place)
        self._progress = progress
        self._bucket_s = bucket_s
        self._lateness_s = lateness_s
        self._files_at_once = files_at_once
        self._every_s = every_s
        self._dropped = 0
        self._seen_batch = -1
        progress.watch(spark)

    def run(self, stopping: threading.Event, *, is_once: bool) -> None:
        """Until told to stop, or until everything there now is counted."""
        self._out.prepare()
        query = self._start(is_once=is_once)
        try:
            while query.isActive and not stopping.is_set():
                query.awaitTermination(_WAIT_S)
                if not is_once and self._has_news(query):
                    self._conclude()
        finally:
            self._has_news(query)
            query.stop()
        error = query.exception()
        if error is not None:
            raise error
        if is_once:  # who interrupts does not want to wait for a report
            self._conclude()

    def _start(self, *, is_once: bool) -> StreamingQuery:
        traces = read_stream(self._spark, self._directory, files_at_once=self._files_at_once)
        facts = make_facts(measure(traces), self._bucket_s, lateness_s=self._lateness_s)
        self._require_same_settings()
        writer = (
            facts.writeStream.format("parquet")
            .outputMode("append")
            .option("path", self._out.at(_FACTS))
            .option("checkpointLocation", self._out.at(_CHECKPOINT))
            .queryName("ddswan-traces")
        )
        writer = (
            writer.trigger(availableNow=True)
            if is_once
            else writer.trigger(processingTime=f"{self._every_s} seconds")
        )
        return writer.start()

    def _require_same_settings(self) -> None:
        """Periods of two lengths cannot be added up."""
        wanted = {"bucket_s": self._bucket_s, "lateness_s": self._lateness_s}
        place = self._out.at("follow/settings")
        known = [json.loads(row.value) for row in _read_text(self._spark, place)]
        if not known:
            text = F.lit(json.dumps(wanted)).alias("value")
            self._spark.range(1, numPartitions=1).select(text).write.mode("overwrite").text(place)
        elif known[0] != wanted:
            raise AnalysisError(
                f"{self._out.place} was begun with --bucket {known[0]['bucket_s']} --late-after "
                f"{known[0]['lateness_s']}; use these again or another --out"
            )

    def _has_news(self, query: StreamingQuery) -> bool:
        """Whether facts were written since the last look."""
        is_new = False
        for batch in query.recentProgress:
            if batch["batchId"] <= self._seen_batch:
                continue
            self._seen_batch = batch["batchId"]
            for operator in batch["stateOperators"]:
                self._dropped += operator["numRowsDroppedByWatermark"]
                is_new = is_new or operator["numRowsRemoved"] > 0
        return is_new

    def _conclude(self) -> None:
        facts = self._facts()
        if facts is None:
            return
        self._progress.restart(STEPS)
        conclude(facts, self._out, self._about(facts), self._progress)

    def _facts(self) -> DataFrame | None:
        jvm: Any = self._spark.sparkContext._jvm
        path = jvm.org.apache.hadoop.fs.Path(self._out.at(_FACTS), "_spark_metadata")
        system = path.getFileSystem(self._spark.sparkContext._jsc.hadoopConfiguration())
        if not system.exists(path):
            return None
        facts = self._out.read(_FACTS)
        return None if facts.isEmpty() else facts

    def _about(self, facts: DataFrame) -> dict[str, Any]:
        row = (
            facts.where(F.col("measure") == SAMPLE)
            .agg(
                F.sum("n").alias("rows"),
                F.min("bucket").alias("first"),
                F.max("bucket").alias("last"),
            )
            .first()
        )
        assert row is not None
        return {
            "directory": self._directory,
            "mode": "follow",
            "rows": row["rows"],
            "rows_too_late": self._dropped,
            "first": row["first"].isoformat(),
            "last": row["last"].isoformat(),
            "span_s": (row["last"] - row["first"]).total_seconds() + self._bucket_s,
            "bucket_s": self._bucket_s,
        }


def _read_text(spark: SparkSession, place: str) -> list[Any]:
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(place)
    system = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    return spark.read.text(place).collect() if system.exists(path) else []
